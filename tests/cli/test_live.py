from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from stark.cli.live import LiveScreen, PlainLines
from stark.core.node import Selection
from stark.core.problem import Problem
from stark.core.run import RoleModel, Run, RunConfig
from stark.core.usage import Budget, Usage
from stark.search.tree import Tree
from stark.strategies import strategy
from stark.testing.executor import FakeExecutor
from stark.testing.nodes import EAGER_MS, correct, failing, failure, working

RUN = Run(
    id="softmax-12ab",
    created=datetime(2025, 1, 1, tzinfo=UTC),
    problem=Problem(name="softmax", source=""),
    config=RunConfig(
        language="triton",
        strategy=strategy("stark"),
        models={"plan": RoleModel(model="exec:planner")},
        executor="local",
        budget=Budget(attempts=30, dollars=5.0),
        seed=0,
    ),
    version="0",
)


def screen_of(console: Console, screen: LiveScreen) -> str:
    with console.capture() as drawn:
        console.print(screen.screen())
    return drawn.get()


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=110, height=14, force_terminal=False, markup=False)


async def started(console: Console, tree: Tree) -> LiveScreen:
    screen = LiveScreen(console, RUN)
    screen.started(RUN, await FakeExecutor().describe(RUN.problem), tree, Usage())
    return screen


def test_before_the_reference_is_measured(console: Console) -> None:
    assert "measuring the reference 0:00" in screen_of(console, LiveScreen(console, RUN))


async def test_attempts_in_flight_show_their_step(console: Console) -> None:
    tree = Tree.replay(EAGER_MS, [working(1), failing(2)])
    tree.begin(3, Selection(parent=2, action="debug"))
    screen = await started(console, tree)
    screen.stepped(3, "judge")
    screen.paid(Usage(calls=1, input_tokens=1000, output_tokens=234, dollars=None))

    drawn = screen_of(console, screen)

    assert "└─ 3 debug" in drawn and "judging 0:00" in drawn
    assert "best  2.00x vs eager" in drawn
    assert "2 of 30 attempts · 1,234 tokens · price unknown of $5.00" in drawn


async def test_a_tall_tree_is_folded_to_the_screen(console: Console) -> None:
    nodes = [failing(id) for id in range(1, 40)]
    nodes[2] = working(3)
    tree = Tree.replay(EAGER_MS, nodes)
    tree.begin(40, Selection(parent=1, action="debug"))
    screen = await started(console, tree)

    drawn = screen_of(console, screen)

    assert len(drawn.splitlines()) <= console.height
    assert "3 code" in drawn and "40 debug" in drawn and "├─ 1 code" in drawn
    assert "more folded away" in drawn


async def test_the_star_goes_to_what_held_in_the_final_check(console: Console) -> None:
    tree = Tree.replay(EAGER_MS, [working(1), working(2, latency_ms=EAGER_MS / 3)])
    screen = await started(console, tree)
    screen.promoted(tree.node(2), failure("incorrect"))
    screen.promoted(tree.node(1), correct(EAGER_MS / 1.8))

    drawn = screen_of(console, screen)

    (starred,) = (line for line in drawn.splitlines() if "★ best" in line)
    assert "1 code" in starred
    assert "best  1.80x vs eager" in drawn


@pytest.mark.parametrize("kind", [LiveScreen, PlainLines])
async def test_what_to_beware_of_is_told_when_a_run_begins(
    kind: type[LiveScreen] | type[PlainLines], console: Console
) -> None:
    reference = await FakeExecutor(warnings=("it can reach the network",)).describe(RUN.problem)

    with console.capture() as said:
        kind(console, RUN).started(RUN, reference, Tree(EAGER_MS), Usage())

    assert "it can reach the network" in said.get()
