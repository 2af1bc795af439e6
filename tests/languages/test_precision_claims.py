"""What the techniques say about tensor cores is what the judge's own rule makes of emulated products."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.core.precision import Precision
from stark.evaluator.judge.verify.oracle import Comparison, Terms, compare, expect

BITS = {"tf32": 10, "bf16": 7}
"""Of the fraction that is kept; both have float32's exponents."""


def rounded(value: torch.Tensor, kept: int) -> torch.Tensor:
    dropped = 23 - kept
    bits = value.view(torch.int32) + (1 << (dropped - 1))
    return (bits & ~((1 << dropped) - 1)).view(torch.float32)


def split(value: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    high = rounded(value, BITS[kind])
    return high, rounded(value - high, BITS[kind])


def product(a: torch.Tensor, b: torch.Tensor, way: str) -> torch.Tensor:
    (high, low), (other_high, other_low) = split(a, way[:4]), split(b, way[:4])
    if way.endswith("x3"):
        return low @ other_high + high @ other_low + high @ other_high
    return high @ other_high


def judged(way: str, terms: int, scale: float, precision: Precision = "fp32-split") -> Comparison:
    chance = torch.Generator().manual_seed(0)
    a = torch.randn(128, terms, generator=chance) * scale
    b = torch.randn(terms, 128, generator=chance)
    return compare(product(a, b, way), expect(a.double() @ b.double(), a @ b, Terms(precision)))


@pytest.mark.parametrize(
    ("way", "met"),
    [("tf32x3", "reference"), ("bf16x3", "fp32-split"), ("tf32", "tf32"), ("bf16", "bf16")],
)
def test_a_product_meets_the_class_that_is_meant_for_its_arithmetic(way: str, met: str) -> None:
    assert met == judged(way, 4096, 1.0, "bf16").meets


@pytest.mark.parametrize("terms", [256, 4096])
@pytest.mark.parametrize("scale", [1.0, 64.0, 1e-3])
@pytest.mark.parametrize(
    ("way", "passes", "error"),
    [("tf32", False, 3e-4), ("bf16", False, 2e-3), ("tf32x3", True, 2e-7), ("bf16x3", True, 4e-6)],
)
def test_one_product_is_too_inexact_and_three_are_not(
    way: str, passes: bool, error: float, scale: float, terms: int
) -> None:
    found = judged(way, terms, scale)

    assert passes == found.passes
    assert error == pytest.approx(found.errors.relative_rms, rel=0.5)
    assert 2e-5 == found.budget
