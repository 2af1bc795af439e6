"""Kernels of problems with `BACKWARD = True`: right and wrong gradients, and what is said of the wrong ones."""

from __future__ import annotations

import pytest

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Evaluation, Incorrect
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor
from stark.explain.evaluation import explain
from stark.languages import LANGUAGES
from support.candidates import as_candidate
from support.examples import gradient_example, guide_example
from support.sharing import JudgeWithin

pytest.importorskip("torch")

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROBLEM = Problem(
    name="gated_convolution",
    source="""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKWARD = True


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, width, groups=channels)

    def forward(self, x, gate):
        padded = F.pad(x.transpose(1, 2), (self.conv.kernel_size[0] - 1, 0))
        return F.silu(gate) * F.silu(self.conv(padded).transpose(1, 2))


def get_inputs():
    return [torch.randn(2, 16, 8), torch.randn(2, 16, 8)]


def get_init_inputs():
    return [8, 4]
""",
)

KERNEL = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def gated(x, gate, weight, bias):
    padded = F.pad(x.transpose(1, 2), (weight.shape[-1] - 1, 0))
    found = F.conv1d(padded, weight, bias, groups=weight.shape[0])
    return F.silu(gate) * F.silu(found.transpose(1, 2))


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate, weight, bias, module):
        ctx.save_for_backward(x, gate, weight, bias)
        return gated(x, gate, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, cotangent):
        x, gate, weight, bias = ctx.saved_tensors
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in (x, gate, weight, bias)]
            found = torch.autograd.grad(gated(*leaves), leaves, cotangent)
        return (*found, None)


class ModelNew(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, width, groups=channels)
        self.packed = None

    def forward(self, x, gate):
        weight = self.conv.weight
        return Gated.apply(x, gate, weight, self.conv.bias, self)
"""

SAVE = "ctx.save_for_backward(x, gate, weight, bias)"
LOAD = "x, gate, weight, bias = ctx.saved_tensors"
DONE = "return (*found, None)"
TAKE = "weight = self.conv.weight\n"

FAULTY = {
    "state on the module": (
        {SAVE: "ctx.module, module.kept = module, (x, gate)", LOAD: """
        x, gate = ctx.module.kept
        weight, bias = ctx.module.conv.weight, ctx.module.conv.bias"""},
        "with another forward between forward and backward, gradient of input 0 (x): wrong",
        "keep what backward needs in ctx, not on the module",
    ),
    "a weight that is not saved": (
        {SAVE: "ctx.save_for_backward(x, gate); ctx.module = module", LOAD: """
        x, gate = ctx.saved_tensors
        weight, bias = ctx.module.conv.weight.data, ctx.module.conv.bias.data"""},
        "after an input or a parameter changed in place between forward and backward, gradient of input 0 (x): wrong",
        "save tensors by ctx.save_for_backward, so that PyTorch raises an error",
    ),
    "a cotangent taken as contiguous": (
        {LOAD: LOAD + """
        strides = torch.empty(cotangent.shape).stride()
        cotangent = torch.as_strided(cotangent, cotangent.shape, strides)"""},
        "with a cotangent in other strides, as after a transpose, gradient of input 0 (x): wrong",
        "call .contiguous() on it",
    ),
    "a cotangent changed in place": (
        {LOAD: LOAD + "\n        cotangent.mul_(2)", DONE: "return (*(each / 2 for each in found), None)"},
        "the call changed the cotangent of output 0 in place, which the reference does not do",
        "",
    ),
    "outputs written in backward": (
        {"return gated(x, gate, weight, bias)\n\n    @": """out = torch.empty_like(x)
        ctx.later = out.detach()
        return out

    @""",
         LOAD: LOAD + "\n        ctx.later.copy_(gated(x, gate, weight, bias))"},
        "before backward ran, output 0: wrong",
        "compute all outputs in forward: a loss reads them before backward",
    ),
    "another result without gradients": (
        {"return Gated.apply(x, gate, weight, self.conv.bias, self)":
         "y = Gated.apply(x, gate, weight, self.conv.bias, self); return y if y.requires_grad else y * 2"},
        "under torch.no_grad(), output 0: wrong",
        "forward must return the same outputs whether or not gradients are enabled",
    ),
    "gradients in bfloat16": (
        {DONE: "return (*(each.bfloat16().float() for each in found), None)"},
        "gradient of input 0 (x): wrong",
        "the result was rounded to bfloat16",
    ),
    "no gradient of the bias": (
        {DONE: "return (*found[:3], None, None)"},
        "missing: gradient of conv.bias; the reference has it",
        "",
    ),
    "weights kept from the first call": (
        {TAKE: """if self.packed is None:
            self.packed = self.conv.weight.detach().clone()
        weight = self.conv.weight + (self.packed - self.conv.weight.detach())
"""},
        "after its weights were replaced by load_state_dict",
        "gradient of input 0 (x): wrong",
    ),
    "a detached input": (
        {"return Gated.apply(x, gate": "return gated(x.detach(), gate", ", self)": ")"},
        "missing: gradient of input 0 (x); the reference has it",
        "detached",
    ),
    "no gradients at all": (
        {TAKE: "x, gate, weight = x.detach(), gate.detach(), self.conv.weight.detach()\n",
         "self.conv.bias": "self.conv.bias.detach()"},
        "output 0 has no gradient: forward computes it without autograd",
        "torch.autograd.Function",
    ),
    "gradients that need each other": (
        {DONE: "return (*(each * min(ctx.needs_input_grad[:4]) for each in found), None)"},
        "while only inputs, or only parameters, required gradients, gradient of input 0 (x): wrong",
        "look at ctx.needs_input_grad",
    ),
    "saved tensors overwritten": (
        {DONE: "bias.data.zero_(); weight.data.zero_(); return (*found, None)",
         "Gated.apply(x, gate, weight, self.conv.bias, self)":
         "Gated.apply(x, gate, weight * 1, self.conv.bias * 1, self)"},
        "in the second backward with retain_graph=True, gradient of input 0 (x): wrong",
        "backward must leave the saved tensors as they are",
    ),
}  # fmt: skip
"""By fault: what is replaced in KERNEL, and what the judge says."""


def changed(replacements: dict[str, str]) -> Candidate:
    source = KERNEL
    for old, new in replacements.items():
        assert old in source
        source = source.replace(old, new)
    return as_candidate("pytorch", source)


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.05))


async def judged(executor: Executor, problem: Problem, source: str) -> Evaluation:
    return await executor.evaluate(problem, as_candidate("pytorch", source))


async def test_a_kernel_with_right_gradients_is_correct(executor: Executor) -> None:
    evaluation = await executor.evaluate(PROBLEM, changed({}))

    assert isinstance(evaluation, Correct), evaluation


@pytest.mark.parametrize("name", FAULTY)
async def test_a_kernel_with_wrong_gradients_is_incorrect(executor: Executor, name: str) -> None:
    replacements, said, advice = FAULTY[name]

    evaluation = await executor.evaluate(PROBLEM, changed(replacements))

    assert isinstance(evaluation, Incorrect), evaluation
    assert said in evaluation.error
    assert advice in evaluation.error


async def test_without_the_constant_gradients_do_not_count(executor: Executor) -> None:
    forward = PROBLEM.model_copy(update={"source": PROBLEM.source.replace("BACKWARD = True", "")})
    replacements, _, _ = FAULTY["no gradients at all"]

    evaluation = await executor.evaluate(forward, changed(replacements))

    assert isinstance(evaluation, Correct), evaluation


def small_example(language: str) -> tuple[Problem, str]:
    """The problem of the guides, small and with gradients, and the example with gradients."""
    problem, _ = guide_example(LANGUAGES[language])
    source = problem.source.replace("ROWS = 4096", "ROWS = 40").replace("= 1000", "= 24")
    taught, _ = LANGUAGES[language]._on_gradients()
    return Problem(name="small", source=source).with_backward(), gradient_example(taught)


async def test_the_guides_example_with_gradients_is_correct(executor: Executor) -> None:
    evaluation = await judged(executor, *small_example("pytorch"))

    assert isinstance(evaluation, Correct), evaluation


@pytest.mark.long
async def test_the_final_check_tries_other_shapes_and_compiles_the_reference_backward_too(
    executor: Executor,
) -> None:
    problem, kernel = small_example("cpp")

    evaluation = await executor.evaluate(
        problem, Candidate(language="cpp", source=kernel), "promote"
    )

    assert isinstance(evaluation, Correct), evaluation
    assert {"eager", "compile"} == evaluation.references.keys()
    assert evaluation.generalizes


@pytest.mark.long
async def test_a_memory_error_in_backward_is_found(judge_within: JudgeWithin) -> None:
    problem, kernel = small_example("cpp")
    beyond = kernel.replace("float shared = 0.0f;", "float shared = given[columns] == 12345.5f;")
    assert beyond != kernel
    executor = judge_within(Limits(timing_budget_s=0.05), sanitizer=True)

    evaluation = await executor.evaluate(
        problem, Candidate(language="cpp", source=beyond), "promote"
    )

    assert isinstance(evaluation, Incorrect), evaluation
    assert "buffer-overflow: read of 4 bytes at line" in evaluation.error


ATTENTION = Problem(
    name="attention",
    source="""
import torch
import torch.nn as nn
import torch.nn.functional as F

BACKWARD = True


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.unused = nn.Parameter(torch.randn(3))
        self.frozen = nn.Parameter(torch.randn(32), requires_grad=False)

    def forward(self, x, positions, mask, rotary):
        q, k, v = (each.unflatten(-1, (2, 16)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k + rotary, v, attn_mask=mask)
        y = y.transpose(1, 2).flatten(2) + self.frozen
        return y, None, {"next": positions + 1, "mean": y.mean()}


def get_inputs():
    return [
        torch.randn(2, 16, 32, requires_grad=True),
        torch.arange(16),
        torch.ones(16, 16, dtype=torch.bool).tril(),
        torch.randn(16, 16),
    ]


def get_init_inputs():
    return []
""",
)
"""The bias of its keys has a gradient of zero. One output has no gradient, and neither have a parameter, the mask and the
rotary table, since only `x` is marked."""


async def test_gradients_may_be_zero_missing_or_not_asked_for(executor: Executor) -> None:
    source = ATTENTION.source.replace("class Model(", "class ModelNew(")

    right = await judged(executor, ATTENTION, source)
    extra = await judged(
        executor, ATTENTION, source.replace("y.mean()", "(y + 0 * self.unused[0]).mean()")
    )
    flipped = await judged(executor, ATTENTION, source.replace("y.mean()", "y.mean().detach()"))

    assert isinstance(right, Correct), right
    assert isinstance(extra, Incorrect)
    assert "not in the reference: gradient of unused; return None for it" in extra.error
    assert isinstance(flipped, Incorrect)
    assert "output 1 has no gradient" in flipped.error, "keys are sorted"


async def test_a_reference_that_computes_again_in_backward_can_be_met(executor: Executor) -> None:
    """A checkpoint reads its input again, which may have changed: then that way of calling is not tried."""
    again = "checkpoint(lambda t: F.silu(self.conv(t)), padded, use_reentrant=False)"
    source = PROBLEM.source.replace("F.silu(self.conv(padded))", again).replace(
        "BACKWARD", "from torch.utils.checkpoint import checkpoint\n\nBACKWARD"
    )
    problem = Problem(name="again", source=source)

    evaluation = await judged(executor, problem, source.replace("class Model(", "class ModelNew("))

    assert isinstance(evaluation, Correct), evaluation


async def test_an_input_without_a_gradient_may_be_changed_in_place(executor: Executor) -> None:
    source = PROBLEM.source.replace("torch.randn(2, 16, 8)]", "torch.zeros(2, 16, 8)]").replace(
        "[torch.randn(2, 16, 8),", "[torch.randn(2, 16, 8, requires_grad=True),"
    )
    source = source.replace(
        "return F.silu(gate) *", "gate.copy_(x.detach())\n        return F.sigmoid(x) *"
    )
    problem = Problem(name="in_place", source=source)

    evaluation = await judged(executor, problem, source.replace("class Model(", "class ModelNew("))

    assert isinstance(evaluation, Correct), evaluation


async def test_the_reference_is_described_without_cotangents(executor: Executor) -> None:
    reference = await executor.describe(PROBLEM)

    assert ["float32[2, 16, 8]"] * 2 == list(map(str, reference.inputs))
    assert ["float32[2, 16, 8]"] == list(map(str, reference.outputs))
    assert 5 == len(reference.error_budgets)


REFUSED = {
    "BACKWARD = True, but no output has a gradient": "return x.argmax(-1)",
    "line 9: forward raised RuntimeError: a leaf Variable that requires grad is being used in an in-place operation. "
    "(forward must not change in place what requires gradients": "return x.mul_(2)",
}


@pytest.mark.parametrize("said", REFUSED)
async def test_a_problem_without_gradients_is_refused(executor: Executor, said: str) -> None:
    problem = Problem(
        name="refused",
        source=(
            "import torch\nimport torch.nn as nn\n\nBACKWARD = True\n\n\nclass Model(nn.Module):\n"
            f"    def forward(self, x):\n        {REFUSED[said]}\n\n"
            "def get_inputs():\n    return [torch.randn(4, 8)]\n\ndef get_init_inputs():\n    return []\n"
        ),
    )

    with pytest.raises(ProblemError) as refused:
        await executor.describe(problem)

    assert said in str(refused.value)


async def test_gradients_are_verified_in_every_case(executor: Executor) -> None:
    cases = PROBLEM.source.replace("def get_inputs():", 'def get_inputs(case="short"):')
    cases = cases.replace("2, 16, 8", '2, {"short": 16, "long": 40}[case], 8')
    problem = Problem(name="cases", source=f'{cases}\nCASES = {{"short": 1.0, "long": 2.0}}\n')
    short = "return (*(each * (1 + (x.shape[1] > 16)) for each in found), None)"

    right = await executor.evaluate(problem, changed({}))
    wrong = await executor.evaluate(problem, changed({DONE: short}))

    assert isinstance(right, Correct), right
    assert {"short", "long"} == right.cases.keys()
    assert isinstance(wrong, Incorrect), wrong
    assert "case long: gradient of input 0 (x): wrong" in explain(wrong)
    assert "got = 2 * expected" in wrong.error
