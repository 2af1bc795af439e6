"""Admission of model calls, and what limits them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

import pytest

from stark.core.run import Ended
from stark.core.usage import Budget, Cost, Spent
from stark.ledger import Ledger, LimitReached, Reservation, reached

CENT = Cost(tokens=100, dollars=0.01)


def cost(dollars: float, tokens: int = 100) -> Cost:
    return Cost(tokens=tokens, dollars=dollars)


def paid(dollars: float, tokens: int = 100) -> Spent:
    return Spent(calls=1, input_tokens=tokens, dollars=dollars)


async def soon(waiting: Awaitable[Reservation]) -> Reservation:
    """The reservation of a call that has no reason to wait any more."""
    return await asyncio.wait_for(waiting, 1)


async def is_admitted(ledger: Ledger, at_most: Cost, role: str = "code") -> Reservation | None:
    """The reservation of a call that is admitted at once; None if it has to wait."""
    try:
        return await asyncio.wait_for(ledger.admit(role, at_most), 0.005)
    except TimeoutError:
        return None


async def test_calls_are_admitted_together_while_all_of_them_fit() -> None:
    ledger = Ledger(Budget(dollars=1.0))

    admitted = [await is_admitted(ledger, cost(0.4)) for _ in range(3)]

    assert [True, True, False] == [one is not None for one in admitted]


async def test_without_limits_nothing_waits() -> None:
    ledger = Ledger(Budget())

    assert all([await is_admitted(ledger, cost(1e6, 10**9)) for _ in range(20)])


async def test_a_waiting_call_is_admitted_when_another_turns_out_cheaper() -> None:
    ledger = Ledger(Budget(dollars=1.0))
    first = await soon(ledger.admit("plan", cost(0.9)))
    waiting = asyncio.create_task(ledger.admit("code", cost(0.9)))
    await asyncio.sleep(0)
    assert not waiting.done()

    ledger.charge(first, paid(0.05))

    assert cost(0.9) == (await soon(waiting)).cost


async def test_a_waiting_call_is_refused_when_another_reaches_the_limit() -> None:
    ledger = Ledger(Budget(dollars=1.0))
    first = await soon(ledger.admit("plan", cost(0.9)))
    waiting = asyncio.create_task(ledger.admit("code", cost(0.9)))
    await asyncio.sleep(0)

    ledger.charge(first, paid(1.0))

    with pytest.raises(LimitReached) as caught:
        await soon(waiting)
    assert Ended(kind="dollars", detail="$1.00 of $1.00 spent") == caught.value.ended


async def test_a_refused_call_frees_what_was_reserved_and_costs_nothing() -> None:
    ledger = Ledger(Budget(dollars=1.0))
    first = await soon(ledger.admit("plan", cost(0.9)))
    waiting = asyncio.create_task(ledger.admit("code", cost(0.9)))

    ledger.charge(first, Spent())

    await soon(waiting)
    assert (Spent(), {}) == (ledger.spent, ledger.spent_by_role)


async def test_a_call_alone_may_exceed_the_limit() -> None:
    ledger = Ledger(Budget(tokens=1_000), spent={"plan": paid(0.0, 999)})

    assert await is_admitted(ledger, cost(0.0, 50_000)) is not None
    assert await is_admitted(ledger, cost(0.0, 1)) is None


@pytest.mark.parametrize("budget", [Budget(tokens=100), Budget(dollars=0.5)])
async def test_no_call_is_admitted_at_the_limit(budget: Budget) -> None:
    ledger = Ledger(budget, spent={"plan": paid(0.5)})

    assert not ledger.may_ask
    assert not Ledger(Budget(), parent=ledger).may_ask
    with pytest.raises(LimitReached):
        await soon(ledger.admit("code", CENT))


async def test_limits_on_attempts_and_minutes_refuse_no_call_of_an_attempt_that_has_begun() -> None:
    ledger = Ledger(Budget(attempts=1, minutes=1), attempts=1, elapsed_s=61)

    assert ledger.own_limit() is not None
    assert await is_admitted(ledger, CENT) is not None


async def test_expected_is_the_largest_cost_of_the_role_so_far() -> None:
    ledger = Ledger(Budget(dollars=1.0))
    for dollars, tokens in ((0.2, 10), (0.1, 300)):
        ledger.charge(await soon(ledger.admit("code", cost(9.0))), paid(dollars, tokens))

    assert cost(0.2, 300) == (await soon(ledger.admit("code", cost(9.0)))).cost
    assert await is_admitted(ledger, cost(9.0), "plan") is None, "no plan has cost anything yet"


async def test_expected_is_learned_from_earlier_sessions() -> None:
    ledger = Ledger(Budget(dollars=1.0))
    for dollars in (0.3, 0.4, 0.2):
        ledger.learn("code", cost(dollars))

    assert cost(0.4) == (await soon(ledger.admit("code", cost(9.0)))).cost
    assert Spent() == ledger.spent


async def test_a_new_run_expects_what_calls_cost_in_the_runs_beside_it() -> None:
    shared = Ledger(Budget(dollars=9.0))
    one, other = Ledger(Budget(), shared), Ledger(Budget(), shared)
    one.charge(await soon(one.admit("code", cost(5.0))), paid(0.4))

    assert cost(0.4) == (await soon(other.admit("code", cost(5.0)))).cost


async def test_a_call_must_fit_its_run_and_what_the_runs_share() -> None:
    shared = Ledger(Budget(dollars=1.0))
    rich, poor = Ledger(Budget(), shared), Ledger(Budget(dollars=0.1), shared)

    first = await is_admitted(poor, cost(0.6))
    assert first is not None, "it is alone"
    assert await is_admitted(poor, CENT) is None, "its own budget is full"
    assert await is_admitted(rich, cost(0.6)) is None, "the shared budget is full"
    assert await is_admitted(rich, cost(0.4)) is not None
    poor.charge(first, paid(0.2))
    assert (0.2, 0.2, 0.0) == tuple(one.spent.dollars for one in (shared, poor, rich))


async def test_the_limit_of_a_parent_is_not_the_runs_own() -> None:
    shared = Ledger(Budget(dollars=1.0))
    run = Ledger(Budget(dollars=5.0), shared)
    run.charge(await soon(run.admit("code", cost(1.0))), paid(1.0))

    assert None is run.own_limit()
    assert (
        shared.own_limit()
        == run.shared_limit()
        == Ended(kind="dollars", detail="$1.00 of $1.00 spent")
    )
    assert None is shared.shared_limit()
    assert run.limits_dollars
    assert not Ledger(Budget()).limits_dollars


def test_attempts_count_in_the_run_and_in_what_the_runs_share() -> None:
    shared = Ledger(Budget(attempts=3))
    one, other = Ledger(Budget(attempts=2), shared), Ledger(Budget(attempts=9), shared, attempts=4)

    for run in (one, one, other):
        run.begin_attempt()

    assert (2, 5, 3) == (one.attempts, other.attempts, shared.attempts)
    assert one.own_limit() == Ended(kind="attempts", detail="2 attempts made")
    assert other.shared_limit() == Ended(kind="attempts", detail="3 attempts made")


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (Budget(), None),
        (Budget(attempts=8, tokens=2_001, dollars=1.01, minutes=3.1), None),
        (Budget(attempts=7, tokens=1), Ended(kind="attempts", detail="7 attempts made")),
        (Budget(tokens=2_000), Ended(kind="tokens", detail="2,000 of 2,000 tokens used")),
        (Budget(dollars=0.5), Ended(kind="dollars", detail="$1.00 of $0.50 spent")),
        (Budget(minutes=0.5), Ended(kind="minutes", detail="0.5 minutes passed")),
    ],
)
def test_the_first_limit_that_is_reached_is_named(budget: Budget, expected: Ended | None) -> None:
    assert expected == reached(budget, 7, Cost(tokens=2_000, dollars=1.0), 3.0)


@pytest.mark.parametrize("seed", range(20))
async def test_many_runs_in_parallel_exceed_a_shared_limit_by_one_call_at_most(seed: int) -> None:
    """No call costs more than what was expected of it; how many fit, and which wait, is up to chance."""
    chance = random.Random(seed)
    shared = Ledger(Budget(dollars=1.0))
    runs = [Ledger(Budget(dollars=chance.uniform(0.1, 2)), shared) for _ in range(3)]
    most = 0.0

    async def ask(run: Ledger) -> None:
        nonlocal most
        while True:
            dollars = chance.uniform(0.01, 0.3)
            reservation = await run.admit("code", cost(dollars))
            dollars = min(dollars, reservation.cost.dollars)
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            most = max(most, dollars)
            run.charge(reservation, paid(dollars) if chance.random() < 0.8 else Spent())

    asking = [ask(run) for run in runs for _ in range(8)]
    ended = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 10)

    assert {LimitReached} == set(map(type, ended))
    assert pytest.approx(sum(run.spent.dollars for run in runs)) == shared.spent.dollars
    for ledger in (shared, *runs):
        assert ledger.spent.dollars < (ledger.budget.dollars or 0.0) + most


async def test_an_answer_to_any_run_of_a_shared_budget_shows_that_the_model_answers() -> None:
    shared = Ledger(Budget())
    one, other = Ledger(Budget(), shared), Ledger(Budget(), shared)
    lost = Spent(calls=1, lost_calls=1)
    one.charge(await one.admit("plan", CENT), lost)
    assert not one.was_answered

    one.charge(await one.admit("plan", CENT), paid(0.01))

    assert (True, True) == (one.was_answered, other.was_answered)


async def test_a_lost_call_teaches_nothing_about_the_usual_cost() -> None:
    ledger = Ledger(Budget())
    ledger.charge(await ledger.admit("plan", cost(9.0)), Spent(calls=1, lost_calls=1, dollars=9.0))

    assert cost(0.5) == (await ledger.admit("plan", cost(0.5))).cost
