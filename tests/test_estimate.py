"""The estimate of what a run costs, before it starts."""

from __future__ import annotations

import pytest

import loop_samples as samples
from stark.core.usage import Price
from stark.estimate import JUDGE_S, TOKENS_PER_S, USUAL, estimate


def test_a_team_of_three_plans_and_codes_in_each_attempt() -> None:
    found = estimate(samples.run().config, lambda role: samples.PRICE, 10)

    plan, code = USUAL["plan"], USUAL["code"]
    given, answered = plan.given + code.given, plan.answered + code.answered
    assert (10, 20, 10 * (given + answered)) == (found.attempts, found.calls, found.tokens)
    assert 10 * samples.PRICE.dollars(given, answered) == pytest.approx(found.dollars)


def test_one_agent_asks_once() -> None:
    found = estimate(samples.run("sampling").config, lambda role: samples.PRICE, 10)

    assert (10, 10 * sum(USUAL["solo"])) == (found.calls, found.tokens)


def test_one_unknown_price_makes_the_dollars_unknown() -> None:
    def price_of(role: str) -> Price | None:
        return None if role == "code" else samples.PRICE

    assert None is estimate(samples.run().config, price_of, 10).dollars


def test_attempts_in_parallel_take_less_time_but_one_judge_judges_them_all() -> None:
    one, four, many = (
        estimate(samples.run("sampling", parallel=parallel).config, lambda role: None, 10).minutes
        for parallel in (1, 4, 1000)
    )

    each_s = USUAL["solo"].answered / TOKENS_PER_S + JUDGE_S["triton"]
    assert 10 * each_s / 60 == pytest.approx(one)
    assert one / 4 == pytest.approx(four)
    assert 10 * JUDGE_S["triton"] / 60 == pytest.approx(many)


def test_a_run_without_attempts_left_costs_nothing() -> None:
    found = estimate(samples.run().config, lambda role: samples.PRICE, -1)

    assert (0, 0, 0.0, 0.0) == (found.attempts, found.tokens, found.dollars, found.minutes)


def test_every_case_of_a_problem_is_judged() -> None:
    config = samples.run("sampling", parallel=1000).config
    one, three = (estimate(config, lambda role: None, 10, cases).minutes for cases in (1, 3))

    assert three == pytest.approx(3 * one)
