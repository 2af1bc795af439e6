"""What calls took, added up by the database as it is from the calls themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import store_samples as samples
from sqlalchemy import Connection, create_engine, inspect, text

from stark.core.call import Call
from stark.core.node import Selection
from stark.core.usage import RoleUsage, Tokens, Usage, by_role, role_usage
from stark.store import Store
from stark.store.schema import VERSION_TABLE

UNTOLD = Usage(calls=1, input_tokens=None, output_tokens=None, dollars=None, seconds=1.5)


@pytest.fixture
def begun(store: Store) -> Iterator[Store]:
    fill(store, "relu")
    yield store


def fill(store: Store, run_id: str) -> None:
    """Two attempts of two roles, of whose calls some told no tokens."""
    store.create_run(samples.run(run_id))
    for attempt in (1, 2):
        store.begin_attempt(run_id, attempt, Selection(parent=0, action="improve"))
    for call in calls():
        store.add_call(run_id, call)


def calls() -> list[Call]:
    told, other = samples.call(1), samples.call(1, 1, text="Écrivez « ça » … \udc80", reply="Ω")
    untold = other.model_copy(
        update={"role": "code", "reply": other.reply.model_copy(update={"usage": UNTOLD})}
    )
    later = untold.model_copy(update={"attempt": 2, "turn": 0, "role": "plan"})
    return [told, untold, later]


def added_up(some: list[Call]) -> tuple[RoleUsage, ...]:
    return by_role(
        role_usage(call.role, call.reply.usage, call.asked_bytes, call.answered_bytes)
        for call in some
    )


def test_the_database_adds_up_as_the_calls_do(begun: Store) -> None:
    assert {"relu": added_up(calls())} == begun.spent()


def test_what_is_told_and_what_is_estimated_stay_apart(begun: Store) -> None:
    plan, code = begun.spent()["relu"]

    assert ("plan", 2, 800, 20) == (plan.role, plan.calls, plan.input.told, plan.output.told)
    assert (plan.input.estimated, plan.output.estimated) == (code.input.estimated, 1)
    assert Tokens(estimated=1) == code.output, "Ω is two bytes"
    assert (None, 1.5) == (code.dollars, code.seconds)


def test_runs_and_later_attempts_do_not_count_for_others(begun: Store) -> None:
    fill(begun, "other")
    begun.create_run(samples.run("silent"))

    assert {"relu", "other"} == set(begun.spent())
    first = [call for call in calls() if call.attempt == 1]
    assert added_up(first) == begun.outcome("relu", 1).roles
    assert added_up(calls()) == begun.outcome("relu", 30).roles
    assert () == begun.outcome("silent", 30).roles


def test_a_store_of_before_is_filled_in(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stark.db"
    with Store.open(url) as store:
        fill(store, "relu")
        expected = store.spent()
    engine = create_engine(url)
    with engine.begin() as connection:
        _take_back(connection)
        assert "seconds" not in {each["name"] for each in inspect(connection).get_columns("calls")}
    engine.dispose()

    with Store.open(url) as store:
        assert expected == store.spent()
        assert calls() == store.calls("relu")


def _take_back(connection: Connection) -> None:
    """To the tables as a version before had them."""
    for name in ("seconds", "asked_bytes", "answered_bytes"):
        connection.execute(text(f"ALTER TABLE calls DROP COLUMN {name}"))
    connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0003'"))
