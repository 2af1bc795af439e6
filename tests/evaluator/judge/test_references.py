"""References in processes of their own, with what a device does to them, told by stand-ins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.errors import ProblemError
from stark.core.judging import Limits
from stark.evaluator.judge import machine
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Program
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.room import Room
from stark.evaluator.judge.running import queues, start_reference
from support.candidates import PROBLEM
from support.nodes import DEVICE


class Child:
    """Does as it is asked until it is called for the `fails_at`-th time."""

    def __init__(self, fails_at: int = -1) -> None:
        self.asked: list[str] = []
        self.closed = False
        self._fails_at = fails_at

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.asked.append(request["do"])
        if self.asked.count("call") == self._fails_at:
            raise ChildFailed("crashed", "the graph cannot be recorded")
        return {}

    def close(self) -> None:
        self.closed = True


def start(child: Child, name: str, folder: Path) -> Any:
    arena = SimpleNamespace(descriptor=None)
    program: Any = SimpleNamespace(
        problem=PROBLEM, device=torch.device("cpu"), path=folder / "problem.py"
    )
    shared: Any = SimpleNamespace(
        program=program, folder=folder, arena=arena, load=lambda *_: {}, files=()
    )
    forkserver: Any = SimpleNamespace(fork=lambda *_: child)
    return start_reference(name, forkserver, shared, Limits())


def test_a_compiled_reference_is_called_until_its_graphs_are_replayed(tmp_path: Path) -> None:
    compiled, eager = Child(), Child()

    start(compiled, "max-autotune", tmp_path)
    start(eager, "eager", tmp_path)

    assert ["compile", "call", "call", "call"] == compiled.asked
    assert ["call"] == eager.asked


def test_one_whose_graph_fails_is_the_problems_and_not_a_fault_of_ours(tmp_path: Path) -> None:
    child = Child(fails_at=2)

    with pytest.raises(ProblemError, match=r"the max-autotune reference failed .* recorded"):
        start(child, "max-autotune", tmp_path)

    assert child.closed


def test_one_that_does_not_fit_on_the_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: PreparedReference, name: str) -> None:
        raise torch.OutOfMemoryError("cuMemAlloc_v2: the device has no memory left")

    monkeypatch.setattr(PreparedReference, "_new_shared_set", full)
    prepared = object.__new__(PreparedReference)
    prepared.problem, prepared.device = PROBLEM, torch.device("cpu")

    with pytest.raises(ProblemError, match="no memory left for the max-autotune reference"):
        prepared.started("max-autotune", Limits())


@pytest.mark.parametrize(
    ("kind", "starts"),
    [("out_of_memory", 2), ("crashed", 1)],
    ids=["memory may be free the next time", "what fails fails again"],
)
def test_what_lacked_memory_is_started_anew(
    kind: Any, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def fails(self: PreparedReference, name: str, limits: Limits) -> Any:
        started.append(name)
        raise ProblemError("it does not run") from ChildFailed(kind, "no")

    monkeypatch.setattr(PreparedReference, "started", fails)
    prepared = object.__new__(PreparedReference)
    prepared._running = {}

    for _ in range(2):
        with pytest.raises(ProblemError, match="it does not run"):
            prepared.running("compile", Limits())

    assert starts == len(started)


@pytest.mark.parametrize(
    ("bytes_each", "peak_bytes", "large"),
    [(1 << 20, 1 << 22, False), (1 << 20, 24 << 30, True), (6 << 30, 18 << 30, True)],
    ids=["small", "large between its inputs and outputs", "large"],
)
def test_memory_that_a_call_needs_makes_a_problem_large(
    bytes_each: int, peak_bytes: int, large: bool
) -> None:
    signature: Any = SimpleNamespace(
        bytes_in=bytes_each, bytes_out=bytes_each, has_integers=False, has_floats=False
    )

    assert large == Room(DEVICE, signature, draw_s=0.1, peak_bytes=peak_bytes).is_large


@pytest.mark.parametrize(("free_gb", "refused"), [(51, True), (53, False)])
def test_a_compiled_reference_leaves_room_to_judge_beside_it(
    free_gb: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = 6_440_000_000
    signature: Any = SimpleNamespace(bytes_in=large, bytes_out=large)
    room = Room(DEVICE, signature, draw_s=0.1, peak_bytes=3 * large)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free_gb * 10**9, 141 * 10**9))
    prepared: Any = object.__new__(PreparedReference)
    prepared.problem, prepared.device, prepared.room = PROBLEM, torch.device("cuda"), room

    try:
        prepared._check_room_for("compile")
        said = ""
    except ProblemError as error:
        assert is_out_of_memory(error)
        said = str(error)

    assert refused == ("running the compile reference while judging needs 52.1 GB" in said), said


def test_what_a_kernel_met_is_blamed_on_the_part_that_launched_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(device: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    program: Any = object.__new__(Program)
    program.problem, program.path, program.device = PROBLEM, Path("/p.py"), torch.device("cuda:0")
    program.flags, program._judges, program._flags_known = {}, {}, True
    said = f"{PROBLEM.name}: forward raised RuntimeError: CUDA error"

    with pytest.raises(ProblemError, match=said), program._user_code("forward"):
        pass

    assert not machine.works(torch.device("cuda:0"))
    assert machine.works(torch.device("cpu"))


@pytest.mark.parametrize(
    ("source", "few"),
    [
        ("at::cuda::getCurrentCUDAStream()", True),
        ("# tunable: a stream of rows", True),
        ("nn.GRUCell(8, 8)", True),
        ("side = torch.cuda.Stream()", False),
        ("cudaStreamCreateWithFlags(&side, 1);", False),
        ("at::cuda::getStreamFromPool()", False),
        ("cudaGraphAddKernelNode(&node, graph, 0, 0, &given);", False),
        ("torch._VF.lstm(x, state, weights)", False),
        ("nn.GRU(8, 8)", False),
        ("torch.linalg.eigh(x)", False),
    ],
)
def test_only_what_makes_streams_gets_all_of_cudas_queues(source: str, few: bool) -> None:
    assert few == bool(queues(source)) == bool(queues("nn.Linear(8, 8)", source))
