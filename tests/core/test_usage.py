from __future__ import annotations

import pytest
from pydantic import ValidationError

from stark.core.usage import (
    Budget,
    Tokens,
    Usage,
    by_role,
    estimated_tokens,
    role_usage,
    utf8_bytes,
)

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


def test_what_was_told_is_known_whatever_is_not() -> None:
    silent = Usage(calls=1, input_tokens=10, output_tokens=None, dollars=None, seconds=1.0)

    told = SOME.told + silent.told

    assert Usage(calls=3, input_tokens=910, output_tokens=100, dollars=0.5, seconds=4.0) == told
    assert SOME == SOME.told
    assert "$0.50 of $0.40 spent" == Budget(dollars=0.4).exhausted_by(1, told, 0.0)


@pytest.mark.parametrize(
    "limits", [{"attempts": 0}, {"tokens": 0}, {"dollars": 0}, {"minutes": 0}, {"hours": 1}]
)
def test_a_budget_that_allows_nothing_cannot_be_made(limits: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate(limits)


# By role.


def test_an_estimate_is_a_third_of_the_bytes_rounded_up() -> None:
    assert [0, 1, 1, 2] == [estimated_tokens(size) for size in (0, 1, 3, 4)]


def test_any_text_has_a_length() -> None:
    assert (1, 2, 3, 3) == tuple(utf8_bytes(text) for text in ("a", "µ", "…", "\udc80"))


def test_tokens_of_which_a_part_is_estimated_are_marked() -> None:
    told, estimated = Tokens(told=1200), Tokens(estimated=34)

    assert ("1,200", "~34", "~1,234") == (str(told), str(estimated), str(told + estimated))
    assert "0" == str(Tokens())


def test_what_a_model_told_is_not_estimated() -> None:
    usage = Usage(calls=1, input_tokens=5, output_tokens=None, dollars=0.5, seconds=2.0)

    found = role_usage("plan", usage, asked_bytes=300, answered_bytes=301)

    assert (Tokens(told=5), Tokens(estimated=101)) == (found.input, found.output)
    assert ("plan", 1, 0.5, 2.0) == (found.role, found.calls, found.dollars, found.seconds)


def test_roles_are_added_up_in_the_order_in_which_they_came() -> None:
    one = Usage(calls=1, input_tokens=5, output_tokens=1, dollars=0.5, seconds=2.0)
    free = one.model_copy(update={"dollars": None})

    plan, code = by_role(
        role_usage(r, u, 0, 0) for r, u in (("plan", one), ("code", one), ("plan", free))
    )

    assert ("plan", 2, Tokens(told=10), None, 4.0) == (
        plan.role,
        plan.calls,
        plan.input,
        plan.dollars,
        plan.seconds,
    )
    assert ("code", 1, 0.5) == (code.role, code.calls, code.dollars)
