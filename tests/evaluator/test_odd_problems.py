"""Problems unlike most: the judge takes them as they are or refuses them in one sentence, and lives."""

from __future__ import annotations

import pytest

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import BuildFailed, Correct, Incorrect
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.sharing import JudgeWithin

pytest.importorskip("torch")

pytestmark = pytest.mark.asyncio(loop_scope="session")


def problem(
    forward: str = "return x * 2",
    inputs: str = "[torch.randn(8, 8)]",
    given: str = "x",
    top: str = "",
    init: str = "pass",
    arguments: str = "[]",
    parameters: str = "",
) -> Problem:
    """A problem file; several statements of `forward` are divided by semicolons."""
    body = "\n        ".join(part.strip() for part in forward.split(";"))
    return Problem(
        name="odd",
        source=(
            f"import torch\nimport torch.nn as nn\n{top}\n\nclass Model(nn.Module):\n"
            f"    def __init__(self{parameters}):\n        super().__init__()\n        {init}\n"
            f"    def forward(self, {given}):\n        {body}\n\n"
            f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {arguments}\n"
        ),
    )


def copied(asked: Problem, old: str = "", new: str = "") -> Candidate:
    """The reference as a candidate, with one thing replaced."""
    source = asked.source.replace("class Model(", "class ModelNew(")
    assert old in source
    return as_candidate("cpp", source.replace(old, new) if old else source)


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.05))


CHANGING = problem("x.mul_(2); return x + y", "[torch.randn(8, 8), torch.randn(8, 8)]", "x, y")

TAKEN = {
    "views as inputs": problem(
        "return a * 2, b * 2, c * 2, d * 2",
        "[torch.randn(1, 8).expand(8, 8), torch.randn(20).unfold(0, 8, 2), "
        "torch.randn(6, 8).t(), torch.randn(8, 16)[:, ::2]]",
        "a, b, c, d",
    ),
    "empty, scalar, complex and truth": problem(
        "return a * 2, b * 2, c * 2j, ~d, a.sum(), torch.fft.rfft(c.real)",
        "[torch.randn(0, 8), torch.randn(()), torch.randn(8, 8, dtype=torch.complex64), torch.rand(8) > 0.5]",
        "a, b, c, d",
    ),
    "nested inputs and none": problem(
        "return (pair.a * pair.b + d['a'] * d['rest'][0][0]) * (scale if mode == 'twice' and mask is None else 1)",
        "[Pair(torch.randn(4, 4), torch.randn(4, 4)), "
        "{'a': torch.randn(4, 4), 'rest': [(torch.randn(4, 4), None)]}, None, 2.5, 'twice']",
        "pair, d, mask, scale, mode",
        "from collections import namedtuple\nPair = namedtuple('Pair', 'a b')",
    ),
    "no tensor": problem("return torch.arange(n).float()", "[8]", "n"),
    "one tensor twice": problem(
        "assert x is y; return x @ y", "[*[torch.randn(8, 8)] * 2]", "x, y"
    ),
    "drawn by Python and numpy": problem(
        inputs="[torch.tensor([random.random(), numpy.random.rand()])]", top="import random, numpy"
    ),
    "drawn by a seeded generator": problem(
        inputs="[torch.randn(64, generator=torch.Generator().manual_seed(torch.initial_seed()))]"
    ),
    "outputs of any structure": problem(
        "y = x * 2; return Out(x, {'b': x > 0, 'a': [y, y, y[:2], self.w]}, None)",
        top="from collections import namedtuple\nOut = namedtuple('Out', 'a b c')",
        init="self.w = nn.Parameter(torch.randn(4))",
    ),
    "its own class and function": problem(
        "return self.act(x) * self.settings.scale",
        top=(
            "def act(x):\n    return torch.relu(x)\n\nclass Settings:\n"
            "    def __init__(self, scale):\n        self.scale = scale\n"
        ),
        arguments="[act, Settings(3.0)]",
        parameters=", act, settings",
        init="self.act, self.settings = act, settings",
    ),
    "gradients inside": problem(
        "torch.set_grad_enabled(True); x = x.detach().requires_grad_(); "
        "return torch.autograd.grad((x ** 3).sum(), x)[0]"
    ),
    "an input changed in place": CHANGING,
    "a changed input as its output": problem("x.relu_(); return x"),
    "much is printed": problem("print('x' * 1_000_000); return x * 2"),
}


@pytest.mark.parametrize("name", TAKEN)
async def test_an_odd_problem_is_judged(executor: Executor, name: str) -> None:
    asked = TAKEN[name]

    evaluation = await executor.evaluate(asked, copied(asked))

    assert isinstance(evaluation, Correct), evaluation


REFUSED = {
    "line 12: get_inputs returns a sparse tensor; return it dense": problem(
        inputs="[torch.randn(8, 8).to_sparse()]"
    ),
    "forward returns a sparse tensor": problem("return x.to_sparse()"),
    "line 12: get_inputs returns an argument of type float that changes from draw to draw": problem(
        "return x * s", "[torch.randn(8, 8), random.random()]", "x, s", "import random"
    ),
    "get_inputs returns arguments whose structure changes from draw to draw": problem(
        "return xs[0] * 2",
        "[[torch.randn(8)] * next(LENGTHS)]",
        "xs",
        "import itertools\nLENGTHS = itertools.count(1)",
    ),
    "get_inputs draws other values with the same seed; seed its generator by torch.initial_seed()": problem(
        inputs="[torch.from_numpy(RNG.standard_normal(64))]",
        top="import numpy\nRNG = numpy.random.default_rng(0)",
    ),
    "line 12: get_inputs returns a Tensor; return a list of the arguments": problem(
        inputs="torch.randn(8, 8)"
    ),
    "get_init_inputs returns something that cannot be sent to another process": problem(
        arguments="[lambda x: x]", parameters=", act"
    ),
    "get_inputs returns something that cannot be sent to another process": problem(
        inputs="[torch.randn(8, 8), open('/dev/null')]", given="x, file"
    ),
    "line 10: forward raised SystemExit": problem("raise SystemExit(3)"),
    "line 10: forward raised KeyboardInterrupt": problem("raise KeyboardInterrupt"),
    "line 3: the file raised SystemExit": problem(top="raise SystemExit('no')"),
    "line 3: the file raised KeyboardInterrupt": problem(top="raise KeyboardInterrupt"),
    "wrap code that needs gradients in `with torch.enable_grad": problem(
        "return torch.autograd.grad((x ** 3).sum(), x)[0]"
    ),
}


@pytest.mark.parametrize("said", REFUSED)
async def test_a_problem_that_cannot_be_judged_is_refused_in_a_sentence(
    executor: Executor, said: str
) -> None:
    with pytest.raises(ProblemError) as refused:
        await executor.describe(REFUSED[said])

    assert said in str(refused.value)


async def test_without_float64_the_reference_itself_is_the_oracle(executor: Executor) -> None:
    asked = problem(
        "return single(x)",
        top=(
            "def single(x):\n    if x.dtype == torch.float64:\n        raise KeyError('odd')\n"
            "    return x * 2\n"
        ),
    )

    reference = await executor.describe(asked)

    assert [True] == ["does not run in float64" in warning for warning in reference.warnings]


async def test_a_complex_result_that_is_a_little_off_passes_and_a_wrong_one_does_not(
    executor: Executor,
) -> None:
    asked = problem("return torch.fft.rfft(x)")

    close = await executor.evaluate(asked, copied(asked, "rfft(x)", "rfft(x * 3) / 3"))
    wrong = await executor.evaluate(asked, copied(asked, "rfft(x)", "rfft(x).conj()"))

    assert isinstance(close, Correct), close
    assert isinstance(wrong, Incorrect)


async def test_what_is_left_in_a_changed_input_is_judged_like_an_output(executor: Executor) -> None:
    leaving = copied(CHANGING, "x.mul_(2)", "x = x * 2")
    changing_more = copied(CHANGING, "return x + y", "y.add_(1)\n        return x + y - 1")

    left = await executor.evaluate(CHANGING, leaving)
    more = await executor.evaluate(CHANGING, changing_more)

    assert isinstance(left, Incorrect) and isinstance(more, Incorrect)
    assert left.error.startswith("input 0 after the call: wrong: ")
    assert "they equal input 0 as it was passed" in left.error
    assert "forward changed its input 1 in place" in more.error


async def test_results_by_name_may_come_in_any_order(executor: Executor) -> None:
    asked = problem("return {'sum': x + 1, 'product': x * 2}")
    turned = copied(asked, "{'sum': x + 1, 'product': x * 2}", "{'product': x * 2, 'sum': x + 1}")

    assert isinstance(await executor.evaluate(asked, turned), Correct)


async def test_an_unknown_language_is_the_candidates_fault(executor: Executor) -> None:
    evaluation = await executor.evaluate(
        PROBLEM, Candidate(language="fortran", source="ModelNew = 1")
    )

    assert isinstance(evaluation, BuildFailed)
    assert "no language 'fortran'" in evaluation.error


async def test_a_refused_problem_leaves_nothing_behind(executor: Executor) -> None:
    honest = as_candidate("cpp", FAULTS["honest"][0])
    telling = problem(
        "raise ValueError(__file__)",
        top="import pathlib, os",
        init="raise ValueError(' '.join(os.listdir(pathlib.Path(__file__).parent.parent)))",
    )

    async def folders() -> int:
        with pytest.raises(ProblemError) as refused:
            await executor.describe(telling)
        return str(refused.value).count("problem-")

    before = await folders()
    with pytest.raises(ProblemError):
        await executor.describe(problem("raise ValueError"))

    assert before == await folders()
    assert isinstance(await executor.evaluate(PROBLEM, honest), Correct)


async def test_settings_of_a_problem_hold_for_its_candidates_and_for_no_other_problem(
    executor: Executor,
) -> None:
    setting = "torch.set_default_dtype(torch.bfloat16)"
    strange = problem("return x + torch.ones(8)", top=setting)
    honest = as_candidate("cpp", FAULTS["honest"][0])

    found = await executor.evaluate(strange, copied(strange, setting, ""))

    assert isinstance(found, Correct), found
    assert isinstance(await executor.evaluate(PROBLEM, honest), Correct)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
async def test_eight_bit_floats_go_in_and_out(executor: Executor, kind: str) -> None:
    scaled = "(x.float() * self.scale.float()).to(x.dtype)"
    narrow = problem(
        f"return {scaled}",
        f"[torch.randn(64, 64).to(torch.{kind})]",
        init=f"self.scale = nn.Parameter(torch.rand(64).add(0.5).to(torch.{kind}), requires_grad=False)",
    )

    same = await executor.evaluate(narrow, copied(narrow))
    off = await executor.evaluate(
        narrow, copied(narrow, scaled, f"(1.3 * {scaled}.float()).to(x.dtype)")
    )
    zeros = await executor.evaluate(
        narrow, copied(narrow, scaled, "torch.zeros(64, 64).to(x.dtype)")
    )

    assert isinstance(same, Correct), same
    assert ("incorrect", "incorrect") == (off.status, zeros.status)


@pytest.mark.parametrize(
    ("hanging", "function"),
    [
        (problem(inputs="hang()", top="def hang():\n    while True: pass"), "get_inputs"),
        (problem("import time; time.sleep(600); return x"), "forward"),
    ],
    ids=["in get_inputs", "in forward"],
)
async def test_a_problem_that_never_returns_is_refused_and_the_device_is_free(
    hanging: Problem, function: str, judge_within: JudgeWithin
) -> None:
    executor = judge_within(Limits(timing_budget_s=0.1, problem_s=1.0))
    honest = as_candidate("cpp", FAULTS["honest"][0])

    with pytest.raises(ProblemError, match=f"odd: {function} did not return within 1 s"):
        await executor.describe(hanging)

    assert isinstance(await executor.evaluate(PROBLEM, honest), Correct)


TWO_WEIGHTS = problem(
    "return x * self.a + self.b",
    init="self.a = nn.Parameter(torch.randn(8)); self.b = nn.Parameter(torch.randn(8))",
)


@pytest.mark.parametrize(
    ("old", "new", "status", "warned"),
    [
        ("self.", "self.my_", "correct", "matched by order"),
        # One name agrees, so the other is not guessed.
        ("self.a", "self.c", "incorrect", "ModelNew lacks weights"),
        # The same names in another order.
        (
            "self.a = nn.Parameter(torch.randn(8)); self.b = nn.Parameter(torch.randn(8))",
            "self.b = nn.Parameter(torch.randn(8)); self.a = nn.Parameter(torch.randn(8))",
            "correct",
            "",
        ),
    ],
)
async def test_weights_go_by_name_where_any_name_agrees(
    executor: Executor, old: str, new: str, status: str, warned: str
) -> None:
    evaluation = await executor.evaluate(TWO_WEIGHTS, copied(TWO_WEIGHTS, old, new))

    assert status == evaluation.status, evaluation
    assert warned in " ".join(evaluation.warnings)
    assert warned or not any("weights" in warning for warning in evaluation.warnings)
