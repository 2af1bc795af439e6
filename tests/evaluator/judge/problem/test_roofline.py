from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode

from stark.core.device import Roofline
from stark.evaluator.judge.problem.roofline import (
    _allows_tf32,
    _spare_the_compiler,
    implausible,
)

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


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="a torch before 2.9"
)
def test_either_way_to_allow_tf32_is_seen() -> None:
    matmul = torch.backends.cuda.matmul
    seen = []
    try:
        for older, newer in ((True, None), (False, None), (False, "tf32"), (True, "ieee")):
            matmul.allow_tf32 = older
            if newer is not None:
                matmul.fp32_precision = newer
            seen.append(_allows_tf32(convolving=False))
    finally:
        matmul.allow_tf32 = False

    assert [True, False, True, False] == seen


def test_operations_are_counted_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)  # another test's
    product = torch.rand(8, 8)

    _spare_the_compiler()
    with FlopCounterMode(display=False) as counter:
        product @ product

    assert 2 * 8**3 == counter.get_total_flops()
    assert "torch._dynamo" not in sys.modules
