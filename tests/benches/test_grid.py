from __future__ import annotations

from collections.abc import Iterator

import pytest

from stark.benches.grid import lay_out
from stark.benches.suite import Suite, folders
from stark.core.errors import UsageError
from stark.core.judging import Limits, Tools
from stark.core.usage import Budget
from stark.store import Store
from support import benches as samples

SUITE = folders([samples.EXAMPLES])


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def test_every_problem_meets_every_strategy_and_seed() -> None:
    bench, runs = lay_out(SUITE, (1, 2), samples.configs(30))

    assert 9 * 3 * 2 == len(bench.cells) == len({cell.run_id for cell in bench.cells})
    assert [run.id for run in runs] == [cell.run_id for cell in bench.cells]
    first = bench.cells[0]
    assert ("depthwise_hardswish", "examples", "stark", 1) == (
        first.problem,
        first.level,
        first.strategy,
        first.seed,
    )
    assert Budget(attempts=54 * 30) == bench.budget


def test_the_same_request_leads_to_the_same_names() -> None:
    one, _ = lay_out(SUITE, (1,), samples.configs(30))
    again, _ = lay_out(SUITE, (1,), samples.configs(30))

    assert (one.name, one.cells) == (again.name, again.cells)
    assert one.name.startswith("examples-")


@pytest.mark.parametrize(
    "change",
    [
        {"budget": Budget(attempts=31)},
        {"language": "cuda"},
        {"executor": "local:cpu"},
        {"parallel": 2},
        {"window_tokens": 8000},
        {"limits": Limits(build_s=600)},
        {"limits": Limits(precision="tf32")},
        {"tools": Tools(sanitizer=True)},
    ],
    ids=str,
)
def test_what_changes_a_run_changes_its_name(change: dict[str, object]) -> None:
    one, _ = lay_out(SUITE, (1,), samples.configs(30))
    other, _ = lay_out(SUITE, (1,), samples.configs(30, **change))

    assert not {cell.run_id for cell in one.cells} & {cell.run_id for cell in other.cells}
    assert one.name != other.name


def test_a_larger_bench_shares_the_runs_of_a_smaller_one(store: Store) -> None:
    small = Suite("examples", SUITE.members[:2])
    few, _ = lay_out(small, (1,), samples.configs(30))
    many, _ = lay_out(SUITE, (1, 2), samples.configs(30))

    assert {cell.run_id for cell in few.cells} < {cell.run_id for cell in many.cells}


def test_a_bench_that_is_asked_for_again_is_found_and_gets_the_new_budget(store: Store) -> None:
    first = samples.new_bench(store)
    again = samples.new_bench(store, budget=Budget(attempts=7))

    assert (first.created, first.cells) == (again.created, again.cells)
    assert Budget(attempts=7) == again.budget == store.bench(first.name).budget
    assert 1 == len(store.benches())


def test_another_bench_cannot_take_the_name(store: Store) -> None:
    samples.new_bench(store, name="mine")

    with pytest.raises(UsageError, match=r"the store already has a bench mine.*another name"):
        samples.new_bench(store, seeds=2, name="mine")


@pytest.mark.parametrize("name", ["../x/y", "/x", "a b", ".hidden", "..", "a\n", ""])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a bench"):
        lay_out(SUITE, (1,), samples.configs(30), name)


def test_a_default_name_holds_what_a_name_may_hold() -> None:
    odd = Suite(".my problems (2)", SUITE.members[:1])

    bench, _ = lay_out(odd, (1,), samples.configs(30))

    assert bench.name.startswith("my-problems-2--")
    assert bench.name == lay_out(odd, (1,), samples.configs(30), bench.name)[0].name
