from __future__ import annotations

import pytest

pytest.importorskip("torch")

from stark.core.device import Roofline
from stark.evaluator.judge.roofline import implausible

MEMORY_BOUND = Roofline(
    least_bytes=1_000_000, flops=0, arithmetic="fp32", memory_ms=1.0, compute_ms=0.0
)


def test_a_time_below_the_roofline_is_doubted() -> None:
    (doubt,) = implausible(0.25, 3.0, MEMORY_BOUND)

    assert "4.0 times faster than the roofline of 1 ms" in doubt


@pytest.mark.parametrize("latency_ms", [0.9, 1.0, 5.0])
def test_a_time_near_or_above_it_is_not(latency_ms: float) -> None:
    assert () == implausible(latency_ms, 3.0, MEMORY_BOUND)


def test_a_count_that_the_reference_itself_beats_proves_nothing() -> None:
    assert () == implausible(0.25, 0.5, MEMORY_BOUND)
