"""Progress of a bench: one screen on a terminal, a line per run elsewhere.

Reads events only; knows no store and changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark.benches.running import BenchEvent, InRun, Left, Opened, Progress
from stark.benches.tables import head
from stark.cli.consoles import can_redraw
from stark.cli.live import STEP_WORDS, budget_row
from stark.cli.redrawn import Redrawn, spinning
from stark.core.bench import Bench, Cell
from stark.core.evaluation import Correct, Evaluation
from stark.core.standing import best_node
from stark.events import AttemptFinished, CheckBegan, CheckFinished, Event, Started, Stepped
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import counted, duration
from stark.explain.run import price, tokens
from stark.search.tree import Tree

FRAME_LINES = 8
"""Lines of the screen that are not runs in flight."""


class BenchProgress(AbstractAsyncContextManager["BenchProgress"], Protocol):
    """Shows a bench; on while its block lasts."""

    def handle(self, event: BenchEvent) -> None:
        """Take in an event."""
        ...


def open_bench_progress(console: Console) -> BenchProgress:
    """A live screen on a terminal, else plain lines."""
    return BenchScreen(console) if can_redraw(console) else BenchLines(console)


@dataclass
class _InFlight:
    """A run that is being worked on."""

    cell: Cell
    tree: Tree
    steps: dict[int, str] = field(default_factory=dict)
    since_s: float = field(default_factory=time.monotonic)
    checked: dict[int, Evaluation] = field(default_factory=dict)

    def note(self, event: Event) -> None:
        """Follow what its attempts are at."""
        match event:
            case Stepped(attempt, step):
                self.steps[attempt] = step
            case CheckBegan(node):
                self.steps[node.id] = "check"
            case AttemptFinished(node):
                self.steps.pop(node.id, None)
            case CheckFinished(node, evaluation):
                self.steps.pop(node.id, None)
                self.checked[node.id] = evaluation


class BenchLines:
    """One line per finished run, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_flight: dict[str, _InFlight] = {}
        self._ended, self._runs = 0, 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """No cleanup needed."""

    def handle(self, event: BenchEvent) -> None:
        """Print the lines of an event."""
        match event:
            case Opened(bench, ended, progress):
                self._ended, self._runs = ended, len(bench.cells)
                self._say(f"bench {bench.name}: {head(bench)}")
                if progress.finished:
                    before = f"{counted(ended, 'run')} and {counted(progress.finished, 'attempt')}"
                    self._say(f"continues after {before}")
            case InRun(cell, Started(_, _, tree)):
                self._in_flight[cell.run_id] = _InFlight(cell, tree)
            case InRun(cell, inner):
                if cell.run_id in self._in_flight:
                    self._in_flight[cell.run_id].note(inner)
            case Left(cell, reason, ended):
                self._ended += ended
                place = (
                    f"[{self._ended}/{self._runs}] {cell.problem} {cell.strategy} seed {cell.seed}"
                )
                found = _found(self._in_flight.pop(cell.run_id, None))
                self._say(f"{place}: {found}{reason} ({cell.run_id})")

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class BenchScreen(Redrawn):
    """The runs in flight, and what is left of the whole budget."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._opened: Opened | None = None
        self._ended = 0
        self._in_flight: dict[str, _InFlight] = {}
        self._said = ""

    def handle(self, event: BenchEvent) -> None:
        """Note what is to be shown."""
        match event:
            case Opened(_, ended):
                self._opened, self._ended = event, ended
            case InRun(cell, Started(_, _, tree)):
                self._in_flight[cell.run_id] = _InFlight(cell, tree)
            case InRun(cell, inner):
                if cell.run_id in self._in_flight:
                    self._in_flight[cell.run_id].note(inner)
            case Left(cell, reason, ended):
                self._ended += ended
                found = _found(self._in_flight.pop(cell.run_id, None))
                self._said = f"{cell.problem} {cell.strategy} seed {cell.seed}: {found}{reason}"

    def screen(self) -> RenderableType:
        """The current content of the screen."""
        if self._opened is None:
            return Text("opening the bench", "dim")
        bench = self._opened.bench
        title = Text.assemble((bench.name, "bold"), "  ", (head(bench), "dim"))
        return Group(
            title,
            Text(),
            self._runs(bench.attempts),
            Text(),
            Text(self._said, "dim", no_wrap=True, overflow="ellipsis"),
            self._steps(),
            self._spent(bench, self._opened.progress),
        )

    def _runs(self, attempts: int) -> Table:
        """A line for each run in flight, as many as fit."""
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
        """How many attempts wait for a model and how many for a judge; ideally both are busy."""
        if not self._in_flight:
            return Text("starting judges and measuring references", "dim")
        steps = Counter(step for one in self._in_flight.values() for step in one.steps.values())
        judged = steps.pop("judge", 0)
        asking = counted(steps.total(), "attempt")
        said = f"{counted(len(self._in_flight), 'run')} in flight: {asking} with a model, {judged} with a judge"
        return Text(said, "dim", no_wrap=True, overflow="ellipsis")

    def _spent(self, bench: Bench, progress: Progress) -> Table:
        """Time, price, runs, attempts as a bar, and tokens, each with its limit if it has one."""
        ledger = progress.ledger
        budget, spent = ledger.budget, ledger.spent
        minutes = "" if budget.minutes is None else f" of {budget.minutes:g} min"
        made = progress.finished - progress.finished_before
        said = " · ".join(
            (
                duration(ledger.elapsed_s) + minutes,
                price(spent) + ("" if budget.dollars is None else f" of ${budget.dollars:.2f}"),
                f"{self._ended} of {len(bench.cells)} runs",
                f"{progress.finished:,} of {budget.attempts:,} attempts",
                f"{progress.correct / made:.0%} correct" if made else "none correct yet",
                tokens(spent) + ("" if budget.tokens is None else f" of {budget.tokens:,}"),
            )
        )
        return budget_row(progress.finished, budget.attempts, said, self._console.width)


def _times(step: str, count: int) -> str:
    return step if count == 1 else f"{count} {step}"


def _found(run: _InFlight | None) -> str:
    """The result of a run so far, before why it is left; empty for one that was not worked on."""
    return "" if run is None else f"{_best(run.tree, run.checked) or 'no correct kernel'}; "


def _best(tree: Tree, checked: Mapping[int, Evaluation]) -> str | None:
    """The best speedup of a run so far."""
    best = best_node(tree.nodes, checked)
    if best is None:
        return None
    assert isinstance(best.evaluation, Correct)
    return speedup_text(best.evaluation.speedup_vs("eager"))
