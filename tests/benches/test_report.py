"""A report over the eight examples with a scripted model, and one by hand in every form."""

from __future__ import annotations

import csv
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pytest

from stark.benches.document import write_report
from stark.benches.metrics import geomean
from stark.benches.plots import plots
from stark.benches.report import Report, make_report
from stark.benches.results import Result
from stark.benches.tables import markdown, sheets
from stark.core.bench import Bench
from stark.core.call import spent_by_role
from stark.core.errors import UsageError
from stark.core.usage import Budget, Spent
from stark.search.repairs import failures_repaired
from stark.store import Store
from support import benches as samples
from support.benches import attempt, kernel, result


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


@pytest.mark.slow
async def test_the_report_agrees_with_the_trees_of_the_runs(store: Store) -> None:
    bench = samples.new_bench(store, attempts=8, seeds=2)
    await samples.work(store, bench)

    report = make_report(store, bench)

    assert ["stark", "sampling", "search-only"] == [one.strategy for one in report.summaries]
    for one in report.summaries:
        runs = [cell.run_id for cell in bench.cells if cell.strategy == one.strategy]
        trees = [store.nodes(run) for run in runs]
        best = [
            max(works, key=lambda node: node.speedup_vs_eager or 0.0)
            for nodes in trees
            if (works := [node for node in nodes if node.works])
        ]
        speedups = [node.speedup_vs_eager or 0.0 for node in best]
        eager, compiled = one.against["eager"], one.against["compile"]
        assert eager.of_correct is not None
        assert (6, 3, len(best) / 6) == (one.runs, one.problems, one.success)
        assert sum(value > 1 for value in speedups) / 6 == eager.fast[1.0]
        assert geomean(speedups + [1.0] * (6 - len(best))) == pytest.approx(eager.of_all.geomean)
        assert (median(speedups), min(speedups)) == (
            eager.of_correct.median,
            eager.of_correct.worst,
        )
        assert 0.8 * geomean(speedups) == pytest.approx(compiled.of_correct.geomean)  # type: ignore[union-attr]
        assert "max-autotune" not in one.against
        nodes = [node for tree in trees for node in tree]
        assert sum(node.works for node in nodes) / 48 == one.correct_share
        repairs = [failures_repaired(tree) for tree in trees]
        assert (sum(taken for taken, _ in repairs), sum(fixed for _, fixed in repairs)) == (
            one.failures_taken_up,
            one.failures_repaired,
        )
        calls = [call for run in runs for call in store.calls(run)]
        assert spent_by_role(sorted(calls, key=lambda call: call.attempt)) == one.roles
        assert not one.spent.estimated_calls and one.spent.dollars
    assert {("stark", "sampling"), ("stark", "search-only")} == {
        (one.strategy, one.other) for one in report.differences
    }


async def test_a_report_of_an_unfinished_bench_counts_what_has_ended(store: Store) -> None:
    bench = samples.new_bench(store, budget=Budget(attempts=30))
    await samples.work(store, bench)

    report = make_report(store, bench)

    ended = len(report.ended)
    assert 0 < ended < 9
    assert f"{ended} of 9 runs have ended; the others do not count" == report.notes[0]
    assert len(report.compared) == sum(one.runs for one in report.summaries)
    assert ended == sum(one.runs for one in report.own_summaries or report.summaries)


async def test_a_report_says_that_all_runs_have_ended(store: Store) -> None:
    problem = samples.EXAMPLES / "moving_average.py"
    notes = []
    for seeds in (1, 2):
        bench = samples.new_bench(store, 1, seeds, strategies=("sampling",), problems=[problem])
        await samples.work(store, bench)
        notes.append(make_report(store, bench).notes[0])

    assert ["the run has ended", "all 2 runs have ended"] == notes


def test_the_benchs_first_strategy_stays_first_if_another_ended_a_run_before_it() -> None:
    report = by_hand(
        result("a", kernel(4.0), strategy="stark", ended=None),
        result("a", kernel(1.0), strategy="sampling"),
        result("b", kernel(4.0), strategy="stark"),
        result("b", kernel(2.0), strategy="sampling"),
    )

    assert ["stark", "sampling"] == [one.strategy for one in report.summaries]
    assert {("stark", "sampling", 1)} == {
        (one.strategy, one.other, one.problems) for one in report.differences
    }


def test_strategies_are_compared_on_what_all_of_them_finished() -> None:
    """A total limit stops strategies at different problems; an easy one must not count for one of them alone."""
    report = by_hand(
        result("easy", kernel(9.0), strategy="stark"),
        result("easy", None, strategy="sampling", ended=None),
        result("hard", kernel(1.5), strategy="stark"),
        result("hard", kernel(1.25), strategy="sampling"),
    )

    assert [("stark", 1), ("sampling", 1)] == [(one.strategy, one.runs) for one in report.summaries]
    stark = report.summaries[0].against["eager"]
    assert pytest.approx(1.5) == stark.of_all.mean
    assert [("stark", 2), ("sampling", 1)] == [
        (one.strategy, one.runs) for one in report.own_summaries
    ]
    assert (
        "strategies are compared on the 1 of 2 pairs of problem and seed that all strategies finished"
        in report.notes
    )
    (sheet,) = (sheet for sheet in sheets(report) if sheet.title == "Every finished run")
    assert [("level1", "stark", "2", "100.0 %", "100.0 %", "3.67x")] == [
        (*row[:5], row[7]) for row in sheet.rows[:1]
    ]


def test_nothing_is_compared_before_all_strategies_finished_a_problem() -> None:
    report = by_hand(
        result("a", kernel(9.0), strategy="stark"),
        result("a", None, strategy="sampling", ended=None),
    )

    assert ((), ()) == (report.summaries, report.differences)
    assert ["stark"] == [one.strategy for one in report.own_summaries]


@pytest.mark.slow
async def test_attempts_beyond_the_benchs_own_do_not_count(store: Store) -> None:
    bench = samples.new_bench(store, attempts=8)
    await samples.work(store, bench)

    shorter = bench.model_copy(update={"attempts": 3})

    report = make_report(store, shorter)
    assert {3} == {len(one.outcome.attempts) for one in report.results}
    assert {9} == {one.attempts for one in report.summaries}
    assert {3} == {len(course) for course in report.courses.values()}


@pytest.mark.slow
@pytest.mark.usefixtures("without_pictures")
async def test_nothing_has_ended_yet(store: Store, tmp_path: Path) -> None:
    report = make_report(store, samples.new_bench(store))

    assert () == report.summaries == report.own_summaries
    assert not plots(report)
    write_report(report, tmp_path)
    assert "0 of 9 runs have ended" in (tmp_path / "report.md").read_text()


def by_hand(*results: Result) -> Report:
    """The report of results that no store has seen."""

    class Stored(Store):
        def __init__(self) -> None:
            self._outcomes = {one.cell.run_id: one.outcome for one in results}

        def outcome(self, run_id: str, attempts: int):  # type: ignore[no-untyped-def]
            return self._outcomes[run_id]

    bench = Bench(
        name="by-hand",
        created=datetime(2026, 3, 1, tzinfo=UTC),
        cells=tuple(one.cell for one in results),
        attempts=3,
        budget=Budget(attempts=12),
    )
    return make_report(Stored(), bench)


UNPRICED = Spent(calls=2, input_tokens=90, output_tokens=10, estimated_calls=1, unpriced_calls=2)

REPORT = by_hand(
    result("a|b", kernel(4.0), (attempt(1, 4.0),), strategy="stark", elapsed_s=3600),
    result("c", kernel(2.0), (attempt(1), attempt(2, 2.0, 1, "debug")), strategy="stark"),
    result("a|b", None, (attempt(1),), strategy="sampling"),
    result("c", kernel(1.0), (attempt(1, 1.0),), strategy="sampling", roles={"solo": UNPRICED}),
    result("d", kernel(8.0), (attempt(1, 8.0),), level="level2"),
)


def rows(title: str) -> dict[tuple[str, ...], tuple[str, ...]]:
    (sheet,) = (sheet for sheet in sheets(REPORT) if sheet.title == title)
    assert {len(sheet.columns)} == {len(row) for row in sheet.rows}
    return {row[:2]: row[2:] for row in sheet.rows}


def test_tables_have_a_row_for_each_level_and_strategy_and_for_all_levels() -> None:
    assert {
        ("level1", "stark"): (
            "2",
            "100.0 %",
            "100.0 %",
            "50.0 %",
            "100.0 %",
            "2.83x",
            "3.0 %",
            "reference 2",
        ),
        ("level1", "sampling"): (
            "2",
            "50.0 %",
            "0.0 %",
            "0.0 %",
            "0.0 %",
            "1.00x",
            "1.0 %",
            "reference 1",
        ),
        ("level2", "stark"): (
            "1",
            "100.0 %",
            "100.0 %",
            "100.0 %",
            "100.0 %",
            "8.00x",
            "8.0 %",
            "reference 1",
        ),
        ("all", "stark"): (
            "3",
            "100.0 %",
            "100.0 %",
            "66.7 %",
            "100.0 %",
            "4.00x",
            "4.0 %",
            "reference 3",
        ),
        ("all", "sampling"): (
            "2",
            "50.0 %",
            "0.0 %",
            "0.0 %",
            "0.0 %",
            "1.00x",
            "1.0 %",
            "reference 1",
        ),
    } == rows("Kernels")


def test_the_papers_three_means_are_in_one_table() -> None:
    found = rows("Mean speedups")

    assert ("2", "100.0 %", "100.0 %", "3.00x", "not measured", "not measured") == found[
        "level1", "stark"
    ]
    assert ("2", "50.0 %", "0.0 %", "1.00x", "not measured", "not measured") == found[
        "level1", "sampling"
    ]


def test_a_mean_says_how_many_kernels_were_measured() -> None:
    partial = by_hand(result("a", kernel(4.0, compile=2.0)), result("b", kernel(2.0)))
    (sheet,) = (sheet for sheet in sheets(partial) if sheet.title == "Mean speedups")

    assert ("3.00x", "2.00x (1 of 2 measured)", "not measured") == sheet.rows[0][-3:]


def test_few_problems_have_no_interval() -> None:
    (sheet,) = (sheet for sheet in sheets(REPORT) if sheet.title == "Differences")

    assert {"no interval: fewer than 6 problems"} == {row[5] for row in sheet.rows}


def test_search_and_cost_say_what_is_unknown() -> None:
    found = rows("Search and cost")
    assert ("3", "66.7 %", "100.0 % of 1", "1.5", "0", "0", "$0.00", "1.00") == found[
        "level1", "stark"
    ]
    assert ("2", "50.0 %", "-", "1.0", "2", "~100", "unknown", "0.00") == found[
        "level1", "sampling"
    ]


def test_markdown_has_every_table_and_escapes_what_would_break_it() -> None:
    text = markdown(REPORT, ["progress-level1.svg"])

    for sheet in sheets(REPORT):
        assert f"## {sheet.title}\n" in text
    assert "![progress-level1.svg](progress-level1.svg)" in text
    lines = [line for line in text.splitlines() if line.startswith("| level1 | stark |")]
    assert lines


@pytest.mark.usefixtures("without_pictures")
def test_files_hold_the_same_numbers_unrounded(tmp_path: Path) -> None:
    write_report(REPORT, tmp_path)

    document = json.loads((tmp_path / "report.json").read_text())
    with (tmp_path / "summary.csv").open() as file:
        summary = list(csv.DictReader(file))
    with (tmp_path / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    with (tmp_path / "roles.csv").open() as file:
        (role, *_) = csv.DictReader(file)
    assert {
        "level": "level1",
        "strategy": "sampling",
        "role": "solo",
        **{name: str(value) for name, value in UNPRICED.model_dump().items()},
    } == role
    eager = document["summaries"][0]["against"]["eager"]
    assert pytest.approx(8**0.5) == eager["of_all"]["geomean"]
    assert {"eager"} == set(document["summaries"][0]["against"])
    assert 5 == len(document["runs"]) == len(runs)
    first = summary[0]
    assert ("level1", "stark", "eager") == (first["level"], first["strategy"], first["reference"])
    assert (0.5, 1.0) == (float(first["fast_2"]), float(first["repaired_share"]))
    assert pytest.approx(8**0.5) == float(first["geomean_correct"])
    assert ("a|b", "4.0", "") == (
        runs[0]["problem"],
        f"{float(runs[0]['speedup_vs_eager']):.1f}",
        runs[2]["latency_ms"],
    )


@pytest.mark.slow
def test_pictures_are_svg_with_every_strategy_and_problem() -> None:
    pytest.importorskip("matplotlib")
    found = plots(REPORT)

    assert found is not None
    assert {"level1", "level2", "all"} == {name.split("-")[1][:-4] for name in found}
    for name, image in found.items():
        root = ElementTree.fromstring(image)
        words = [element.text for element in root.iter() if element.text]
        assert "stark" in words, name
    words = found["problems-level1.svg"].decode()
    assert all(f">{word}<" in words for word in ("a|b", "c", "sampling", "roofline"))
    assert found == plots(REPORT), "the same report gives the same files"


def test_without_matplotlib_the_report_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    write_report(REPORT, tmp_path)

    assert 'pip install "stark-kernels[plots]"' in (tmp_path / "report.md").read_text()
    assert not list(tmp_path.glob("*.svg"))


@pytest.mark.usefixtures("without_pictures")
def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"cannot be written to .*choose another folder"):
        write_report(REPORT, tmp_path / "file" / "inside")
