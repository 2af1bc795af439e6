"""Summarizes a profiler trace: the time of GPU kernels, or of operators on a CPU.

Reads the events of a Chrome trace as PyTorch's profiler exports them, with times in microseconds.
Does not import torch. The trace is untrusted: missing or malformed fields are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

MARK = "stark.call"
"""The annotation around each profiled call. Events outside of these calls are ignored."""

MAX_ENTRIES = 16
"""Maximum number of entries in a summary. Those with the longest total times are kept."""

MAX_NAME_CHARS = 300
"""Maximum length of a name, in characters."""

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of events that ran on the GPU."""

LAUNCHING = ("cuda_runtime", "cuda_driver")
"""Categories of events that launch work on the GPU."""


Event = dict[str, Any]


class Span(NamedTuple):
    """An interval of time, in microseconds."""

    begin: float
    end: float


@dataclass
class Total:
    """The total of all executions of one kernel or operator."""

    name: str
    operator: str | None = None
    """The PyTorch operator that launched a kernel, if any."""

    count: int = 0
    us: float = 0.0
    """Microseconds of all executions together."""

    longest_us: float = -1.0
    """Microseconds of the longest execution."""

    launch: dict[str, float] | None = None
    """Launch parameters of the longest execution."""


def device_summary(events: list[Event]) -> dict[str, Any]:
    """Summarize what ran on the GPU during the marked calls. `entries` is sorted by time, longest first.

    A call ends only when the device has finished, so everything that the call launched also ends within the call.
    """
    calls = [span for span, _ in _calls(events)]
    launched_by = _launching_operators(events)
    taken: dict[tuple[str, str | None], Total] = {}
    spans = []
    for event in events:
        span = _span(event)
        if event.get("cat") not in ON_DEVICE or span is None or not _within(span, calls):
            continue
        spans.append(span)
        operator = launched_by(event)
        name = _name(event)
        _add(taken.setdefault((name, operator), Total(name, operator)), event, span)
    return _summary(calls, taken.values(), busy_us=_covered(spans))


def host_summary(events: list[Event]) -> dict[str, Any]:
    """Summarize the operators' self time on a CPU during the marked calls."""
    marked = _calls(events)
    calls = [span for span, _ in marked]
    threads = {thread for _, thread in marked}
    found = []
    for event in events:
        span = _span(event)
        if event.get("cat") == "cpu_op" and span is not None and event.get("tid") in threads:
            found.append((span, _name(event)))
    taken: dict[str, Total] = {}
    busy_us = 0.0
    for span, name, own_us, outermost in _nested(found):
        if _within(span, calls):
            one = taken.setdefault(name, Total(name))
            one.count += 1
            one.us += own_us
            busy_us += span.end - span.begin if outermost else 0.0
    return _summary(calls, taken.values(), busy_us)


def _summary(calls: list[Span], taken: Iterable[Total], busy_us: float) -> dict[str, Any]:
    everything = sorted(taken, key=lambda one: -one.us)
    return {
        "calls": len(calls),
        "busy_us": busy_us,
        "total_us": sum(one.us for one in everything),
        "count": sum(one.count for one in everything),
        "entries": [
            {
                "name": one.name,
                "operator": one.operator,
                "count": one.count,
                "us": one.us,
                "launch": one.launch,
            }
            for one in everything[:MAX_ENTRIES]
        ],
    }


def _calls(events: list[Event]) -> list[tuple[Span, object]]:
    """The marked calls, each with the thread that made it."""
    marked = (e for e in events if e.get("cat") == "user_annotation" and e.get("name") == MARK)
    return [(span, e.get("tid")) for e in marked if (span := _span(e)) is not None]


def _span(event: Event) -> Span | None:
    begin, length = event.get("ts"), event.get("dur")
    if event.get("ph") != "X" or not _is_number(begin) or not _is_number(length):
        return None
    return Span(begin, begin + max(length, 0))


def _within(span: Span, calls: list[Span]) -> bool:
    return any(call.begin <= span.begin < call.end for call in calls)


def _covered(spans: list[Span]) -> float:
    """Microseconds in which at least one span was active. Spans of kernels on several streams may overlap."""
    covered, reached = 0.0, -math.inf
    for span in sorted(spans):
        covered += max(span.end - max(span.begin, reached), 0.0)
        reached = max(reached, span.end)
    return covered


def _nested(found: list[tuple[Span, str]]) -> Iterator[tuple[Span, str, float, bool]]:
    """Each operator with its self time, and whether no other operator contains it."""
    found = sorted(found, key=lambda one: (one[0].begin, -one[0].end))
    own_us = [span.end - span.begin for span, _ in found]
    outermost = [True] * len(found)
    open_ones: list[int] = []
    for number, (span, _) in enumerate(found):
        while open_ones and found[open_ones[-1]][0].end <= span.begin:
            open_ones.pop()
        if open_ones:
            own_us[open_ones[-1]] -= span.end - span.begin
            outermost[number] = False
        open_ones.append(number)
    for number, (span, name) in enumerate(found):
        yield span, name, max(own_us[number], 0.0), outermost[number]


def _add(taken: Total, event: Event, span: Span) -> None:
    length = span.end - span.begin
    taken.count += 1
    taken.us += length
    if length > taken.longest_us:
        taken.longest_us = length
        taken.launch = _launch(_arguments(event))


def _launch(given: Event) -> dict[str, float] | None:
    """A kernel's launch parameters; None if the event lacks one of them, as copies do."""
    fields = {
        "registers": given.get("registers per thread"),
        "shared_bytes": given.get("shared memory"),
        "blocks": _product(given.get("grid")),
        "threads": _product(given.get("block")),
    }
    found = {name: value for name, value in fields.items() if _is_number(value)}
    if len(found) < len(fields):
        return None
    occupancy = given.get("est. achieved occupancy %")
    return found | ({"occupancy": occupancy / 100} if _is_number(occupancy) else {})


def _launching_operators(events: list[Event]) -> Any:
    """A function that maps an event on the device to the PyTorch operator that launched it, or None.

    A launch is an event of the CUDA runtime or driver. Its `correlation` equals that of the work on the
    device, and its `External id` equals that of the operator. Launches outside any operator, such as
    Triton's and tvm-ffi's, have an id that belongs to no operator.
    """
    operators = {
        _arguments(e).get("External id"): _name(e) for e in events if e.get("cat") == "cpu_op"
    }
    launches = {
        _arguments(e).get("correlation"): _arguments(e).get("External id")
        for e in events
        if e.get("cat") in LAUNCHING
    }

    def operator(event: Event) -> str | None:
        given = _arguments(event)
        found = given.get("External id", launches.get(given.get("correlation")))
        return operators.get(found) if found is not None else None

    return operator


def _arguments(event: Event) -> Event:
    given = event.get("args")
    return given if isinstance(given, dict) else {}


def _name(event: Event) -> str:
    return str(event.get("name"))[:MAX_NAME_CHARS]


def _product(sizes: object) -> int | None:
    if not isinstance(sizes, list) or not all(isinstance(size, int) for size in sizes):
        return None
    return math.prod(sizes)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
