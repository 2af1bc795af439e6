from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem.degenerate import passing
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.verify.oracle import expect

LARGER_HALF = "zeros in the smaller half of the values"


def passing_for(*outputs: torch.Tensor) -> list[str]:
    """The null solvers that pass where these are the right outputs."""
    drawn = Drawn([], [])
    expected = [expect(output.double(), output) for output in outputs]
    others = [expect(output.double() + 1, output + 1) for output in outputs]
    return passing(drawn, expected, others)


def test_a_product_that_vanishes_after_the_first_few_factors_is_degenerate() -> None:
    factors = torch.rand(8, 1000)

    found = passing_for(factors.cumprod(dim=1))

    assert ["zeros in the second half of each row", LARGER_HALF] == found


def test_values_of_which_only_the_larger_half_counts_are_degenerate() -> None:
    wide = 0.7 ** (torch.arange(400)[:, None] - torch.arange(400)).abs()

    assert LARGER_HALF in passing_for(wide)
    assert LARGER_HALF not in passing_for(wide, torch.randn(64, 64))
    assert LARGER_HALF in passing_for(wide, torch.arange(8), torch.randn(()))


@pytest.mark.parametrize(
    "few", [(torch.rand(64, 1000) < 0.02).float(), torch.ones(64, 1000).triu()]
)
def test_zeros_that_are_expected_are_not(few: torch.Tensor) -> None:
    assert LARGER_HALF not in passing_for(few)


def test_sums_of_all_that_came_before_are_not() -> None:
    numbers = torch.rand(8, 1000)

    assert [] == passing_for(numbers.cumsum(dim=1), numbers.sum())


def test_an_answer_to_other_inputs_that_passes_is_named() -> None:
    output = torch.ones(8, 1000)
    expected = [expect(output.double(), output)]

    assert "the answer to other inputs" in passing(Drawn([], []), expected, expected)
