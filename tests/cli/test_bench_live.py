from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from stark.benches.running import InRun, Left, Opened, Progress
from stark.cli.bench_live import BenchLines, BenchScreen, open_bench_progress
from stark.core.bench import Bench, Cell
from stark.core.evaluation import Evaluation
from stark.core.node import Selection
from stark.core.usage import Budget, Spent
from stark.events import (
    AttemptFinished,
    CheckBegan,
    CheckFinished,
    JudgedElsewhere,
    JudgingElsewhere,
    Started,
    Stepped,
)
from stark.ledger import Ledger
from stark.search.tree import Tree
from support.nodes import EAGER_MS, correct, failing, failure, working

CELLS = tuple(
    Cell(problem=f"problem{n}", level="own", strategy="stark", seed=1, run_id=f"run-{n}")
    for n in range(1, 41)
)
BENCH = Bench(
    name="own-1a2b",
    created=datetime(2026, 1, 1, tzinfo=UTC),
    cells=CELLS,
    attempts=30,
    budget=Budget(attempts=1200, dollars=50.0),
)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120, height=20, force_terminal=False, markup=False)


def drawn(console: Console, screen: BenchScreen) -> str:
    with console.capture() as captured:
        console.print(screen.screen())
    return captured.get()


def progress(**changes: int) -> Progress:
    return Progress(Ledger(BENCH.budget, elapsed_s=754.0), **changes)


def started(cell: Cell, tree: Tree) -> InRun:
    """The run of a cell began; screens read its tree alone."""
    anything: Any = None
    return InRun(cell, Started(anything, anything, tree, anything))


def test_the_screen_shows_runs_in_flight_and_what_is_spent(console: Console) -> None:
    screen, going = BenchScreen(console), progress()
    tree = Tree.replay(EAGER_MS, [working(1)])
    screen.handle(Opened(BENCH, 3, going))
    screen.handle(started(CELLS[0], tree))
    tree.begin(2, Selection(parent=1, action="improve"))
    screen.handle(InRun(CELLS[0], Stepped(2, "plan")))
    going.ledger.spent_by_role["plan"] = Spent(
        calls=1, input_tokens=1000, output_tokens=234, dollars=1.5
    )

    text = drawn(console, screen)

    assert "own-1a2b  40 problems x stark x 1 seed, 30 attempts each" in text
    assert "problem1  stark 1  1/30  2.00x vs eager" in text and "planning 0:00" in text
    assert "1 run in flight: 1 attempt with a model, 0 with a judge" in text
    assert "12:34 · $1.50 of $50.00 · 3 of 40 runs · 0 of 1,200 attempts · none correct" in text
    console.width = 60
    assert "12:34 · $1.50 of $50.00 · 3 of 40 runs" in drawn(console, screen)


def test_an_attempt_that_finished_is_counted_and_a_run_that_ended_leaves(console: Console) -> None:
    screen, going = BenchScreen(console), progress(finished=12, correct=6)
    tree = Tree.replay(EAGER_MS, [])
    screen.handle(Opened(BENCH, 0, going))
    screen.handle(started(CELLS[0], tree))
    for node in (working(1), failing(2)):
        screen.handle(InRun(CELLS[0], Stepped(node.id, "judge")))
        tree.add(node)
        screen.handle(InRun(CELLS[0], AttemptFinished(node)))
    screen.handle(Left(CELLS[0], "30 attempts made", ended=True))

    text = drawn(console, screen)

    assert "problem1 stark seed 1: 2.00x vs eager" in text and "; 30 attempts made" in text
    assert "1 of 40 runs · 12 of 1,200 attempts · 50% correct" in text
    assert "measuring references" in text


def test_many_runs_in_flight_fit_the_screen(console: Console) -> None:
    screen = BenchScreen(console)
    screen.handle(Opened(BENCH, 0, progress()))
    for cell in CELLS:
        screen.handle(started(cell, Tree(EAGER_MS)))
        screen.handle(InRun(cell, Stepped(1, "judge")))

    text = drawn(console, screen)

    assert len(text.splitlines()) <= console.height
    assert "and 28 more" in text
    assert "40 runs in flight: 0 attempts with a model, 40 with a judge" in text


def test_lines_say_how_each_run_ended(console: Console) -> None:
    lines = BenchLines(console)
    with console.capture() as captured:
        lines.handle(Opened(BENCH, 2, progress(finished=60)))
        lines.handle(started(CELLS[2], Tree.replay(EAGER_MS, [working(1)])))
        lines.handle(Left(CELLS[2], "30 attempts made", ended=True))
        lines.handle(Left(CELLS[3], "no answer", ended=False))

    said = captured.get().splitlines()
    assert "continues after 2 runs and 60 attempts" == said[1]
    assert said[2].startswith("[3/40] problem3 stark seed 1: 2.00x vs eager [2.00, 2.00]; 30 ")
    assert "[3/40] problem4 stark seed 1: no answer (run-4)" == said[3], "it was not worked on"


@pytest.mark.parametrize(
    ("found", "said"),
    [(correct(EAGER_MS / 3), "3.00x vs eager"), (failure("incorrect"), "no correct kernel")],
)
def test_what_the_final_check_found_replaces_what_the_search_measured(
    console: Console, found: Evaluation, said: str
) -> None:
    lines, screen = BenchLines(console), BenchScreen(console)
    tree = Tree.replay(EAGER_MS, [working(1)])
    events = (
        Opened(BENCH, 0, progress()),
        started(CELLS[0], tree),
        InRun(CELLS[0], CheckBegan(tree.node(1))),
        InRun(CELLS[0], CheckFinished(tree.node(1), found)),
        InRun(CELLS[0], JudgingElsewhere(tree.node(1), "another kind")),
        InRun(CELLS[0], JudgedElsewhere(tree.node(1), "another kind", correct(EAGER_MS / 9))),
        Left(CELLS[0], "30 attempts made", ended=True),
    )
    with console.capture() as captured:
        for event in events:
            lines.handle(event)
            screen.handle(event)

    assert f"[1/40] problem1 stark seed 1: {said}" in captured.get()
    assert f"problem1 stark seed 1: {said}" in drawn(console, screen)


@pytest.mark.parametrize(("term", "kind"), [("xterm", BenchScreen), ("dumb", BenchLines)])
def test_only_a_terminal_that_can_be_redrawn_has_a_screen(term: str, kind: type) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": term})

    assert kind is type(open_bench_progress(console))
