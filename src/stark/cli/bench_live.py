"""Progress of a bench: one screen on a terminal, a line per run elsewhere. Both are a `BenchWatch`.

Knows no store and changes nothing: it draws what it is told.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stark.bench.account import Account
from stark.bench.running import BenchWatch
from stark.bench.tables import head
from stark.cli.live import STEP_WORDS
from stark.cli.redrawn import Redrawn, spinning
from stark.core.bench import Bench, Cell
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import Node
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import counted, duration
from stark.explain.run import price, tokens
from stark.promotion import best_so_far
from stark.search.tree import Tree

FRAME_LINES = 8
"""Lines of the screen that are not runs in flight."""


class BenchProgress(BenchWatch, AbstractAsyncContextManager["BenchProgress"], Protocol):
    """A watch that is on while its block lasts."""


def open_bench_progress(console: Console) -> BenchProgress:
    """A live screen on a terminal, else plain lines."""
    return BenchScreen(console) if console.is_terminal else BenchLines(console)


class BenchLines:
    """One line per run that is done with, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._trees: dict[str, Tree] = {}
        self._checked: dict[str, dict[int, Evaluation]] = {}
        self._ended, self._runs = 0, 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is on."""

    def opened(self, bench: Bench, ended: int, account: Account) -> None:
        """Say what is to be done, and what was done before."""
        self._ended, self._runs = ended, len(bench.cells)
        self._say(f"bench {bench.name}: {head(bench)}")
        if account.finished:
            before = f"{counted(ended, 'run')} and {counted(account.finished, 'attempt')}"
            self._say(f"goes on after {before}")

    def began(self, cell: Cell, tree: Tree) -> None:
        """Its end is what is said."""
        self._trees[cell.run_id] = tree

    def stepped(self, cell: Cell, attempt: int, step: str) -> None:
        """Too much for a line each."""

    def attempted(self, cell: Cell, node: Node) -> None:
        """Too much for a line each."""

    def checked(self, cell: Cell, node: Node, evaluation: Evaluation) -> None:
        """From now on this counts, and not what the search measured."""
        self._checked.setdefault(cell.run_id, {})[node.id] = evaluation

    def left(self, cell: Cell, reason: str, ended: bool) -> None:
        """Say how the run ended."""
        self._ended += ended
        tree, checked = self._trees.pop(cell.run_id, None), self._checked.pop(cell.run_id, {})
        place = f"[{self._ended}/{self._runs}] {cell.problem} {cell.strategy} seed {cell.seed}"
        self._say(f"{place}: {_came_of(tree, checked)}{reason} ({cell.run_id})")

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


@dataclass
class _InFlight:
    """A run that is being worked on."""

    cell: Cell
    tree: Tree
    steps: dict[int, str] = field(default_factory=dict)
    since_s: float = field(default_factory=time.monotonic)
    checked: dict[int, Evaluation] = field(default_factory=dict)
    """What the final check found, by attempt."""


class BenchScreen(Redrawn):
    """What each strategy has done, the runs in flight, and what is left of the whole budget."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bench: Bench | None = None
        self._account: Account | None = None
        self._ended, self._attempts_before = 0, 0
        self._in_flight: dict[str, _InFlight] = {}
        self._said = ""

    def opened(self, bench: Bench, ended: int, account: Account) -> None:
        """From now on there is something to show."""
        self._bench, self._ended, self._account = bench, ended, account
        self._attempts_before = account.finished

    def began(self, cell: Cell, tree: Tree) -> None:
        """It gets a line."""
        self._in_flight[cell.run_id] = _InFlight(cell, tree)

    def stepped(self, cell: Cell, attempt: int, step: str) -> None:
        """Its line says with whom it is."""
        self._in_flight[cell.run_id].steps[attempt] = step

    def attempted(self, cell: Cell, node: Node) -> None:
        """Its line counts."""
        self._in_flight[cell.run_id].steps.pop(node.id, None)

    def checked(self, cell: Cell, node: Node, evaluation: Evaluation) -> None:
        """From now on its line shows this, and not what the search measured."""
        self._in_flight[cell.run_id].steps.pop(node.id, None)
        self._in_flight[cell.run_id].checked[node.id] = evaluation

    def left(self, cell: Cell, reason: str, ended: bool) -> None:
        """Its line goes, and the last one says how it ended."""
        one = self._in_flight.pop(cell.run_id, None)
        self._ended += ended
        came = _came_of(one.tree, one.checked) if one else ""
        self._said = f"{cell.problem} {cell.strategy} seed {cell.seed}: {came}{reason}"

    def screen(self) -> RenderableType:
        """All that is on the screen now."""
        if self._bench is None or self._account is None:
            return Text("opening the bench", "dim")
        title = Text.assemble((self._bench.name, "bold"), "  ", (head(self._bench), "dim"))
        return Group(
            title,
            Text(),
            self._runs(self._bench.attempts),
            Text(),
            Text(self._said, "dim", no_wrap=True, overflow="ellipsis"),
            self._steps(),
            self._spent(self._bench, self._account),
        )

    def _runs(self, attempts: int) -> Table:
        """A line for each run in flight, as many as there is room for."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        room = max(3, self._console.height - FRAME_LINES)
        shown = list(self._in_flight.values())[:room]
        for one in shown:
            cell = one.cell
            steps = Counter(STEP_WORDS.get(step, step) for step in one.steps.values())
            table.add_row(
                Text(cell.problem, no_wrap=True, overflow="ellipsis"),
                Text(f"{cell.strategy} {cell.seed}", "dim"),
                f"{len(one.tree.nodes)}/{attempts}",
                Text(_best(one.tree, one.checked) or "", "green", no_wrap=True),
                spinning(", ".join(_times(step, n) for step, n in steps.items()), one.since_s),
            )
        if len(self._in_flight) > len(shown):
            table.add_row(Text(f"and {len(self._in_flight) - len(shown)} more", "dim"))
        return table

    def _steps(self) -> Text:
        """Where the attempts in flight are: full slots on both sides are what one hopes for."""
        if not self._in_flight:
            return Text("starting judges and measuring references", "dim")
        steps = Counter(step for one in self._in_flight.values() for step in one.steps.values())
        judged = steps.pop("judge", 0)
        asking = counted(steps.total(), "attempt")
        said = f"{counted(len(self._in_flight), 'run')} in flight: {asking} with a model, {judged} with a judge"
        return Text(said, "dim", no_wrap=True, overflow="ellipsis")

    def _spent(self, bench: Bench, account: Account) -> Table:
        """Attempts as a bar, then runs, tokens, price and time, each with its limit if it has one."""
        budget = account.budget
        minutes = "" if budget.minutes is None else f" of {budget.minutes:g} min"
        said = " · ".join(
            (
                f"{self._ended} of {len(bench.cells)} runs",
                f"{account.finished:,} of {budget.attempts:,} attempts",
                f"{self._correct_share(account)} correct",
                tokens(account.usage) + ("" if budget.tokens is None else f" of {budget.tokens:,}"),
                price(account.usage)
                + ("" if budget.dollars is None else f" of ${budget.dollars:.2f}"),
                duration(account.elapsed_s) + minutes,
            )
        )
        row = Table.grid(padding=(0, 2, 0, 0), expand=True)
        row.add_column(width=10)
        row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        row.add_row(ProgressBar(budget.attempts, account.finished, width=10), said)
        return row

    def _correct_share(self, account: Account) -> str:
        made = account.finished - self._attempts_before
        return f"{account.correct / made:.0%}" if made else "0 %"


def _times(step: str, count: int) -> str:
    return step if count == 1 else f"{count} {step}"


def _came_of(tree: Tree | None, checked: Mapping[int, Evaluation]) -> str:
    """What came of a run so far, before why it is left; nothing of one that was not worked on."""
    return "" if tree is None else f"{_best(tree, checked) or 'no correct kernel'}; "


def _best(tree: Tree | None, checked: Mapping[int, Evaluation]) -> str | None:
    """The best speedup of a run so far: the final check's, once there was one."""
    if tree is None:
        return None
    best = best_so_far(tree, checked)
    if best is None:
        return None
    assert isinstance(best.evaluation, Correct)
    return speedup_text(best.evaluation.speedup_vs("eager"))
