from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from stark.cli.live import LiveScreen, PlainLines, open_progress
from stark.core.node import Selection
from stark.core.problem import Problem
from stark.core.run import RECORDED, RoleModel, Run, RunConfig
from stark.core.usage import Budget, Estimate, Spent
from stark.events import (
    CheckFinished,
    Draining,
    JudgedElsewhere,
    JudgingElsewhere,
    Notice,
    Prepared,
    Started,
    Stepped,
)
from stark.ledger import Ledger
from stark.search.tree import Tree
from stark.strategies import strategy
from support.executor import FakeExecutor
from support.nodes import EAGER_MS, correct, failing, failure, working

RUN = Run(
    id="softmax-12ab",
    created=datetime(2025, 1, 1, tzinfo=UTC),
    problem=Problem(name="softmax", source=""),
    config=RunConfig(
        language="triton",
        strategy=strategy("stark"),
        models={"plan": RoleModel(model="exec:planner")},
        executor="local",
        budget=Budget(attempts=30, dollars=5.0, minutes=90.0),
        seed=0,
    ),
    version="0",
)
PREPARED = Prepared(RUN, Estimate(attempts=30, calls=60, tokens=1_500_000, dollars=3.5, minutes=20))
CALL = Spent(calls=1, input_tokens=1000, output_tokens=234, unpriced_calls=1)


def screen_of(console: Console, screen: LiveScreen) -> str:
    with console.capture() as drawn:
        console.print(screen.screen())
    return drawn.get()


def wide(columns: int) -> Console:
    file = io.StringIO()
    return Console(file=file, width=columns, height=14, force_terminal=False, markup=False)


@pytest.fixture
def console() -> Console:
    return wide(110)


async def began(tree: Tree, spent: Spent = CALL, warnings: tuple[str, ...] = ()) -> Started:
    ledger = Ledger(RUN.config.budget, spent={"plan": spent}, elapsed_s=754.0)
    reference = await FakeExecutor(warnings=warnings).describe(RUN.problem)
    return Started(RUN, reference, tree, ledger)


async def screen_with(console: Console, tree: Tree, spent: Spent = CALL) -> LiveScreen:
    screen = LiveScreen(console)
    with console.capture():
        screen.handle(PREPARED)
    screen.handle(await began(tree, spent))
    return screen


async def test_before_the_reference_is_measured(console: Console) -> None:
    screen = LiveScreen(console)
    assert "starting" in screen_of(console, screen)
    with console.capture() as said:
        screen.handle(PREPARED)

    assert "estimate for 30 attempts: 60 model calls, 1.5 M tokens" in said.get()
    assert "measuring the reference 0:00" in screen_of(console, screen)
    screen.handle(Notice("another judge uses the device"))
    assert "another judge uses the device 0:00" in screen_of(console, screen)


async def test_attempts_in_flight_show_their_step(console: Console) -> None:
    tree = Tree.replay(EAGER_MS, [working(1), failing(2)])
    tree.begin(3, Selection(parent=2, action="debug"))
    screen = await screen_with(console, tree)
    screen.handle(Stepped(3, "judge"))

    drawn = screen_of(console, screen)

    assert "└─ 3 debug" in drawn and "judging 0:00" in drawn
    assert "best  2.00x vs eager" in drawn
    spent = "12:34 of 90 min · price unknown of $5.00 · 2 of 30 attempts · 1,234 tokens"
    assert spent in drawn


@pytest.mark.parametrize("columns", [60, 40])
async def test_time_and_price_survive_a_narrow_screen(columns: int) -> None:
    console = wide(columns)
    spent = Spent(calls=9, input_tokens=1_000_000, output_tokens=999, dollars=1.25)
    screen = await screen_with(console, Tree.replay(EAGER_MS, [working(1)]), spent)

    lines = screen_of(console, screen).splitlines()

    assert "12:34 of 90 min · $1.25 of $5.00 · " in lines[-1]
    assert all(len(line) <= columns for line in lines)


async def test_a_tall_tree_is_folded_to_the_screen(console: Console) -> None:
    nodes = [failing(id) for id in range(1, 40)]
    nodes[2] = working(3)
    tree = Tree.replay(EAGER_MS, nodes)
    tree.begin(40, Selection(parent=1, action="debug"))
    screen = await screen_with(console, tree)

    drawn = screen_of(console, screen)

    assert len(drawn.splitlines()) <= console.height
    assert "3 code" in drawn and "40 debug" in drawn and "├─ 1 code" in drawn
    assert "more folded away" in drawn


async def test_the_star_goes_to_what_passed_the_final_check(console: Console) -> None:
    tree = Tree.replay(EAGER_MS, [working(1), working(2, latency_ms=EAGER_MS / 3)])
    screen = await screen_with(console, tree)
    screen.handle(CheckFinished(tree.node(2), failure("incorrect")))
    screen.handle(CheckFinished(tree.node(1), correct(EAGER_MS / 1.8)))
    screen.handle(JudgingElsewhere(tree.node(1), "another kind"))
    assert "final check of attempt 1 on another kind" in screen_of(console, screen)
    screen.handle(JudgedElsewhere(tree.node(1), "another kind", correct(EAGER_MS / 9)))

    drawn = screen_of(console, screen)

    assert "another kind" not in drawn
    (starred,) = (line for line in drawn.splitlines() if "★ best" in line)
    assert "1 code" in starred
    assert "best  1.80x vs eager" in drawn


async def test_a_run_that_stops_says_what_it_waits_for(console: Console) -> None:
    screen = await screen_with(console, Tree(EAGER_MS))
    screen.handle(Draining())
    with console.capture() as said:
        PlainLines(console).handle(Draining())

    told = "stopping: waiting for replies that are charged in any case; Ctrl-C again abandons them"
    assert told in screen_of(console, screen) and told in said.get()


def test_lines_say_what_a_run_may_cost_or_that_it_costs_nothing(console: Console) -> None:
    models = {"plan": RoleModel(model=f"{RECORDED}sonnet")}
    config = RUN.config.model_copy(update={"models": models})
    lines = PlainLines(console)
    with console.capture() as said:
        lines.handle(PREPARED)
        lines.handle(Prepared(RUN.model_copy(update={"config": config}), None))

    first, second = said.get().split("run softmax-12ab: ")[1:]
    assert "models: exec:planner (plan)\nestimate for 30 attempts: 60 model calls" in first
    assert "$3.50, 20 minutes; limits: 30 attempts, $5.00, 90 minutes" in first
    assert "replies are recorded, from sonnet" in second and "estimate" not in second


@pytest.mark.parametrize("kind", [LiveScreen, PlainLines])
async def test_warnings_are_said_when_a_run_begins(
    kind: type[LiveScreen] | type[PlainLines], console: Console
) -> None:
    started = await began(Tree(EAGER_MS), warnings=("it can reach the network",))

    with console.capture() as said:
        kind(console).handle(started)

    assert "it can reach the network" in said.get()


@pytest.mark.parametrize(
    ("terminal", "term", "kind"),
    [(True, "xterm", LiveScreen), (True, "dumb", PlainLines), (False, "xterm", PlainLines)],
)
def test_only_a_terminal_that_can_be_redrawn_has_a_screen(
    terminal: bool, term: str, kind: type
) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, _environ={"TERM": term})

    assert kind is type(open_progress(console))
