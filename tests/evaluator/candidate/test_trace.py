"""Traces made by hand in the form that PyTorch's profiler exports, and what is read from them."""

from __future__ import annotations

from typing import Any

import pytest

from stark.evaluator.candidate.trace import (
    COMPILED,
    MARK,
    MAX_ENTRIES,
    device_summary,
    host_summary,
)

Event = dict[str, Any]


def event(category: str, name: str, ts: float, dur: float, tid: int = 1, **args: object) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def call(ts: float, dur: float) -> Event:
    return event("user_annotation", MARK, ts, dur, **{"External id": 900})


def kernel(name: str, ts: float, dur: float, correlation: int, **args: object) -> Event:
    """As Kineto writes one: what it was launched with is among its arguments."""
    launched = {
        "queued": 0,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": correlation,
        "registers per thread": 40,
        "shared memory": 4096,
        "blocks per SM": 3.87,
        "warps per SM": 31.03,
        "grid": [256, 2, 1],
        "block": [64, 4, 1],
        "est. achieved occupancy %": 48,
    }
    return event("kernel", name, ts, dur, tid=7, **(launched | args))


def launching(ts: float, correlation: int, operator: int) -> Event:
    given = {"External id": operator, "cbid": 211, "correlation": correlation}
    return event("cuda_runtime", "cudaLaunchKernel", ts, 4, **given)


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)"

TWO_CALLS: list[Event] = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    kernel(ADD, 10, 40, 1),  # the cache is overwritten before the call
    call(100, 200),
    event("cpu_op", "aten::add", 105, 20, **{"External id": 11}),
    launching(110, 2, 11),
    launching(130, 3, 900),
    kernel(ADD, 120, 30, 2),
    kernel("scale_kernel", 140, 60, 3, grid=[128, 1, 1]),
    event("gpu_memset", "Memset (Device)", 210, 10, tid=7, correlation=4, bytes=16),
    kernel(ADD, 310, 40, 5),
    call(400, 100),
    launching(410, 6, 900),
    kernel("scale_kernel", 420, 50, 6),
    event("gpu_user_annotation", MARK, 120, 100, tid=7),
]


def test_kernels_within_the_marked_calls_are_added_up() -> None:
    found = device_summary(TWO_CALLS)

    assert (2, 4, 150.0) == (found["calls"], found["count"], found["total_us"])
    assert [
        ("scale_kernel", None, 2, 110),
        (ADD, "aten::add", 1, 30),
        ("Memset (Device)", None, 1, 10),
    ] == [(one["name"], one["operator"], one["count"], one["us"]) for one in found["entries"]]


def test_kernels_that_ran_at_once_keep_the_device_busy_once() -> None:
    assert 80 + 10 + 50 == device_summary(TWO_CALLS)["busy_us"]


def test_the_launch_is_that_of_the_longest_and_copies_have_none() -> None:
    longest, _, memset = device_summary(TWO_CALLS)["entries"]

    assert {
        "registers": 40,
        "shared_bytes": 4096,
        "blocks": 128,
        "threads": 256,
        "occupancy": 0.48,
    } == longest["launch"]
    assert memset["launch"] is None


def test_the_operator_may_stand_at_the_kernel_itself() -> None:
    trace = [
        call(0, 100),
        event("cpu_op", "my::fused", 5, 20, **{"External id": 3}),
        kernel("fused", 10, 20, 1, **{"External id": 3}),
    ]

    assert "my::fused" == device_summary(trace)["entries"][0]["operator"]


def test_an_operators_own_time_is_without_those_that_it_called() -> None:
    trace = [
        event("cpu_op", "aten::zero_", 0, 50),  # before the call
        call(100, 100),
        event("cpu_op", "aten::linear", 110, 60),
        event("cpu_op", "aten::t", 112, 4),
        event("cpu_op", "aten::addmm", 120, 45),
        event("cpu_op", "aten::relu", 175, 15),
        event("cpu_op", "aten::addmm", 130, 10, tid=2),  # another thread's
    ]

    found = host_summary(trace)

    assert {MARK: 25, "aten::addmm": 45, "aten::relu": 15, "aten::linear": 11, "aten::t": 4} == {
        one["name"]: one["us"] for one in found["entries"]
    }
    assert (1, 4, 100) == (found["calls"], found["count"], found["busy_us"])


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_a_compiled_function_is_a_step_without_the_operators_that_it_calls(category: str) -> None:
    trace = [
        call(100, 100),
        event(category, f"{COMPILED}ema", 110, 80),
        event("cpu_op", "aten::empty", 120, 20),
        event("user_annotation", "the program's own", 100, 100),
    ]

    found = host_summary(trace)

    assert {MARK: 20, f"{COMPILED}ema": 60, "aten::empty": 20} == {
        one["name"]: one["us"] for one in found["entries"]
    }


@pytest.mark.parametrize("summary", [device_summary, host_summary])
def test_an_empty_trace_has_nothing(summary: Any) -> None:
    for trace in ([], [{}, {"ph": "X", "cat": "kernel"}]):
        assert (0, []) == (summary(trace)["calls"], summary(trace)["entries"])


def test_only_so_many_entries_are_told_but_all_are_counted() -> None:
    trace = [call(0, 1e6), *(kernel(f"kernel_{n}", n, 1, n) for n in range(100))]

    found = device_summary(trace)

    assert (100, MAX_ENTRIES) == (found["count"], len(found["entries"]))
    assert 100 == found["total_us"]
