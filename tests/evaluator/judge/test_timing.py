from __future__ import annotations

import random
import time
from typing import Any

import pytest

pytest.importorskip("torch")

from stark.evaluator.judge.timing import FEWEST_PAIRS, Timed, time_alone, time_pair


class Sleeper:
    """Stands for a child: every call takes a known time, and its events may lie."""

    def __init__(self, call_s: float, claimed_ms: float | None = None) -> None:
        self.call_s, self.claimed_ms = call_s, claimed_ms

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        calls = request["calls"]
        if not request["empty"]:
            time.sleep(self.call_s * calls)
        if self.claimed_ms is None:
            return {"ok": True, "times_ms": []}
        return {"ok": True, "times_ms": [0.0 if request["empty"] else self.claimed_ms] * calls}


def cpu(call_s: float) -> Timed:
    return Timed(Sleeper(call_s), "cpu", 10.0)  # type: ignore[arg-type]


def cuda(call_s: float, claimed_ms: float) -> Timed:
    return Timed(Sleeper(call_s, claimed_ms), "cuda", 10.0)  # type: ignore[arg-type]


def test_the_ratio_of_two_programs_is_found() -> None:
    reference, candidate, warnings = time_pair(cpu(0.02), cpu(0.01), 0.5, random.Random(0))

    assert 2.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.1)
    assert 10.0 == pytest.approx(candidate.latency_ms, rel=0.1)
    assert len(reference.samples_ms) == len(candidate.samples_ms) >= FEWEST_PAIRS
    assert "judge_wall" == candidate.clock
    assert () == warnings


def test_short_calls_share_a_sample() -> None:
    measured = time_alone(cpu(0.002), 0.1)

    assert measured.calls_per_sample > 5
    assert 2.0 == pytest.approx(measured.latency_ms, rel=0.2)


def test_honest_device_events_are_the_clock() -> None:
    _, candidate, warnings = time_pair(cuda(0.004, 4.0), cuda(0.002, 2.0), 0.2, random.Random(0))

    assert "device_events" == candidate.clock
    assert 2.0 == candidate.latency_ms
    assert () == warnings


def test_forged_device_events_lose_to_the_judges_clock() -> None:
    reference, candidate, warnings = time_pair(
        cuda(0.004, 4.0), cuda(0.004, 0.01), 0.2, random.Random(0)
    )

    assert "judge_wall" == candidate.clock == reference.clock
    assert 1.0 == pytest.approx(reference.latency_ms / candidate.latency_ms, rel=0.2)
    assert "device events claim" in warnings[0]
