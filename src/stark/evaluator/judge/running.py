"""Runs each reference, eager or compiled, in its own process, by the same code that runs candidates."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.core.judging import Limits
from stark.evaluator.candidate.confine import Place
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.shared import SharedSet

EAGER = "eager"
COMPILED: dict[str, str | None] = {"compile": None, "max-autotune": "max-autotune"}
"""Compiled references by name, with the mode of `torch.compile` that each uses; None is the default mode."""

PROMOTE_REFERENCES = {"cpu": ["compile"], "cuda": ["compile", "max-autotune"]}
"""Compiled references timed at effort `promote`. On a CPU, max-autotune takes long and gives the default mode's code."""


FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "2"}
"""Makes CUDA open fewer hardware queues than its eight. To open and to end a context, the driver takes time for each queue, and
the more, the more queues all processes on the GPU have together."""

STREAMS = re.compile(
    r"\bStream\b|StreamCreate|StreamFromPool|GraphAdd|(?i:lstm|\bgru\b|rnn|linalg)"
)
"""What the source of a program contains that may work on several streams: its own, or those of cuDNN and cuSOLVER."""


@dataclass(frozen=True)
class RunningReference:
    """A reference's process, and the memory shared with it."""

    child: Child
    shared: SharedSet

    def give_back(self, limit_s: float) -> None:
        """Make the process free its cached memory. Raises ReferenceDied."""
        self.child.ask({"do": "give back"}, limit_s)

    def close(self) -> None:
        """End the process and free the memory shared with it."""
        self.child.close()
        self.shared.close()


def start_reference(
    name: str, forkserver: Forkserver, shared: SharedSet, limits: Limits
) -> RunningReference:
    """Start a reference: load the problem's Model, compile it if `name` is in COMPILED, and call it.

    The shared memory must hold weights and inputs. Raises ProblemError.
    """
    program, folder = shared.program, shared.folder
    variables = {
        "CUDA_VISIBLE_DEVICES": visible(program.device),
        **queues(program.problem.source),
        # Inductor's pool of compile processes would outlive the call.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    place = Place(
        str(folder),
        child_environment(folder, variables),
        readable=tuple(map(str, (program.path, *shared.files))),
    )
    allowed = Allowance(place, memory_gb=1e6, output_kb=limits.output_kb)
    child = forkserver.fork(allowed, shared.arena.descriptor)
    try:
        shared.load(child, program.path, "Model", limits.load_s)
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
    child.is_reference = True
    return RunningReference(child, shared)


def queues(*sources: str) -> dict[str, str]:
    """What limits the hardware queues of a program, unless one of these sources may need more.

    A candidate's follow the reference's too: `nn.GRU` is faster with fewer, which a candidate could hide behind another name.
    """
    return {} if any(map(STREAMS.search, sources)) else FEW_QUEUES


def visible(device: torch.device) -> str:
    """CUDA_VISIBLE_DEVICES for children: they see the judge's device only, as their first one."""
    if device.type == "cpu":
        return ""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[device.index or 0 :][:1]
    if given and given[0].startswith("MIG-"):
        return given[0]  # a part of a GPU
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
