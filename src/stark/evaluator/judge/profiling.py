"""Asks a program's process for a profile, after verification and timing.

The process is untrusted, so the form and size of its answer are checked here. A profile never affects
a status or a speedup.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationError

from stark.core.base import Frozen
from stark.core.errors import ProblemError
from stark.core.profile import OUTSIDE, Launch, Profile, Step
from stark.evaluator.candidate.trace import COMPILED, MARK
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ReferenceDied
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.running import RunningReference

CALLS_MS, MOST_CALLS = 25.0, 4
"""Approximate total milliseconds of all profiled calls, and the largest number of calls."""

SLACK_S, SLOWER = 4.0, 10
"""A profile's time limit: SLACK_S seconds plus SLOWER times the unprofiled time of its calls."""

SHOWN_STEPS = 8

_LIBRARY = re.compile(
    r"^(void )?(at::|at_cuda_detail::|c10::|cublas|cudnn|cutlass|cask|cub::|nccl|Memcpy |Memset |"
    r"(sm\d+|ampere|volta|turing|maxwell|hopper)_|gemv|gemmk|gemm_|splitKreduce|dot_kernel|reduce_1Block|"
    r"implicit_convolve|explicit_convolve|conv2d_|nchwToNhwc|nhwcToNchw|internal::|magma|cusparse|cufft|vector_fft|regular_fft)"
)
"""Matches the names of kernels from PyTorch and from NVIDIA's libraries."""

_ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(\w{1,2000})' for")
_SPILLS = re.compile(r"bytes stack frame, (\d{1,9}) bytes spill stores")
_USED = re.compile(r"ptxas info\s*: Used (\d{1,4}) registers")
"""What ptxas prints with `--resource-usage`. The candidate's own code can print the same, so the figures only inform."""

Count = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)]
Microseconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]


class ProfileRefused(Exception):
    """There is no valid profile; the message says why."""


class _ReportedEntry(Frozen):
    name: Annotated[str, Field(max_length=300)]
    operator: Annotated[str, Field(max_length=300)] | None
    count: Count
    us: Microseconds
    launch: Launch | None


class _Reported(Frozen):
    """The form of a child's answer. All times are totals over the profiled calls; `calls` is their number."""

    calls: Annotated[int, Field(ge=1, le=MOST_CALLS)]
    busy_us: Microseconds
    total_us: Microseconds
    count: Count
    entries: Annotated[list[_ReportedEntry], Field(max_length=16)]
    busy_cores: Ratio | None = None
    system_share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    page_faults: Count | None = None
    alone: Ratio | None = None
    scalar_calls: Annotated[
        tuple[Annotated[str, Field(max_length=20)], ...], Field(max_length=50)
    ] = ()


def profile_limit_s(latency_ms: float) -> float:
    """Return the time limit of a profile in seconds."""
    return SLACK_S + SLOWER * _calls(latency_ms) * latency_ms / 1e3


def take_profile(
    child: Child, kind: Literal["cpu", "cuda"], latency_ms: float, built: str = ""
) -> Profile:
    """Ask a running process for its profile; `built` is what the candidate's build printed. Raises ProfileRefused."""
    request = {"do": "profile", "calls": _calls(latency_ms)}
    answer = child.ask(request, profile_limit_s(latency_ms))
    return profile_of(answer.get("profile"), kind, built)


def reference_profile(
    start: Callable[[], RunningReference], kind: Literal["cpu", "cuda"], latency_ms: float
) -> Profile | None:
    """Profile a reference in a process of its own, since profiling may slow down one that is timed; None if that fails."""
    try:
        with closing(start()) as running:
            return take_profile(running.child, kind, latency_ms)
    except (ProblemError, torch.OutOfMemoryError, ProfileRefused, ReferenceDied):
        return None


def profile_of(answer: object, kind: Literal["cpu", "cuda"], built: str = "") -> Profile:
    """Build the profile from a process's answer. Raises ProfileRefused if the answer is invalid."""
    try:
        reported = _Reported.model_validate(answer)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise ProfileRefused(f"the process reported an invalid profile (field {place})") from None
    total_us = max(reported.total_us, sum(entry.us for entry in reported.entries))
    if not total_us:
        raise ProfileRefused("the profiler recorded no kernel")
    steps = [_step(entry, reported.calls, total_us, built) for entry in reported.entries]
    return Profile(
        clock="device" if kind == "cuda" else "host",
        steps=tuple(steps[:SHOWN_STEPS]),
        count=reported.count / reported.calls,
        busy_ms=reported.busy_us / reported.calls / 1e3,
        own_share=sum(step.share for step in steps if step.own),
        busy_cores=reported.busy_cores,
        system_share=reported.system_share,
        page_faults=reported.page_faults,
        alone=reported.alone,
        scalar_calls=tuple(map(_on_one_line, reported.scalar_calls)),
    )


def _step(entry: _ReportedEntry, calls: int, total_us: float, built: str) -> Step:
    name, operator = _on_one_line(entry.name), _on_one_line(entry.operator or "")
    launch = entry.launch
    if launch is not None and launch.spilled_bytes is None:
        spilled = spilled_bytes(built, name, launch.registers)
        launch = launch.model_copy(update={"spilled_bytes": spilled})
    # A program's own kernels are neither PyTorch's nor named like a library's.
    of_torch = operator.startswith("aten::") or is_of_library(name)
    return Step(
        name=OUTSIDE if name == MARK else name.removeprefix(COMPILED),
        count=entry.count / calls,
        time_ms=entry.us / calls / 1e3,
        share=min(entry.us / total_us, 1.0),
        own=name == MARK or name.startswith(COMPILED) or (launch is not None and not of_torch),
        operator=operator or None,
        launch=launch,
    )


def spilled_bytes(output: str, shown_name: str, registers: int) -> int | None:
    """Bytes that each thread of a kernel stores to memory for lack of registers, according to a build's output.

    `shown_name` is the kernel's name in a profiler. `registers` is its number of registers; it is
    ignored if no kernel with this name has that many. If several kernels match, returns the maximum;
    if none matches, returns None.
    """
    plain = re.split(r"[<(]", shown_name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    name = plain.removeprefix("void ").strip().rpartition("::")[2]
    mangled = f"{len(name)}{name}"  # a mangled name contains each name after its length
    _, *parts = _ENTRY.split(output)
    alike: list[tuple[int, int]] = []
    for symbol, figures in zip(parts[::2], parts[1::2], strict=True):
        spills, used = _SPILLS.search(figures), _USED.search(figures)
        if spills and used and (symbol == name or mangled in symbol):
            alike.append((int(used[1]), int(spills[1])))
    exact = [spilled for used, spilled in alike if used == registers]
    return max(exact or [spilled for _, spilled in alike], default=None)


def is_of_library(kernel: str) -> bool:
    """Whether a kernel's name is from PyTorch or one of NVIDIA's libraries."""
    return _LIBRARY.match(kernel) is not None


def _on_one_line(text: str) -> str:
    """Make a name a printable single line, for screens and prompts."""
    return " ".join(printable(text).split())


def _calls(latency_ms: float) -> int:
    return max(1, min(MOST_CALLS, int(CALLS_MS / latency_ms)))
