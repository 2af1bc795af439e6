"""The judge on a CUDA device: guides' examples, memory over IPC, and faults that only a device has."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import BuildFailed, Correct
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, open_executor
from stark.languages import LANGUAGES
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.examples import gradient_example, guide_example

pytest.importorskip("torch")

pytestmark = [pytest.mark.gpu, pytest.mark.asyncio(loop_scope="module")]

LIMITS = Limits(build_s=90.0, verify_s=8.0, timing_budget_s=0.5, memory_gb=8.0)

PRECISE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(1024, 1024), torch.randn(1024, 1024)]

def get_init_inputs():
    return []
"""

LARGE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)

def get_inputs():
    return [torch.rand(1 << 26)]

def get_init_inputs():
    return []
"""

ASTRAY = "x[torch.full((64,), 1 << 20, device=x.device)]"
"""Indices out of range, which a kernel asserts: after that, every call of its process fails."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def executor() -> AsyncIterator[Executor]:
    judge = open_executor("local:cuda:0", LIMITS)
    yield judge
    await judge.close()


@pytest.mark.parametrize(
    "name", [entry.name for entry in LANGUAGES.values() if "cuda" in entry.device_kinds]
)
async def test_the_guides_examples_are_correct_and_faster(executor: Executor, name: str) -> None:
    example = guide_example(LANGUAGES[name])
    if (lacking := LANGUAGES[name].missing()) is not None:
        pytest.skip(lacking)

    evaluation = await executor.evaluate(example.problem, example.candidate)

    assert isinstance(evaluation, Correct), evaluation
    assert evaluation.speedup_vs("eager").low > 1


async def test_tf32_is_refused_where_the_reference_does_not_use_it(executor: Executor) -> None:
    problem = Problem(name="product", source=PRECISE)
    same = PRECISE.replace("class Model(", "class ModelNew(")
    rough = same.replace("return a @ b", "return (a.half() @ b.half()).float()")
    tf32 = same.replace(
        "import torch\n", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n", 1
    )

    found = [
        (await executor.evaluate(problem, as_candidate("triton", source))).status
        for source in (same, tf32, rough)
    ]

    assert ["correct", "incorrect", "incorrect"] == found


async def test_the_reference_against_itself_is_within_a_percent(executor: Executor) -> None:
    # Ratios of identical programs: 0.986 to 1.014 in 51 windows with 2^26 elements, 0.996 to 1.005 in 30 with 2^28.
    source = LARGE.replace("1 << 26", "1 << 28")
    problem = Problem(name="sigmoid", source=source)
    same = source.replace("class Model(", "class ModelNew(")

    evaluation = await executor.evaluate(problem, as_candidate("triton", same))

    assert isinstance(evaluation, Correct)
    assert 1.0 == pytest.approx(evaluation.speedup_vs("eager").ratio, abs=0.01)
    assert "device_events" == evaluation.candidate.clock


@pytest.mark.parametrize("name", ["loops forever in a kernel", "exhausts memory", "segfaults"])
async def test_faults_leave_the_device_to_the_next(executor: Executor, name: str) -> None:
    source, status = FAULTS[name]

    evaluation = await executor.evaluate(PROBLEM, as_candidate("triton", source))
    honest = await executor.evaluate(PROBLEM, as_candidate("triton", FAULTS["honest"][0]))

    assert status == evaluation.status
    assert "correct" == honest.status


SMALL_CARD_GB = 24
ON_A_SMALL_CARD = LARGE.replace("1 << 26", "1 << 29")
"""Two gigabytes of inputs and two of outputs."""


async def test_a_card_of_24_gb_judges_gigabytes() -> None:
    import torch

    free, _ = torch.cuda.mem_get_info()
    rest = free - SMALL_CARD_GB * 10**9
    if rest < 0:
        pytest.skip("the device is no larger than that")
    taken = torch.empty(rest, dtype=torch.uint8, device="cuda")
    alone = open_executor("local:cuda:0", LIMITS)
    problem = Problem(name="gigabytes", source=ON_A_SMALL_CARD)
    same = ON_A_SMALL_CARD.replace("class Model(", "class ModelNew(")

    found = await alone.evaluate(problem, as_candidate("triton", same))

    await alone.close()
    del taken
    torch.cuda.empty_cache()
    assert isinstance(found, Correct), found
    assert "float64" == found.accuracy.oracle


KERNEL = """
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def scaled(x, y, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    found = tl.load(x + places)
    {line}
    tl.store(y + places, found)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()

    def forward(self, x):
        y = x.new_zeros(x.shape)
        scaled[(1,)](x, y, {block})
        return y
"""


@pytest.mark.parametrize(
    ("line", "block", "said"),
    [
        ("pass", 100, "line 8 of the file"),
        ("tl.static_assert(BLOCK == 1, 'too many')", 64, "too many"),
        (
            "found = tl.inline_asm_elementwise('nonsense $0, $1;', '=f,f', [found], tl.float32, True, 1)",
            64,
            "nonsense",
        ),
    ],
)
async def test_what_triton_cannot_compile_is_a_build_that_failed(
    executor: Executor, line: str, block: int, said: str
) -> None:
    source = KERNEL.format(line=line, block=block)

    evaluation = await executor.evaluate(PROBLEM, as_candidate("triton", source))

    assert isinstance(evaluation, BuildFailed), evaluation
    assert said in evaluation.error


async def test_the_final_check_measures_both_compilers_and_other_shapes(executor: Executor) -> None:
    honest = as_candidate("triton", FAULTS["honest"][0])

    found = await executor.evaluate(PROBLEM, honest, "promote")

    assert isinstance(found, Correct), found
    assert {"eager", "compile", "max-autotune"} == set(found.references), found.warnings


async def test_a_kernels_assertion_ends_the_candidate_alone(executor: Executor) -> None:
    source, _ = FAULTS["honest"]
    astray = as_candidate("triton", source.replace("torch.relu(x)", f"torch.relu({ASTRAY})"))

    evaluation = await executor.evaluate(PROBLEM, astray)
    honest = await executor.evaluate(PROBLEM, as_candidate("triton", source))

    assert "crashed" == evaluation.status
    assert "correct" == honest.status


async def test_a_kernels_assertion_in_a_problem_is_blamed_on_it_and_on_no_other(
    executor: Executor,
) -> None:
    source = PROBLEM.source.replace("torch.relu(x)", f"torch.relu({ASTRAY})")

    with pytest.raises(ProblemError, match="forward raised"):
        await executor.describe(Problem(name="astray", source=source))
    honest = await executor.evaluate(PROBLEM, as_candidate("triton", FAULTS["honest"][0]))

    assert "correct" == honest.status


THREADS = """
import pathlib
states = set()
for task in pathlib.Path("/proc/self/task").iterdir():
    lines = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines() if ":" in line)
    names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters")
    said = [lines.get(name, "").strip() for name in names]
    states.add((*said, (task / "mountinfo").read_text()))
count = len(list(pathlib.Path("/proc/self/task").iterdir()))
print("threads", count, "states", len(states), "caps", {state[2] for state in states}, flush=True)
"""


async def test_a_drivers_threads_are_confined_like_the_first_one(executor: Executor) -> None:
    found = await executor.evaluate(PROBLEM, as_candidate("triton", THREADS + FAULTS["honest"][0]))

    assert isinstance(found, Correct), found
    said = found.output.split()
    assert int(said[1]) > 1, "the driver has threads of its own"
    assert said[2:4] == ["states", "1"], found.output
    assert "0000000000000000" in found.output


TUTORIAL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.runtime import driver

DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROCESSORS = driver.active.utils.get_device_properties(DEVICE.index)["multiprocessor_count"]


{tuned}
@triton.jit
def scaled_kernel(x_ptr, scale_ptr, out_ptr, n, columns, BLOCK: tl.constexpr):
    for first in tl.range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        scale = tl.load(scale_ptr + at % columns, mask=at < n)
        tl.store(out_ptr + at, tl.where(x < 0, 0.0, x) * scale, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        out = torch.empty_like(x)
        scaled_kernel[(PROCESSORS,)](x, self.scale, out, x.numel(), x.shape[-1]{block})
        return out
"""

TUNED = """@triton.autotune(
    [
        triton.Config({"BLOCK": 2**power}, num_warps=warps, num_stages=stages)
        for power in (6, 7, 8, 9, 10)
        for warps in (1, 2, 4, 8)
        for stages in (1, 2)
    ],
    key=["n"],
)"""


@pytest.mark.parametrize(("tuned", "block"), [("", ", BLOCK=256"), (TUNED, "")])
async def test_triton_as_its_tutorials_write_it_is_judged(
    executor: Executor, tuned: str, block: str
) -> None:
    source = TUTORIAL.replace("{tuned}", tuned).replace("{block}", block)

    found = await executor.evaluate(PROBLEM, Candidate(language="triton", source=source))

    assert isinstance(found, Correct), found


FLOAT8 = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return {reference}

def get_inputs():
    return [torch.randn(1024, 1024){kind} for _ in range(2)]

def get_init_inputs():
    return []
"""

FLOAT8_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, n, inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    columns = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, inner, K):
        k = first + tl.arange(0, K)
        a = tl.load(a_ptr + rows * inner + k[None, :])
        b = tl.load(b_ptr + columns * inner + k[:, None])
        total += tl.dot(a, b)
    tl.store(out_ptr + rows * n + columns, total.to(tl.bfloat16))


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        out = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=a.device)
        grid = len(a) // 64, len(b) // 64
        product_kernel[grid](a, b, out, len(b), a.shape[1], M=64, N=64, K=64)
        return out
"""


@pytest.mark.parametrize(
    ("kind", "reference", "status"),
    [
        (".to(torch.float8_e4m3fn)", "a.bfloat16() @ b.bfloat16().T", "correct"),
        (".bfloat16()", "a @ b.T", "incorrect"),
    ],
    ids=["of float8 inputs", "of bfloat16 inputs"],
)
async def test_a_product_in_float8_is_right_where_its_inputs_are(
    executor: Executor, kind: str, reference: str, status: str
) -> None:
    source = FLOAT8.replace("{kind}", kind).replace("{reference}", reference)
    problem = Problem(name="float8", source=source)

    found = await executor.evaluate(problem, Candidate(language="triton", source=FLOAT8_KERNEL))

    assert status == found.status, found


async def test_a_graph_in_pytorch_alone_is_judged(executor: Executor) -> None:
    source = FAULTS["honest"][0].replace(
        "        return torch.relu(x) * self.scale",
        """        if not hasattr(self, "graph"):
            self.x = x.clone()
            torch.relu(self.x) * self.scale
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.answer = torch.relu(self.x) * self.scale
        self.x.copy_(x)
        self.graph.replay()
        return self.answer.clone()""",
    )

    found = await executor.evaluate(PROBLEM, as_candidate("pytorch", source))

    assert isinstance(found, Correct), found


async def test_a_workspace_of_most_of_the_card_is_out_of_memory_and_the_judge_lives(
    executor: Executor,
) -> None:
    honest = FAULTS["honest"][0]
    greedy = honest.replace(
        "        return torch.relu",
        "        free, whole = torch.cuda.mem_get_info()\n"
        "        self.workspace = torch.empty(int(0.8 * whole), dtype=torch.uint8, device=x.device)\n"
        "        return torch.relu",
    )

    found = await executor.evaluate(PROBLEM, as_candidate("pytorch", greedy))
    after = await executor.evaluate(PROBLEM, as_candidate("pytorch", honest))

    assert found.status in ("out_of_memory", "correct"), found
    assert "correct" == after.status


@pytest.mark.parametrize("name", ("pytorch", "triton"))
async def test_gradients_are_verified_and_timed(executor: Executor, name: str) -> None:
    problem = guide_example(LANGUAGES[name]).problem.with_backward()
    taught, _ = LANGUAGES[name]._on_gradients()
    kernel = gradient_example(taught)
    wrong = kernel.replace("return of_x if", "return of_x * 1.01 if")
    assert kernel != wrong

    right, refused = [
        await executor.evaluate(problem, as_candidate(name, source)) for source in (kernel, wrong)
    ]

    assert isinstance(right, Correct), right
    assert "incorrect" == refused.status
