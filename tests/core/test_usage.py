from __future__ import annotations

import pytest
from pydantic import ValidationError

from stark.core.usage import Budget, Usage

SOME = Usage(calls=2, input_tokens=900, output_tokens=100, dollars=0.5, seconds=3.0)


def test_usage_adds_up() -> None:
    expected = Usage(calls=4, input_tokens=1800, output_tokens=200, dollars=1.0, seconds=6.0)

    assert expected == SOME + SOME
    assert SOME == sum([SOME], Usage())
    assert 1000 == SOME.tokens


def test_a_sum_with_an_unknown_part_is_unknown_and_not_zero() -> None:
    unknown = Usage(calls=1, input_tokens=10, output_tokens=None, dollars=None)

    for total in (SOME + unknown, unknown + SOME, unknown + unknown):
        assert (None, None) == (total.output_tokens, total.dollars)
        assert total.tokens is None
    assert 910 == (SOME + unknown).input_tokens
    assert 3 == (SOME + unknown).calls


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(attempts=3), "3 attempts made"),
        (Budget(tokens=1000), "1,000 of 1,000 tokens used"),
        (Budget(dollars=0.5), "$0.50 of $0.50 spent"),
        (Budget(minutes=2.5), "2.5 minutes passed"),
    ],
)
def test_a_limit_that_is_reached_is_named(budget: Budget, reason: str) -> None:
    assert reason == budget.exhausted_by(3, SOME, 2.5)


@pytest.mark.parametrize(
    "budget",
    [
        Budget(),
        Budget(attempts=4, tokens=1001, dollars=0.51, minutes=2.6),
        Budget(attempts=4, tokens=None, dollars=None, minutes=None),
    ],
)
def test_a_limit_that_is_not_reached_is_not_named(budget: Budget) -> None:
    assert budget.exhausted_by(3, SOME, 2.5) is None


def test_of_several_limits_the_attempts_are_named_first() -> None:
    budget = Budget(attempts=3, tokens=1, dollars=0.1, minutes=0.1)

    assert "3 attempts made" == budget.exhausted_by(3, SOME, 2.5)
    assert "1,000 of 1 tokens used" == budget.exhausted_by(2, SOME, 2.5)


def test_an_unknown_number_reaches_no_limit() -> None:
    unknown = Usage(calls=9, input_tokens=None, output_tokens=None, dollars=None)

    assert Budget(tokens=1, dollars=0.01).exhausted_by(1, unknown, 0.0) is None


@pytest.mark.parametrize(
    "limits", [{"attempts": 0}, {"tokens": 0}, {"dollars": 0}, {"minutes": 0}, {"hours": 1}]
)
def test_a_budget_that_allows_nothing_cannot_be_made(limits: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate(limits)
