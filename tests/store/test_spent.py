"""What calls cost, added up by the database as it is from the calls themselves."""

from __future__ import annotations

import pytest
import store_samples as samples

from stark.core.call import Call, Lost, spent_by_role
from stark.core.errors import StoreError
from stark.core.usage import Cost, Spent, Usage
from stark.store import Store

SILENT = Usage(seconds=1.5)
"""Of a model that reports neither tokens nor a price."""


@pytest.fixture
def begun(store: Store) -> Store:
    fill(store, "relu")
    return store


def fill(store: Store, run_id: str) -> None:
    """Two attempts of two roles; some calls report no tokens and no price."""
    store.create_run(samples.run(run_id))
    for attempt in (1, 2):
        store.begin_attempt(run_id, attempt, samples.IMPROVE_ROOT)
    for call in calls():
        samples.answer(store, run_id, call)


def calls() -> list[Call]:
    reported, other = samples.call(1), samples.call(1, 1, text="Écrivez « ça » … \udc80", reply="Ω")
    silent = other.model_copy(
        update={"role": "code", "reply": other.reply.model_copy(update={"usage": SILENT})}
    )
    later = silent.model_copy(update={"attempt": 2, "turn": 0, "role": "plan"})
    return [reported, silent, later]


def test_the_database_adds_up_as_the_calls_do(begun: Store) -> None:
    assert {"relu": spent_by_role(calls())} == begun.spent() == begun.spent("relu")
    assert ["plan", "code"] == list(begun.spent("relu")["relu"]), "in the order of their first call"
    code = begun.spent()["relu"]["code"]
    assert (1, 1, 1.5) == (code.estimated_calls, code.unpriced_calls, code.seconds)
    assert 1 == code.output_tokens, "Ω is two bytes"


def test_runs_and_later_attempts_do_not_count_for_others(begun: Store) -> None:
    fill(begun, "other")
    begun.create_run(samples.run("silent"))

    assert {"relu", "other"} == set(begun.spent())
    assert {} == begun.spent("silent")
    first = [call for call in calls() if call.attempt == 1]
    assert spent_by_role(first) == begun.outcome("relu", 1).roles
    assert spent_by_role(calls()) == begun.outcome("relu", 30).roles
    assert {} == begun.outcome("silent", 30).roles


def test_what_was_in_flight_at_a_kill_is_lost_and_charged_as_reserved(begun: Store) -> None:
    fill(begun, "other")
    for attempt, role in ((1, "debug"), (2, "plan")):
        samples.ask(begun, "relu", attempt, role)
    samples.ask(begun, "other")
    assert [] == begun.lost_calls("relu"), "they may still be answered"
    assert spent_by_role(calls()) == begun.spent("relu")["relu"]

    begun.reopen_run("relu")

    lost = begun.lost_calls("relu")
    assert [
        Lost(role=role, model="claude-sonnet-4", reserved=samples.RESERVED)
        for role in ("debug", "plan")
    ] == lost
    assert spent_by_role([*calls(), *lost]) == begun.spent("relu")["relu"]
    assert spent_by_role([*calls()[:2], lost[0]]) == begun.outcome("relu", 1).roles
    assert [] == begun.lost_calls("other"), "another process may be working on it"
    begun.reopen_run("relu")
    assert lost == begun.lost_calls("relu")


def test_a_question_that_was_refused_costs_nothing_and_one_that_was_abandoned_its_reservation(
    begun: Store,
) -> None:
    before = begun.spent("relu")["relu"]
    begun.settle_call("relu", samples.ask(begun, "relu", role="debug"), "refused")
    begun.reopen_run("relu")
    assert before == begun.spent("relu")["relu"]

    begun.settle_call("relu", samples.ask(begun, "relu", role="debug"), "lost")
    lost = Spent(calls=1, input_tokens=4_000, estimated_calls=1, dollars=0.0625, lost_calls=1)
    assert before | {"debug": lost} == begun.spent("relu")["relu"]


def test_a_reply_that_is_stored_already_leaves_its_question_open(begun: Store) -> None:
    """What it cost is not known, so it counts as lost when the run goes on."""
    with pytest.raises(StoreError, match="storing turn 0 of attempt 1"):
        samples.answer(begun, "relu", samples.call(1))
    begun.reopen_run("relu")
    assert 1 == len(begun.lost_calls("relu"))


def test_a_question_belongs_to_an_attempt_that_was_begun(begun: Store) -> None:
    with pytest.raises(StoreError, match="storing a model call of run relu"):
        samples.ask(begun, "relu", attempt=9)


def test_calls_without_a_reply_are_counted(begun: Store) -> None:
    ask = ("relu", 1, "plan", "exec:a", Cost(tokens=1))
    begun.begin_call(*ask)
    for _ in range(2):
        begun.settle_call("relu", begun.begin_call(*ask), "refused")

    assert {"in_flight": 1, "refused": 2} == begun.unanswered("relu")
