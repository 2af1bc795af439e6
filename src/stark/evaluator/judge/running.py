"""Runs each reference, eager or compiled, in its own process, by the same code that runs candidates."""

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
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.shared import SharedSet

EAGER = "eager"
COMPILED: dict[str, str | None] = {"compile": None, "max-autotune": "max-autotune"}
"""Compiled references by name, with the mode of `torch.compile` that each uses; None is the default mode."""

PROMOTE_REFERENCES = {"cpu": ["compile"], "cuda": ["compile", "max-autotune"]}
"""Compiled references timed at effort `promote`, by device.

On a CPU, max-autotune is left out: it takes long and gives the same code as the default mode.
"""


class RunningReference:
    """A reference's process. Failures raise ReferenceDied and are never blamed on a candidate."""

    def __init__(self, child: Child, shared: SharedSet) -> None:
        self.child, self.shared = child, shared
        self.spread, self.settle, self.loosen = child.spread, child.settle, child.loosen
        self.copy_out, self.core = child.copy_out, child.core
        self.stood_still, self.go_on = child.stood_still, child.go_on

    def ask(self, request: Message, limit_s: float) -> Message:
        """Send a request and return the answer. Raises ReferenceDied."""
        with _raising_reference_died():
            return self.child.ask(request, limit_s)

    def send(self, request: Message) -> str:
        """Send a request and return the nonce of its answer. Raises ReferenceDied."""
        with _raising_reference_died():
            return self.child.send(request)

    def answer(self, nonce: str, limit_s: float) -> Message:
        """Wait for an answer. Raises ReferenceDied."""
        with _raising_reference_died():
            return self.child.answer(nonce, limit_s)

    def answered(self, nonce: str, limit_s: float) -> Message | None:
        """The answer, or None if there is none in time. Raises ReferenceDied."""
        with _raising_reference_died():
            return self.child.answered(nonce, limit_s)

    def pause(self) -> float:
        """Stop the process while another process is timed. Raises ReferenceDied.

        Returns the time of the stop, on the clock of `time.perf_counter`.
        """
        with _raising_reference_died():
            return self.child.pause()

    def resume(self) -> None:
        """Continue the process. Raises ReferenceDied."""
        with _raising_reference_died():
            self.child.resume()

    def give_back(self, limit_s: float) -> None:
        """Make the process free its cached memory. Raises ReferenceDied."""
        self.ask({"do": "give back"}, limit_s)

    def close(self) -> None:
        """End the process and free the memory shared with it."""
        self.child.close()
        self.shared.close()


@contextmanager
def _raising_reference_died() -> Iterator[None]:
    try:
        yield
    except ChildFailed as failure:
        raise ReferenceDied(
            f"the running reference failed ({failure.kind.replace('_', ' ')}): {failure.error}"
        ) from failure


def start_reference(
    name: str,
    forkserver: Forkserver,
    program: Program,
    shared: SharedSet,
    flush_bytes: int,
    limits: Limits,
) -> RunningReference:
    """Start a reference: load the problem's Model, compile it if `name` is in COMPILED, and call it.

    The shared memory must hold weights and inputs.

    Raises ProblemError.
    """
    folder = shared.folder
    allowed = Allowance(
        folder,
        child_environment(folder, _environment(folder, program.device)),
        memory_gb=1e6,
        output_kb=limits.output_kb,
        readable=(program.path, *shared.files),
    )
    child = forkserver.fork(allowed, shared.arena.descriptor)
    shared.attach(child, flush_bytes, limits.load_s)
    try:
        path = str(program.path)
        child.ask({"do": "import", "path": path, "class": "Model"}, limits.load_s)
        child.ask(load_request("Model"), limits.load_s)
        call = {"do": "call", "slot": 0, "seed": 0}
        if name in COMPILED:
            child.ask({"do": "compile", "mode": COMPILED[name]}, limits.load_s)
            child.ask(call, limits.build_s)
            child.ask(call, limits.build_s)  # may record a CUDA graph, which the next call replays
        child.ask(call, limits.verify_s)
    except ChildFailed as failure:
        child.close()
        raise ProblemError(
            f"{program.problem.name}: the {name} reference failed when run in a separate process: "
            f"{failure.error}"
        ) from failure
    return RunningReference(child, shared)


def _environment(folder: Path, device: torch.device) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": visible(device),
        # Inductor's pool of compile processes would outlive the call.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def load_request(name: str) -> Message:
    """Build the request that makes a child construct the class `name` of its program."""
    return {"do": "load", "class": name, "seed": CONSTRUCTION_SEED}


def visible(device: torch.device) -> str:
    """Return CUDA_VISIBLE_DEVICES for children: they see the judge's device only, as their first one."""
    if device.type == "cpu":
        return ""
    everything = ",".join(map(str, range(torch.cuda.device_count())))
    return os.environ.get("CUDA_VISIBLE_DEVICES", everything).split(",")[device.index or 0]
