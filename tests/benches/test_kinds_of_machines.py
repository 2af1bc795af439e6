"""A bench whose leaders are judged on two kinds of machines."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from stark.benches.document import report_document, write_report
from stark.benches.report import make_report
from stark.benches.running import unfinished
from stark.benches.tables import sheets
from stark.core.errors import JudgeUnavailable
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.store import Store
from support import benches as samples
from support.executor import FakeExecutor, kind_of
from support.nodes import DEVICE, failure

TITLE = "Kinds of machines"
OWN, OTHER = kind_of(DEVICE), kind_of(samples.OTHER)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


@pytest.mark.slow
async def test_the_other_kind_is_a_column_beside_figures_that_it_does_not_change(
    store: Store, tmp_path: Path, without_pictures: None
) -> None:
    await samples.work(store, samples.on_two_kinds(store), executor=samples.two_kinds())
    report = make_report(store, store.bench("last"))
    with Store.open("sqlite://") as other:
        await samples.work(other, samples.new_bench(other))
        alone = make_report(other, other.bench("last"))

    assert samples.timeless(alone)["summaries"] == samples.timeless(report)["summaries"]
    assert [one.outcome.best_attempt for one in alone.results] == [
        one.outcome.best_attempt for one in report.results
    ]
    assert TITLE not in {sheet.title for sheet in sheets(alone)}
    assert () == report_document(alone).classes

    (sheet,) = (sheet for sheet in sheets(report) if sheet.title == TITLE)
    assert ("Invented GPU, 80 GB", "Other GPU, 80 GB") == sheet.columns[-2:]
    eager = [row for row in sheet.rows if row[5] == "eager"]
    assert [one.cell.problem for one in report.ended if one.best] == [row[2] for row in eager]
    for row, result in zip(eager, (one for one in report.ended if one.best), strict=True):
        ratio = result.speedup("eager")
        assert row[-2].startswith(f"{ratio:.2f}x ["), row
        assert row[-1] == "3.00x [3.00, 3.00], 333 µs of 1.00 ms"

    write_report(report, tmp_path)
    assert f"## {TITLE}" in (tmp_path / "report.md").read_text()
    rows = list(csv.DictReader((tmp_path / "classes.csv").open()))
    assert len(report_document(report).classes) == len(rows)
    assert {(OWN, "True"), (OTHER, "False")} == {(row["device_class"], row["own"]) for row in rows}
    best = [row for row in rows if row["best"] == "True" and row["own"] == "False"]
    assert len(eager) == len(best)
    assert {3.0} == {round(float(row["speedup_vs_eager"]), 6) for row in best}


async def test_a_leader_that_fails_elsewhere_says_so_there(store: Store) -> None:
    problem = samples.EXAMPLES / "moving_average.py"
    bench = samples.on_two_kinds(store, strategies=("stark",), problems=[problem])
    other = FakeExecutor(lambda _: failure("out_of_memory"), device=samples.OTHER)

    await samples.work(store, bench, executor=FakeExecutor(others=(other,)))

    (sheet,) = (each for each in sheets(make_report(store, bench)) if each.title == TITLE)
    assert {"out of memory"} == {row[-1] for row in sheet.rows}
    (own, elsewhere) = report_document(make_report(store, bench)).classes
    assert ("correct", "out_of_memory") == (own["status"], elsewhere["status"])
    assert elsewhere["latency_ms"] is None


async def test_kinds_with_the_same_device_are_named_with_their_versions(store: Store) -> None:
    problem = samples.EXAMPLES / "moving_average.py"
    bench = samples.new_bench(
        store,
        strategies=("stark",),
        problems=[problem],
        device_class="torch 2.13",
        other_classes=("torch 2.14",),
    )
    other = FakeExecutor(versions={"torch": "2.14.0"})

    await samples.work(store, bench, executor=FakeExecutor(others=(other,)))

    (sheet,) = (each for each in sheets(make_report(store, bench)) if each.title == TITLE)
    name = "Invented GPU, 80 GB; torch"
    assert (f"{name} 2.13.0", f"{name} 2.14.0") == sheet.columns[-2:]


@pytest.mark.slow
async def test_a_kind_that_no_judge_offers_ends_the_session_before_any_model_is_asked(
    store: Store,
) -> None:
    bench, (models, model) = samples.on_two_kinds(store), samples.scripted()

    with pytest.raises(JudgeUnavailable, match="no judge is a machine of kind 'Other'"):
        await samples.work(store, bench, 4, FakeExecutor(), models)

    assert [] == model.asked
    assert list(bench.cells) == unfinished(store, bench)


@pytest.mark.slow
async def test_the_reference_is_measured_once_on_each_kind(store: Store) -> None:
    described: list[tuple[str, str]] = []

    class Noting(FakeExecutor):
        async def describe(self, problem: Problem) -> Reference:
            described.append((self._device.name, problem.name))
            return await super().describe(problem)

    executor = Noting(others=(Noting(device=samples.OTHER),))
    await samples.work(store, samples.on_two_kinds(store), executor=executor)

    assert 6 == len(described) == len(set(described))
