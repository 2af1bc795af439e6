"""What the judge makes of problems and candidates, on a CPU, through the local executor."""

from __future__ import annotations

import asyncio
import fcntl

import pytest
import pytest_asyncio

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import BuildFailed, Correct, Evaluation, Incorrect, Untimed
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, RequestingExecutor
from stark.evaluator.judge.building.cache import cache_folder, locks_below
from stark.evaluator.judge.lock import Slots
from stark.explain.evaluation import evidence, explain
from stark.languages import language
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.examples import guide_example
from support.sharing import JudgeWithin

pytest.importorskip("torch")

pytestmark = pytest.mark.asyncio(loop_scope="session")

HONEST = FAULTS["honest"][0]


def problem(body: str, inputs: str = "[torch.randn(8, 8)]", init: str = "pass") -> Problem:
    return Problem(
        name="made_up",
        source=(
            "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n        {init}\n"
            f"    def forward(self, x):\n        {body}\n\n"
            f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
        ),
    )


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.1))


async def test_the_reference_is_described(executor: Executor) -> None:
    reference = await executor.describe(PROBLEM)

    assert "cpu" == reference.device.kind
    assert ["float32[64, 256]"] == [str(spec) for spec in reference.inputs]
    assert ["float32[64, 256]"] == [str(spec) for spec in reference.outputs]
    assert 2 * 64 * 256 * 4 + 256 * 4 == reference.roofline.least_bytes
    assert reference.eager.latency_ms > 0


async def test_operations_are_counted(executor: Executor) -> None:
    product = problem("return x @ x")

    reference = await executor.describe(product)

    assert 2 * 8**3 == reference.roofline.flops


async def test_a_check_times_nothing(executor: RequestingExecutor) -> None:
    right, wrong, elsewhere = [
        await executor.check(PROBLEM, as_candidate(name, source))
        for name, source in (
            ("pytorch", HONEST),
            ("pytorch", FAULTS["wrong everywhere"][0]),
            ("triton", HONEST),
        )
    ]

    assert isinstance(right, Untimed) and right.accuracy.relative_rms < 1e-6
    assert {"static", "build", "load", "verify"} == set(right.seconds)
    assert "incorrect" == wrong.status and "time" not in wrong.seconds
    assert "unusable" == elsewhere.status and "cannot run triton" in evidence(elsewhere)


async def test_a_race_verifies_on_the_problems_own_inputs_and_takes_no_profile(
    executor: Executor,
) -> None:
    stale = HONEST.replace(
        "        return torch.relu(x) * self.scale",
        "        self.kept = getattr(self, 'kept', self.scale.detach().clone())\n"
        "        return torch.relu(x) * self.kept",
    )
    assert stale != HONEST
    honest, special, wrong = [
        await executor.evaluate(PROBLEM, as_candidate("pytorch", source), "race")
        for source in (HONEST, stale, FAULTS["wrong everywhere"][0])
    ]

    assert isinstance(honest, Correct) and "race" == honest.effort
    assert {"static", "build", "load", "verify", "time"} == set(honest.seconds)
    assert honest.speedup_vs("eager").ratio > 0 and honest.profile is None
    assert isinstance(special, Correct), "only a search replaces weights"
    searched = await executor.evaluate(PROBLEM, as_candidate("pytorch", stale))
    assert "incorrect" == searched.status
    assert "incorrect" == wrong.status


async def test_a_declaration_that_cannot_be_used_is_in_the_evidence(executor: Executor) -> None:
    source = f"BLOCK = 64  # tune: 32, 128\n{HONEST}"

    evaluation = await executor.evaluate(PROBLEM, as_candidate("pytorch", source), "race")

    assert any("lack its own, 64" in warning for warning in evaluation.warnings)
    assert "`# tune:` is ignored" in explain(evaluation)


async def test_pytorch_alone_is_a_language(executor: Executor) -> None:
    example = guide_example(language("pytorch"))
    # Without a compiler, which takes 20 s. A GPU's test has the example as it is.
    source = example.candidate.source.replace("dynamic=False", 'backend="eager"')
    smaller = example.problem.source.replace("ROWS = 4096", "ROWS = 64")
    assert source != example.candidate.source and smaller != example.problem.source
    few = example.problem.model_copy(update={"source": smaller})

    evaluation = await executor.evaluate(few, as_candidate("pytorch", source))

    assert isinstance(evaluation, Correct), evaluation


async def test_a_first_call_that_compiles_has_a_builds_deadline(judge_within: JudgeWithin) -> None:
    slow_at_first = HONEST.replace(
        "        return torch.relu",
        "        if not hasattr(self, 'ready'):\n            import time; time.sleep(3); self.ready = 1\n"
        "        return torch.relu",
    )
    executor = judge_within(Limits(timing_budget_s=0.1, verify_s=2.0))

    tuned = await executor.evaluate(PROBLEM, as_candidate("pytorch", slow_at_first))
    built = await executor.evaluate(PROBLEM, as_candidate("cpp", slow_at_first))

    assert ("correct", "timed_out") == (tuned.status, built.status)


async def test_the_guides_example_is_correct(executor: Executor) -> None:
    example = guide_example(language("cpp"))

    evaluation = await executor.evaluate(example.problem, example.candidate)

    assert isinstance(evaluation, Correct), evaluation
    assert "float64" == evaluation.accuracy.oracle
    assert evaluation.accuracy.allclose


async def test_a_looser_precision_admits_what_the_default_refuses(
    judge_within: JudgeWithin,
) -> None:
    rounded = as_candidate(
        "cpp",
        HONEST.replace(
            "return torch.relu(x)",
            "x = ((x.view(torch.int32) + 4096) & -8192).view(torch.float32)\n"
            "        return torch.relu(x)",
        ),
    )
    strict = judge_within(Limits(timing_budget_s=0.1))
    loose = judge_within(Limits(timing_budget_s=0.1, precision="tf32"))

    refused = await strict.evaluate(PROBLEM, rounded)
    admitted = await loose.evaluate(PROBLEM, rounded)
    exact = await loose.evaluate(PROBLEM, as_candidate("cpp", HONEST))

    assert isinstance(refused, Incorrect), refused
    assert "allowed 2e-05" in refused.error
    assert isinstance(admitted, Correct), admitted
    assert ("tf32", "tf32") == (admitted.accuracy.precision, admitted.accuracy.meets)
    assert 1e-4 < admitted.accuracy.relative_rms < admitted.accuracy.budget == 1e-3
    assert isinstance(exact, Correct), exact
    assert ("tf32", "reference") == (exact.accuracy.precision, exact.accuracy.meets)
    reference = await loose.describe(PROBLEM)
    assert ("tf32", (1e-3,)) == (reference.precision, reference.error_budgets)


async def test_a_build_error_is_the_compilers_own(executor: Executor) -> None:
    example = guide_example(language("cpp"))
    broken = example.candidate.source.replace("float total = 0.0f;", "flaot total = 0.0f;")
    candidate = example.candidate.model_copy(update={"source": broken})

    evaluation = await executor.evaluate(example.problem, candidate)

    assert isinstance(evaluation, BuildFailed)
    first = next(line for line in evaluation.error.splitlines() if "error:" in line)
    assert "flaot" in first
    assert not first.startswith("/")


LATE = """
import torch.nn as nn
import tvm_ffi.cpp

KERNELS = r'''
void fill(float* to) {
  flaot total = 0;
}
'''

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()

    def forward(self, x):
        return tvm_ffi.cpp.load_inline("fill", cpp_sources=KERNELS, functions=[]).fill(x)
"""


async def test_what_does_not_compile_when_it_is_first_called_is_a_build_that_failed(
    executor: Executor,
) -> None:
    evaluation = await executor.evaluate(PROBLEM, as_candidate("cpp", LATE))

    assert isinstance(evaluation, BuildFailed), evaluation
    first = evaluation.error.splitlines()[0]
    assert "flaot" in first
    assert first.endswith("(line 7 of the file)")


async def test_weights_of_other_names_are_matched_by_order(executor: Executor) -> None:
    renamed = HONEST.replace("self.scale", "self.other")

    evaluation = await executor.evaluate(PROBLEM, as_candidate("cpp", renamed))

    assert "correct" == evaluation.status
    assert any("matched by order" in warning for warning in evaluation.warnings)


async def test_a_candidate_without_the_weights_is_told_so(executor: Executor) -> None:
    without = HONEST.replace("nn.Parameter(torch.randn(features))", "torch.randn(features)")

    evaluation = await executor.evaluate(PROBLEM, as_candidate("cpp", without))

    assert "incorrect" == evaluation.status  # the initial values are not what it is judged with
    assert any("lacks weights" in warning for warning in evaluation.warnings)


async def test_a_candidate_sees_no_secrets_and_no_network(executor: Executor) -> None:
    nosy = HONEST.replace(
        "        return torch.relu(x) * self.scale",
        "        import os, socket\n"
        "        assert not any('KEY' in name for name in os.environ), 'a key'\n"
        "        try:\n"
        "            socket.create_connection(('127.0.0.1', 9), timeout=1)\n"
        "        except ConnectionRefusedError:\n"
        "            raise AssertionError('a network')\n"
        "        except OSError:\n"
        "            pass\n"
        "        return torch.relu(x) * self.scale",
    )

    evaluation = await executor.evaluate(PROBLEM, as_candidate("cpp", nosy))

    assert "correct" == evaluation.status, evaluation


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (problem("return x @ torch.ones(3)"), "line 9: forward raised RuntimeError"),
        (problem("return x", init="self.y = 1 / 0"), "line 7: Model raised ZeroDivisionError"),
        (problem("return x", inputs="[undefined]"), "get_inputs raised NameError"),
        (problem("return 3"), "forward returns a int"),
        (problem("return x + torch.rand(8, 8)"), "different values for the same inputs"),
    ],
)
async def test_a_bad_problem_is_refused_with_its_line(
    executor: Executor, bad: Problem, said: str
) -> None:
    with pytest.raises(ProblemError, match=said):
        await executor.describe(bad)


async def test_nested_and_integer_outputs_are_judged(executor: Executor) -> None:
    nested = problem("return {'a': x * 2, 'b': (x.argmax(dim=1), x > 0)}")
    same = nested.source.replace("class Model(", "class ModelNew(")
    wrong = same.replace("x > 0", "x >= -1")

    right_one = await executor.evaluate(nested, as_candidate("cpp", same))
    wrong_one = await executor.evaluate(nested, as_candidate("cpp", wrong))

    assert "correct" == right_one.status, right_one
    assert "incorrect" == wrong_one.status


async def test_what_a_candidate_prints_is_kept(executor: Executor) -> None:
    speaking = HONEST.replace(
        "    def forward(self, x):", "    def forward(self, x):\n        print('hello')"
    )

    evaluation = await executor.evaluate(PROBLEM, as_candidate("cpp", speaking))

    assert evaluation.output.startswith("hello")


@pytest.mark.parametrize(
    "result",
    ["torch.exp(x * 100)", "tuple(x + i for i in range(40))", "x.double() * 1e200"],
)
async def test_the_reference_itself_is_correct(executor: Executor, result: str) -> None:
    asked = problem(f"return {result}")
    same = asked.source.replace("class Model(", "class ModelNew(")

    evaluation = await executor.evaluate(asked, as_candidate("cpp", same))

    assert "correct" == evaluation.status, evaluation


SHAPED = Problem(
    name="shaped",
    source="""
import torch
import torch.nn as nn

rows = 48
columns = 200

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
""",
)


SHAPED_AGAIN = SHAPED.source.replace("class Model(", "class ModelNew(")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def promoted(executor: Executor) -> tuple[Evaluation, bool]:
    """A final check, and whether it kept the machine's other judges from building. The compiler takes it 20 s."""
    Slots(folder := locks_below(cache_folder()), "another", 1)
    checking = asyncio.create_task(
        executor.evaluate(SHAPED, as_candidate("cpp", SHAPED_AGAIN), "promote")
    )
    held = False

    with (folder / "another.slot-0").open() as place:
        while not (held or checking.done()):
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(place, fcntl.LOCK_UN)
            except BlockingIOError:
                held = True
            await asyncio.sleep(0.05)

    return await checking, held


async def test_nothing_is_built_on_the_machine_during_a_final_check(
    promoted: tuple[Evaluation, bool],
) -> None:
    evaluation, held = promoted

    assert isinstance(evaluation, Correct), evaluation
    assert held


async def test_promotion_measures_against_the_compiler_and_tries_other_shapes(
    executor: Executor, promoted: tuple[Evaluation, bool]
) -> None:
    general, _ = promoted
    only_here = SHAPED_AGAIN.replace("relu(x) + 1", "relu(x.reshape(48, 200)) + 1")

    special = await executor.evaluate(SHAPED, as_candidate("cpp", only_here), "promote")

    assert isinstance(general, Correct), general
    assert ["eager", "compile"] == list(general.references)
    assert "promote" == general.effort
    assert general.generalizes is True and "rows = 25" in general.shapes_tried
    assert isinstance(special, Correct), special
    assert special.generalizes is False
    assert "shape-specialized: crashed with rows = 25" in special.warnings


RACES = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = torch.relu(x) + 1
        return y + 1 if self.calls == 12 else y
"""


async def test_promotion_calls_more_often_so_that_rare_faults_show(executor: Executor) -> None:
    found = await executor.evaluate(SHAPED, as_candidate("cpp", RACES), "promote")

    assert isinstance(found, Incorrect), found
    assert "time" not in found.seconds


EARLY = """
import torch
import torch.nn as nn
import tvm_ffi.cpp

KERNELS = r'''
using tvm::ffi::TensorView;

void above(TensorView x, TensorView out) {
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) {
    to[i] = std::max(from[i], from[i - 1] == 12345.0f ? 1.0f : 0.0f) + 1;
  }
}
'''

kernels = tvm_ffi.cpp.load_inline("above", cpp_sources=KERNELS, functions=["above"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernels.above(x, out)
        return out
"""


async def test_a_candidate_that_reads_before_its_input_is_incorrect_at_promotion(
    judge_within: JudgeWithin,
) -> None:
    executor = judge_within(Limits(timing_budget_s=0.1), sanitizer=True)

    searched = await executor.evaluate(SHAPED, Candidate(language="cpp", source=EARLY))
    found = await executor.evaluate(SHAPED, Candidate(language="cpp", source=EARLY), "promote")

    assert isinstance(searched, Correct), searched
    assert isinstance(found, Incorrect), found
    assert "read of 4 bytes at line 13 of the file (`to[i] = std::max(" in found.error
    assert "4 bytes before the start of the input float32[" in found.error
