"""A program's profile, taken in its own process after everything that counts was measured.

What an untrusted process says about itself is information only: its form and size are checked here, and nothing
that is said decides a status or a speedup.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationError

from stark.core.base import Frozen
from stark.core.errors import ProblemError
from stark.core.profile import OUTSIDE, Launch, Profile, Step
from stark.evaluator.judge.building.resources import KernelResources, spilled_bytes
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.running import ReferenceDied, RunningReference
from stark.evaluator.judge.timing.program import TimedProcess

CALLS_MS, MOST_CALLS = 25.0, 4
"""About how long the profiled calls may take, and how many tell as much as more would."""

SLACK_S, SLOWER = 4.0, 10
"""A profile's deadline: this beside so many times what its calls take without a profiler."""

SHOWN_STEPS = 8

_LIBRARY = re.compile(
    r"^(void )?(at::|at_cuda_detail::|c10::|cublas|cudnn|cutlass|cask|cub::|nccl|Memcpy |Memset |"
    r"(sm\d+|ampere|volta|turing|maxwell|hopper)_|gemv|gemmk|gemm_|splitKreduce|dot_kernel|reduce_1Block|"
    r"implicit_convolve|explicit_convolve|conv2d_|nchwToNhwc|nhwcToNchw|internal::|magma|cusparse|cufft|vector_fft|regular_fft)"
)
"""Names of kernels that PyTorch and NVIDIA's libraries bring."""

Count = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Microseconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]


class ProfileRefused(Exception):
    """What a process told is no profile; says why, as the end of a sentence."""


class _ToldLaunch(Frozen):
    registers: Annotated[int, Field(ge=0, le=1024)]
    shared_bytes: Annotated[int, Field(ge=0, le=1 << 24)]
    blocks: Annotated[int, Field(ge=0, le=1 << 62)]
    threads: Annotated[int, Field(ge=0, le=4096)]
    occupancy: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None


class _ToldEntry(Frozen):
    name: Annotated[str, Field(max_length=300)]
    operator: Annotated[str, Field(max_length=300)] | None
    count: Count
    us: Microseconds
    launch: _ToldLaunch | None


class _Told(Frozen):
    """The form of what a child answers."""

    calls: Annotated[int, Field(ge=1, le=MOST_CALLS)]
    busy_us: Microseconds
    total_us: Microseconds
    count: Count
    entries: Annotated[list[_ToldEntry], Field(max_length=16)]
    wall_s: Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]
    busy_cores: Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)] | None
    spills: Annotated[
        dict[Annotated[str, Field(max_length=300)], Annotated[int, Field(ge=0, le=1 << 20)]],
        Field(max_length=64),
    ]


def profile_limit_s(latency_ms: float) -> float:
    """The deadline of a profile."""
    return SLACK_S + SLOWER * _calls(latency_ms) * latency_ms / 1e3


def take_profile(
    child: TimedProcess,
    kind: Literal["cpu", "cuda"],
    latency_ms: float,
    built: tuple[KernelResources, ...] = (),
) -> Profile:
    """Ask a process that runs for its profile; `built` is what the compiler said about its kernels.

    Raises ProfileRefused, and whatever `child` raises.
    """
    request = {"do": "profile", "calls": _calls(latency_ms)}
    answer = child.ask(request, profile_limit_s(latency_ms))
    return profile_of(answer.get("profile"), kind, built)


def reference_profile(
    start: Callable[[], RunningReference], kind: Literal["cpu", "cuda"], latency_ms: float
) -> Profile | None:
    """The profile of a reference, in a process of its own: one that was profiled may be slower from then on."""
    try:
        running = start()
    except (ProblemError, torch.OutOfMemoryError):
        return None
    try:
        return take_profile(running, kind, latency_ms)
    except (ProfileRefused, ReferenceDied):
        return None
    finally:
        running.close()


def profile_of(
    told: object, kind: Literal["cpu", "cuda"], built: tuple[KernelResources, ...] = ()
) -> Profile:
    """The profile in what a process told. Raises ProfileRefused."""
    try:
        said = _Told.model_validate(told)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise ProfileRefused(f"the process told one of another form ({place})") from None
    if kind == "cuda":
        return _of_device(said, built)
    return _of_host(said)


def _of_device(said: _Told, built: tuple[KernelResources, ...]) -> Profile:
    total_us = max(said.total_us, sum(entry.us for entry in said.entries))
    if not total_us:
        raise ProfileRefused("the profiler saw no kernel")
    steps = [_step(entry, said, total_us, built) for entry in said.entries]
    return Profile(
        clock="device",
        steps=tuple(steps[:SHOWN_STEPS]),
        count=said.count / said.calls,
        busy_ms=said.busy_us / said.calls / 1e3,
        own_share=sum(step.share for step in steps if step.own),
    )


def _of_host(said: _Told) -> Profile:
    """Time that passed in no operator is the program's own native code, or Python."""
    wall_us = max(1e6 * said.wall_s, said.busy_us)
    outside_us = wall_us - said.busy_us
    outside = _ToldEntry(name=OUTSIDE, operator=None, count=said.calls, us=outside_us, launch=None)
    entries = sorted([*said.entries, outside], key=lambda entry: -entry.us)
    steps = [_step(entry, said, wall_us, ()) for entry in entries]
    return Profile(
        clock="host",
        steps=tuple(steps[:SHOWN_STEPS]),
        count=said.count / said.calls,
        busy_ms=wall_us / said.calls / 1e3,
        own_share=outside_us / wall_us,
        busy_cores=said.busy_cores,
    )


def _step(
    entry: _ToldEntry, said: _Told, total_us: float, built: tuple[KernelResources, ...]
) -> Step:
    name, operator = _in_a_line(entry.name), _in_a_line(entry.operator or "")
    launch = None
    if entry.launch is not None:
        spilled = said.spills.get(entry.name)
        if spilled is None:
            spilled = spilled_bytes(built, name, entry.launch.registers)
        launch = Launch(**entry.launch.model_dump(), spilled_bytes=spilled)
    return Step(
        name=name,
        count=entry.count / said.calls,
        time_ms=entry.us / said.calls / 1e3,
        share=min(entry.us / total_us, 1.0),
        own=name == OUTSIDE or _is_own(name, operator, on_device=entry.launch is not None),
        operator=operator or None,
        launch=launch,
    )


def is_of_library(kernel: str) -> bool:
    """Whether a kernel's name is one that PyTorch or a library of NVIDIA's gives."""
    return _LIBRARY.match(kernel) is not None


def _is_own(name: str, operator: str, on_device: bool) -> bool:
    """Whether neither PyTorch launched a kernel nor a library's name stands on it; operators are never one's own."""
    return on_device and not operator.startswith("aten::") and not is_of_library(name)


def _in_a_line(text: str) -> str:
    """A name in one line: it is shown on screens and to models."""
    return " ".join(printable(text).split())


def _calls(latency_ms: float) -> int:
    return max(1, min(MOST_CALLS, int(CALLS_MS / latency_ms)))
