"""What `docs/precision.md` says about the errors of arithmetic, and about recorded budgets."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.precision import DEFAULT, Precision, budget_of, limit_of
from stark.evaluator.judge.verify.oracle import Terms, compare, expect

RESULTS = Path(__file__).parents[4] / "docs" / "results"
TERMS = 1024

Round = Callable[[torch.Tensor], torch.Tensor]


def kept(bits: int, nearest: bool = True) -> Round:
    """Keeps so many bits of the fraction."""
    dropped = 23 - bits
    half = 1 << (dropped - 1) if nearest else 0
    return lambda value: ((value.view(torch.int32) + half) & ~((1 << dropped) - 1)).view(
        torch.float32
    )


def int8(weights: torch.Tensor) -> torch.Tensor:
    groups = weights.view(-1, 128, weights.shape[-1])
    scale = groups.abs().amax(1, keepdim=True) / 127
    return ((groups / scale).round() * scale).view_as(weights)


def same(value: torch.Tensor) -> torch.Tensor:
    return value


def once(left: Round, right: Round) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda a, b: left(a) @ right(b)


def thrice(narrow: Round) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        high, other_high = narrow(a), narrow(b)
        low, other_low = narrow(a - high), narrow(b - other_high)
        return low @ other_high + high @ other_low + high @ other_high

    return product


TF32, BF16 = kept(10), kept(7)
CUT = kept(10, nearest=False)


def half(value: torch.Tensor) -> torch.Tensor:
    return value.half().float()


def float8(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.float8_e4m3fn).float()


@pytest.mark.parametrize(
    ("product", "error", "met"),
    [
        (once(same, same), 2.8e-7, "reference"),
        (thrice(TF32), 2.8e-7, "reference"),
        (thrice(BF16), 4.4e-6, "fp32-split"),
        (once(TF32, TF32), 2.9e-4, "tf32"),
        (once(half, half), 2.9e-4, "tf32"),
        (once(CUT, CUT), 7.7e-4, "tf32"),
        (once(BF16, BF16), 2.4e-3, "bf16"),
        (once(same, int8), 6.5e-3, "bf16"),
        (once(float8, float8), 3.7e-2, None),
    ],
)
def test_a_product_has_the_stated_error_and_class(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    error: float,
    met: Precision | None,
) -> None:
    chance = torch.Generator().manual_seed(0)
    a = torch.randn(128, TERMS, generator=chance)
    b = torch.randn(TERMS, 128, generator=chance)

    found = compare(product(a, b), expect(a.double() @ b.double(), a @ b, Terms("bf16")))

    # 0.3: the order in which a BLAS adds up differs from processor to processor.
    assert pytest.approx(error, rel=0.3) == found.errors.relative_rms
    assert met == found.meets


def test_a_sum_of_ten_thousand_terms_in_a_row_is_at_the_strictest_floor() -> None:
    terms = torch.randn(10_000, 256, generator=torch.Generator().manual_seed(0))
    total = torch.zeros(256)
    for term in terms:
        total += term
    exact = terms.double().sum(0)

    found = compare(total, expect(exact, terms.sum(0)))

    assert 1e-6 < found.errors.relative_rms < 2.2e-6


def test_recorded_kernels_keep_their_budgets() -> None:
    """What the inputs' own rounding moves may only raise them, within the limit."""
    found = [
        accuracy
        for pattern in (
            "cpu/*",
            "h200/level*",
        )  # all outputs are float32 there, and well conditioned
        for path in sorted(RESULTS.glob(f"{pattern}.json.gz"))
        for accuracy in accuracies(json.loads(gzip.decompress(path.read_bytes())))
    ]

    assert len(found) > 100
    for accuracy in found:
        limit = limit_of(DEFAULT, "float32")
        error = accuracy["reference_relative_rms"]
        assert budget_of(DEFAULT, "float32", error, limit) <= accuracy["budget"] <= limit


def accuracies(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        if "reference_relative_rms" in document:
            yield document
        document = list(document.values())
    if isinstance(document, list):
        for part in document:
            yield from accuracies(part)
