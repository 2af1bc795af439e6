"""Summarizes a profiler trace: the time of GPU kernels, or of operators on a CPU.

Reads the events of a Chrome trace as PyTorch's profiler exports them, with times in microseconds. Does not import
torch. PyTorch's own summary (`function_events`) takes eight times as long as reading the exported trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

MARK = "stark.call"
"""The annotation around each profiled call. Events outside of these calls are ignored."""

COMPILED = "stark.compiled."
"""Prefix of the events around calls of a program's own compiled functions."""

MAX_ENTRIES = 16
"""Maximum number of entries in a summary. Those with the longest total times are kept."""

MAX_NAME_CHARS = 300
"""Maximum length of a name, in characters."""

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of events that ran on the GPU."""

LAUNCHING = ("cuda_runtime", "cuda_driver")
"""Categories of events that launch work on the GPU."""

Event = dict[str, Any]
"""An event of the trace: `cat` (its category), `name`, `ts` (when it began), `dur`, `tid` (the thread) and `args`."""

Entry = dict[str, Any]
"""All executions of one kernel or operator: `name`, `count`, `us` (microseconds of all together), `operator` (the
PyTorch operator that launched a kernel) and `launch` (of the longest execution)."""


def device_summary(trace: Iterable[Event]) -> dict[str, Any]:
    """Summarize what ran on the GPU during the marked calls. `entries` is sorted by time, longest first.

    A call ends only when the device has finished, so everything that the call launched also ends within the call.
    """
    events = _events(trace)
    calls = [event for event in events if _is_call(event)]
    # A launch is an event of the CUDA runtime or driver. Its `correlation` equals that of the work on the device, and
    # its `External id` that of the operator. Launches outside any operator have an id that belongs to no operator.
    operators = {e["args"].get("External id"): e["name"] for e in events if e["cat"] == "cpu_op"}
    launching = (e["args"] for e in events if e["cat"] in LAUNCHING)
    launches = {given.get("correlation"): given.get("External id") for given in launching}
    on_device = (event for event in events if event["cat"] in ON_DEVICE)
    times = [(call["ts"], _end(call)) for call in calls]
    ran = [event for event in on_device if any(begin <= event["ts"] < end for begin, end in times)]
    taken: dict[tuple[str, str | None], Entry] = {}
    for event in sorted(ran, key=lambda event: -event["dur"]):
        given = event["args"]
        operator_id = given.get("External id", launches.get(given.get("correlation")))
        operator = operators.get(operator_id) if operator_id is not None else None
        entry = taken.setdefault((event["name"], operator), _entry(event, operator))
        entry["count"] += 1
        entry["us"] += event["dur"]
    return _summary(len(calls), taken.values(), _covered(ran))


def host_summary(trace: Iterable[Event]) -> dict[str, Any]:
    """Summarize the self time of operators and named compiled functions in marked calls; as `MARK`, the other time."""
    events = _events(trace)
    threads = {event.get("tid") for event in events if _is_call(event)}
    nested = [
        event
        for event in events
        if event.get("tid") in threads
        and (event["cat"] == "cpu_op" or event["name"].startswith(COMPILED) or _is_call(event))
    ]
    taken: dict[str, Entry] = {}
    around: list[tuple[float, Entry]] = []  # what contains the event, with its end
    for event in sorted(nested, key=lambda event: (event["ts"], -event["dur"])):
        while around and around[-1][0] <= event["ts"]:
            around.pop()
        if around or _is_call(event):
            entry = taken.setdefault(event["name"], _entry(event))
            entry["count"] += 1
            entry["us"] += event["dur"]
            if around:
                around[-1][1]["us"] -= event["dur"]
            around.append((_end(event), entry))
    entries = [{**entry, "us": max(entry["us"], 0.0)} for entry in taken.values()]
    calls = sum(map(_is_call, nested))
    return _summary(calls, entries, busy_us=sum(entry["us"] for entry in entries))


def _summary(calls: int, entries: Iterable[Entry], busy_us: float) -> dict[str, Any]:
    entries = sorted(entries, key=lambda entry: -entry["us"])
    return {
        "calls": calls,
        "busy_us": busy_us,
        "total_us": sum(entry["us"] for entry in entries),
        "count": sum(entry["count"] for entry in entries if entry["name"] != MARK),
        "entries": entries[:MAX_ENTRIES],
    }


def _events(trace: Iterable[Event]) -> list[Event]:
    return [
        {"cat": "", "args": {}, **event, "name": str(event.get("name"))[:MAX_NAME_CHARS]}
        for event in trace
        if event.get("ph") == "X" and event.get("dur", -1) >= 0
    ]


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _is_call(event: Event) -> bool:
    return (event["cat"], event["name"]) == ("user_annotation", MARK)


def _entry(event: Event, operator: str | None = None) -> Entry:
    launch = _launch(event["args"])
    return {"name": event["name"], "operator": operator, "count": 0, "us": 0.0, "launch": launch}


def _launch(given: dict[str, Any]) -> dict[str, float | None] | None:
    """A kernel's launch parameters; None for anything else, such as a copy."""
    if "registers per thread" not in given:
        return None
    occupancy = given.get("est. achieved occupancy %")
    return {
        "registers": given["registers per thread"],
        "shared_bytes": given["shared memory"],
        "blocks": math.prod(given["grid"]),
        "threads": math.prod(given["block"]),
        "occupancy": None if occupancy is None else occupancy / 100,
    }


def _covered(events: Iterable[Event]) -> float:
    """Microseconds in which at least one event was active. Kernels on several streams may overlap."""
    covered, reached = 0.0, -math.inf
    for event in sorted(events, key=lambda event: event["ts"]):
        covered += max(_end(event) - max(event["ts"], reached), 0.0)
        reached = max(reached, _end(event))
    return covered
