"""From a profiler's trace of some calls to what took the time: kernels of a GPU, operators on a CPU.

Reads the events of a Chrome trace as PyTorch's profiler exports them (times in microseconds). Knows no torch,
and believes nothing: a field that is absent or odd is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

MARK = "stark.call"
"""The annotation around each call that counts; whatever lies outside is left out."""

MOST_ENTRIES = 16
LONGEST_NAME = 300

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHING = ("cuda_runtime", "cuda_driver")

Event = dict[str, Any]


class Span(NamedTuple):
    """A stretch of time, in microseconds."""

    begin: float
    end: float


@dataclass
class Taken:
    """What all executions of one kernel or operator took together."""

    name: str
    operator: str | None = None
    """The PyTorch operator that launched a kernel, if one did."""

    count: int = 0
    us: float = 0.0
    longest_us: float = -1.0
    launch: dict[str, float] | None = None
    """How the longest was launched."""


def device_summary(events: list[Event]) -> dict[str, Any]:
    """What ran on a GPU within the marked calls; its `entries` have the longest first.

    The calls wait for the device before they end, so all that they launched lies within them.
    """
    calls = [span for span, _ in _calls(events)]
    launched_by = _launching_operators(events)
    taken: dict[tuple[str, str | None], Taken] = {}
    spans = []
    for event in events:
        span = _span(event)
        if event.get("cat") not in ON_DEVICE or span is None or not _within(span, calls):
            continue
        spans.append(span)
        operator = launched_by(event)
        name = _name(event)
        _add(taken.setdefault((name, operator), Taken(name, operator)), event, span)
    return _summary(calls, taken.values(), busy_us=_covered(spans))


def host_summary(events: list[Event]) -> dict[str, Any]:
    """The operators' own times on a CPU within the marked calls, without those that they called."""
    marked = _calls(events)
    calls = [span for span, _ in marked]
    threads = {thread for _, thread in marked}
    found = []
    for event in events:
        span = _span(event)
        if event.get("cat") == "cpu_op" and span is not None and event.get("tid") in threads:
            found.append((span, _name(event)))
    taken: dict[str, Taken] = {}
    busy_us = 0.0
    for span, name, own_us, outermost in _nested(found):
        if _within(span, calls):
            one = taken.setdefault(name, Taken(name))
            one.count += 1
            one.us += own_us
            busy_us += span.end - span.begin if outermost else 0.0
    return _summary(calls, taken.values(), busy_us)


def _summary(calls: list[Span], taken: Iterable[Taken], busy_us: float) -> dict[str, Any]:
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
            for one in everything[:MOST_ENTRIES]
        ],
    }


def _calls(events: list[Event]) -> list[tuple[Span, object]]:
    """The marked calls and the thread that made each."""
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
    """How long at least one of them lasted: kernels on several streams overlap."""
    covered, reached = 0.0, -math.inf
    for span in sorted(spans):
        covered += max(span.end - max(span.begin, reached), 0.0)
        reached = max(reached, span.end)
    return covered


def _nested(found: list[tuple[Span, str]]) -> Iterator[tuple[Span, str, float, bool]]:
    """Each operator of one thread with its time without those inside it, and whether it lies in no other."""
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


def _add(taken: Taken, event: Event, span: Span) -> None:
    length = span.end - span.begin
    taken.count += 1
    taken.us += length
    if length > taken.longest_us:
        taken.longest_us = length
        taken.launch = _launch(_arguments(event))


def _launch(given: Event) -> dict[str, float] | None:
    """How a kernel was launched; None for copies, and where the profiler does not say."""
    told = {
        "registers": given.get("registers per thread"),
        "shared_bytes": given.get("shared memory"),
        "blocks": _product(given.get("grid")),
        "threads": _product(given.get("block")),
    }
    found = {name: value for name, value in told.items() if _is_number(value)}
    if len(found) < len(told):
        return None
    occupancy = given.get("est. achieved occupancy %")
    return found | ({"occupancy": occupancy / 100} if _is_number(occupancy) else {})


def _launching_operators(events: list[Event]) -> Any:
    """Finds the PyTorch operator that launched something on the device.

    Every launch is an event of the runtime with the correlation of what it started and the External id of the operator
    that it happened in. Outside any operator, as in Triton's and tvm-ffi's launches, that is no operator's id.
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
    return str(event.get("name"))[:LONGEST_NAME]


def _product(sizes: object) -> int | None:
    if not isinstance(sizes, list) or not all(isinstance(size, int) for size in sizes):
        return None
    return math.prod(sizes)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
