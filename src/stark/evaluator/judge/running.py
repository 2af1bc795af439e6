"""References in children of their own, run by the same code as any candidate. Knows no candidate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from stark.core.errors import ProblemError
from stark.core.judging import Limits
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.problem.inputs import CONSTRUCTION_SEED, Program
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.shared import SharedSet

EAGER = "eager"
COMPILED: dict[str, str | None] = {"compile": None, "max-autotune": "max-autotune"}
"""References beside eager by name, and the mode of `torch.compile` that each is."""

PROMOTED = {"cpu": ["compile"], "cuda": ["compile", "max-autotune"]}
"""Which are measured at `promote`, by device: on a CPU tuning takes long and chooses what the default chooses."""


class ReferenceDied(Exception):
    """The running reference failed while a candidate was timed against it: a fault of ours."""


class RunningReference:
    """A program that is not judged: its failure is never a candidate's."""

    def __init__(self, child: Child, shared: SharedSet) -> None:
        self.child = child
        self.shared = shared

    def ask(self, request: Message, limit_s: float) -> Message:
        """Its answer. Raises ReferenceDied."""
        with _not_the_candidates_fault():
            return self.child.ask(request, limit_s)

    def pause(self) -> float:
        """Stop it while another program is timed; returns when. Raises ReferenceDied."""
        with _not_the_candidates_fault():
            return self.child.pause()

    def resume(self) -> None:
        """Let it run again. Raises ReferenceDied."""
        with _not_the_candidates_fault():
            self.child.resume()

    def spread(self) -> None:
        """Keep each of its threads on one core until `loosen`."""
        self.child.spread()

    def settle(self) -> None:
        """Keep only those of its threads that worked since, if there is a core for each."""
        self.child.settle()

    def loosen(self) -> None:
        """Let its threads run on any core again."""
        self.child.loosen()

    def give_back(self, limit_s: float) -> None:
        """Have it give back the memory that it keeps at hand. Raises ReferenceDied."""
        self.ask({"do": "give back"}, limit_s)

    def waits_s(self) -> dict[str, float]:
        """How long each of its threads has waited for a core so far."""
        return self.child.waits_s()

    def core(self) -> int | None:
        """The core that its first thread ran on last, if that is known."""
        return self.child.core()

    def copy_out(self, source: int, target: int, size: int) -> bool:
        """Copy bytes of its memory."""
        return self.child.copy_out(source, target, size)

    def close(self) -> None:
        """End it and give its memory back."""
        self.child.close()
        self.shared.arena.close()


@contextmanager
def _not_the_candidates_fault() -> Iterator[None]:
    try:
        yield
    except ChildFailed as failure:
        raise ReferenceDied(f"the running reference {failure.kind}: {failure.error}") from failure


def start_reference(
    name: str,
    forkserver: Forkserver,
    program: Program,
    shared: SharedSet,
    flush_bytes: int,
    limits: Limits,
) -> RunningReference:
    """The problem's own Model, loaded, compiled if so named, and called once on what `shared` holds. Raises ProblemError."""
    folder = shared.folder
    allowed = Allowance(
        folder,
        child_environment(folder, _environment(folder)),
        memory_gb=1e6,
        output_kb=limits.output_kb,
        readable=(program.path,),
        on_device=program.device.type == "cuda",
    )
    child = forkserver.fork(allowed, shared.arena.descriptor)
    shared.fill_weights()
    if program.device.type == "cuda":
        torch.cuda.synchronize(program.device)
    shared.attach(child, flush_bytes, limits.load_s)
    try:
        path = str(program.path)
        child.ask({"do": "import", "path": path, "class": "Model"}, limits.load_s)
        child.ask(load_request("Model"), limits.load_s)
        call = {"do": "call", "slot": 0, "seed": 0}
        if name in COMPILED:
            child.ask({"do": "compile", "mode": COMPILED[name]}, limits.load_s)
            child.ask(call, limits.build_s)
            child.ask(call, limits.build_s)  # on a GPU a graph is recorded, and then replayed
        child.ask(call, limits.verify_s)
    except ChildFailed as failure:
        child.close()
        raise ProblemError(
            f"{program.problem.name}: the {name} reference does not run in a process of its own: {failure.error}"
        ) from failure
    return RunningReference(child, shared)


def _environment(folder: Path) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": visible(),
        # Inductor's own pool of compiling processes would outlive the call.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def load_request(name: str) -> Message:
    """Asks a child to build this class of its program."""
    return {"do": "load", "class": name, "seed": CONSTRUCTION_SEED}


def visible() -> str:
    """Which devices the children see: the same as the judge."""
    return os.environ.get(
        "CUDA_VISIBLE_DEVICES", ",".join(map(str, range(torch.cuda.device_count())))
    )
