"""When a timed result is near enough to the reference's that the oracle need not be asked."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.verify.errors import CHUNKS
from stark.evaluator.judge.verify.oracle import near


def rounded(dtype: Any, by: float, size: int = 1000) -> tuple[Any, Any]:
    """Numbers, and the same a little larger or smaller."""
    torch.manual_seed(0)
    numbers = torch.randn(size, dtype=dtype)
    signs = torch.sign(torch.rand(size) - 0.5).to(torch.float64)
    return (numbers * (1 + by * signs)).to(dtype), numbers


@pytest.mark.parametrize(
    ("dtype", "rounding", "too_much", "limit"),
    [
        (torch.float64, 1e-15, 1e-9, 1.5e-12),
        (torch.float32, 1e-7, 1e-3, 3e-5),
        (torch.float16, 5e-4, 1e-1, 1.5e-3),
        (torch.bfloat16, 4e-3, 1e-1, 6e-3),
        (torch.complex64, 1e-7, 1e-3, 3e-5),
        (torch.complex128, 1e-15, 1e-9, 1.5e-12),
    ],
)
def test_results_are_near_up_to_rounding(
    dtype: Any, rounding: float, too_much: float, limit: float
) -> None:
    ours, theirs = rounded(dtype, rounding)
    assert not torch.equal(ours, theirs)

    assert near(ours, theirs, limit)
    assert not near(*rounded(dtype, too_much), limit)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_double_precision_is_not_compared_in_a_lower_one(dtype: Any) -> None:
    numbers = torch.full((100,), 1.5, dtype=dtype)

    assert not near(numbers + 1e-9, numbers, 1.5e-12)


def test_an_imaginary_part_counts() -> None:
    numbers = torch.randn(100, dtype=torch.complex64)

    assert near(numbers.conj(), numbers.conj().resolve_conj(), 1e-6)
    assert not near(numbers.conj(), numbers, 1e-2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_whole_numbers_and_truth_values_are_equal(dtype: Any) -> None:
    ones, other = torch.ones(100, dtype=dtype), torch.ones(100, dtype=dtype)
    assert near(ones, other, 1e6)

    other[7] = 0

    assert not near(ones, other, 1e6)


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_must_be_so_in_the_same_places(strange: float) -> None:
    theirs = torch.ones(100)
    theirs[7] = strange
    elsewhere, opposite = theirs.flip(0), theirs.clone()
    opposite[7] = -strange if strange == strange else float("inf")
    far = theirs.clone()
    far[8] = 2.0

    assert near(theirs.clone(), theirs, 1e-6)
    for ours in (elsewhere, opposite, far, torch.ones(100)):
        assert not near(ours, theirs, 1e-3)
    assert not near(theirs, torch.ones(100), 1.0)


def test_numbers_too_large_to_be_squared_are_near_nothing() -> None:
    large = torch.full((100,), 1e30)

    assert not near(-large, large, 1e-5)
    assert not near(torch.zeros(100), large, 1e-5)


def test_every_piece_is_looked_at() -> None:
    ours, theirs = rounded(torch.float32, 0.0, CHUNKS["cpu"] + 1)
    assert near(ours, theirs, 1e-6)

    ours[-1] += 1.0

    assert not near(ours, theirs, 1e-6)
