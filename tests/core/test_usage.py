from __future__ import annotations

import pytest
from pydantic import ValidationError

from stark.core.usage import (
    Budget,
    Cost,
    Price,
    Spent,
    Usage,
    estimated_tokens,
    spent_on,
    utf8_bytes,
)

REPORTED = Usage(input_tokens=900, output_tokens=100, dollars=0.5, seconds=3.0)
UNREPORTED = Usage(seconds=2.0)


def test_what_a_model_reported_is_what_was_spent() -> None:
    spent = spent_on(REPORTED, 60_000, 6_000)

    assert Spent(calls=1, input_tokens=900, output_tokens=100, dollars=0.5, seconds=3.0) == spent
    assert Cost(tokens=1000, dollars=0.5) == spent.cost


def test_unreported_tokens_are_estimated_and_unknown_prices_marked() -> None:
    spent = spent_on(UNREPORTED, 300, 31)

    assert (100, 11, 1) == (spent.input_tokens, spent.output_tokens, spent.estimated_calls)
    assert (0.0, 1) == (spent.dollars, spent.unpriced_calls)


def test_the_known_part_of_a_report_is_used() -> None:
    spent = spent_on(Usage(input_tokens=7), 300, 30)

    assert (7, 10, 1) == (spent.input_tokens, spent.output_tokens, spent.estimated_calls)


def test_spending_adds_up() -> None:
    both = spent_on(REPORTED, 0, 0) + spent_on(UNREPORTED, 300, 30)

    assert (2, 1110, 1, 1, 5.0) == (
        both.calls,
        both.tokens,
        both.estimated_calls,
        both.unpriced_calls,
        both.seconds,
    )
    assert both == both + Spent()
    assert Cost(tokens=3, dollars=1.5) == Cost(tokens=1, dollars=0.5) + Cost(tokens=2, dollars=1.0)


def test_a_price_is_per_million_tokens() -> None:
    assert 3.0 == Price(input_per_million=1.0, output_per_million=4.0).dollars(1_000_000, 500_000)


@pytest.mark.parametrize("limit", [{"attempts": 0}, {"tokens": 0}, {"dollars": 0}, {"minutes": -1}])
def test_a_budget_of_nothing_is_refused(limit: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate(limit)


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (3, 1), (4, 2), (300_000, 100_000)])
def test_estimates_round_up(size: int, tokens: int) -> None:
    assert tokens == estimated_tokens(size)


def test_any_text_has_a_length() -> None:
    assert [1, 2, 3] == [utf8_bytes(text) for text in ("a", "é", "\ud800")]
