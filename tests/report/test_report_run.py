from __future__ import annotations

import pytest
from report_samples import RUN, reference, text_of
from rich.console import Console

from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.node import Node
from stark.core.usage import Spent
from stark.report.document import run_document
from stark.report.run import run_text, runs_table
from stark.report.runs_document import RunLine
from stark.report.view import RunView
from support.nodes import EAGER_MS, correct, failing, failure, measurement, working

GROUPED = (working(1, latency_ms=0.500), working(2, latency_ms=0.499), working(3, latency_ms=0.9))


def view(*nodes: Node, **more: object) -> RunView:
    return RunView(RUN, reference(), nodes, (), **more)  # type: ignore[arg-type]


def unsure(node: Node) -> Node:
    """The same with an interval of about ten percent on either side."""
    found = node.evaluation
    assert found.status == "correct"
    candidate = found.candidate.model_copy(update={"resolution_ms": found.latency_ms / 10})
    return node.model_copy(update={"evaluation": found.model_copy(update={"candidate": candidate})})


def test_what_cannot_be_told_apart_is_shown_as_one_group() -> None:
    said = text_of(run_text(run_document(view(*map(unsure, GROUPED))), 200))

    assert "★ 2: fastest by measured speedup" in said
    assert "= 1 cannot be told apart from it: their 95 % intervals overlap" in said
    rows = [line.split()[:2] for line in said.splitlines() if line.strip()[:1] in "★= "]
    assert ["★", "2"] in rows and ["=", "1"] in rows


def test_a_single_leader_needs_no_group() -> None:
    said = text_of(run_text(run_document(view(working(1), working(2, latency_ms=0.25))), 200))

    assert "★ 2: fastest by measured speedup" in said
    assert "told apart" not in said


def test_the_star_goes_to_what_the_final_check_found_fastest() -> None:
    checks = {2: failure("incorrect"), 1: correct(0.5)}
    checked = view(working(1), working(2, latency_ms=0.25), promotions=checks)

    said = text_of(run_text(run_document(checked), 200))

    assert "★ 1: the only one that passed the final check" in said
    assert "final check of attempt 2: incorrect" in said
    assert checked.winner == checked.best == working(1)


def test_the_best_of_the_search_is_no_winner_before_a_final_check() -> None:
    searched = view(working(1), failing(2))

    assert working(1) == searched.best
    assert searched.winner is None
    document = run_document(searched)
    assert (1, (1,), False) == (document.best, document.group, document.confirmed)


def test_an_attempt_faster_than_the_roofline_is_called_doubtful() -> None:
    said = text_of(run_text(run_document(view(working(1, latency_ms=0.005), working(2))), 200))

    assert "1: roofline unknown: the kernel is faster than the memory estimate of 0.01 ms" in said
    assert 2 == said.count("unknown  2e-07  reference  Strategy")


def test_a_noisy_interval_is_printed_as_noisy() -> None:
    found = correct(0.5)
    candidate = found.candidate.model_copy(update={"resolution_ms": 500.0})
    noisy = working(1).model_copy(
        update={"evaluation": found.model_copy(update={"candidate": candidate})}
    )

    said = text_of(run_text(run_document(view(noisy)), 200))
    assert "2.00x [0.00, 2002.00], too noisy" in said
    assert "★ correct" in said and "★ best" not in said


def test_correct_attempts_that_are_no_leaders_are_counted() -> None:
    six = view(*(working(id, latency_ms=id / 10) for id in range(1, 7)))

    assert "1 more correct attempt only in the tree" in text_of(run_text(run_document(six), 200))
    five = text_of(run_text(run_document(view(*six.nodes[:5])), 200))
    assert "only in the tree" not in five and "★ best" in five


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_screen_cuts_no_number(columns: int) -> None:
    nodes = [working(id, latency_ms=EAGER_MS / 123.45) for id in range(1, 40)]
    console = Console(width=columns, markup=False)
    with console.capture() as capture:
        console.print(run_text(run_document(view(*nodes)), columns))

    lines = capture.get().splitlines()
    assert all(len(line.rstrip()) <= columns for line in lines)
    table = lines[lines.index(next(line for line in lines if "vs eager" in line)) + 1]
    assert ["123.45x", "[123.45,", "123.45]", "unknown"] == table.split()[4:8]


def test_a_chain_of_repairs_is_one_failure_debugged() -> None:
    repairs = failing(2, parent=1, action="debug"), working(3, parent=2, action="debug")

    said = text_of(run_text(run_document(view(failing(1), *repairs, failing(4))), 200))

    assert "4 attempts: 1 correct, 3 incorrect; 1 failure debugged, 1 repaired" in said


def test_eagers_time_beside_an_attempt_is_shown_if_it_differs() -> None:
    slower = working(1, latency_ms=0.5)
    found = slower.evaluation
    assert isinstance(found, Correct)
    drifted = found.model_copy(update={"references": {"eager": measurement(1.3 * EAGER_MS)}})
    steady = found.model_copy(update={"references": {"eager": measurement(1.05 * EAGER_MS)}})

    said = text_of(
        run_text(run_document(view(slower.model_copy(update={"evaluation": drifted}))), 200)
    )
    same = text_of(
        run_text(run_document(view(slower.model_copy(update={"evaluation": steady}))), 200)
    )

    assert 2 == said.count("(eager beside it 1.30 ms)")
    assert 1 == said.count("the median of paired ratios to eager's time beside the kernel")
    assert "eager beside it" not in same and "eager's time beside" not in same


def test_calls_without_replies_are_counted() -> None:
    said = text_of(run_text(run_document(view(in_flight=1, failed=2)), 200))

    assert "1 call in flight, 2 calls failed" in said
    assert "no model was called" not in said
    assert "no model was called" in text_of(run_text(run_document(view()), 200))


@pytest.mark.parametrize(
    ("seconds", "lost", "prepared"), [(0.2, 0, True), (60, 0, False), (0, 2, False)]
)
def test_replies_that_came_at_once_are_said_to_be_prepared(
    seconds: float, lost: int, prepared: bool
) -> None:
    spent = Spent(calls=2, lost_calls=lost, seconds=seconds)
    said = run_document(view(charged={"solo": spent})).spending_notes

    assert prepared == any("prepared before the run" in note for note in said)


def test_noisy_speedups_are_marked_in_the_list_of_runs() -> None:
    wide = Speedup(reference="eager", ratio=2.0, low=0.5, high=9.0)
    line = RunLine(
        id="a-1",
        created=RUN.created,
        problem="a",
        strategy="stark",
        language="cpp",
        attempts=1,
        budget_attempts=1,
        correct=1,
        best_attempt=1,
        latency_ms=0.5,
        speedup=wide,
        confirmed=False,
        ended=None,
        roles={},
        in_flight=False,
        vs_compile=None,
        latency_text="500 µs",
        speedup_text="2.00x, too noisy",
        compile_text="",
        tokens_text="",
        price_text="",
    )

    assert "noisy 2.00x" in text_of(runs_table([line]))
