"""Progress of a bench: one screen on a terminal, a line per run elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark.benches.running import BenchEvent, InRun, Left, Opened, Progress
from stark.benches.tables import head
from stark.cli.consoles import can_redraw
from stark.cli.showing import FRAME_LINES, Screen, View, cut, spent_row, spinning
from stark.core.bench import Cell
from stark.core.evaluation import Correct, Evaluation
from stark.core.standing import best_node
from stark.events import (
    AttemptFinished,
    CheckBegan,
    CheckFinished,
    Event,
    JudgedElsewhere,
    JudgingElsewhere,
    Notice,
    Started,
    Stepped,
)
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import counted
from stark.explain.run import STEP_WORDS
from stark.search.tree import Tree


def open_bench_progress(console: Console) -> View[BenchEvent]:
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
        """Track the current step of each attempt."""
        match event:
            case Stepped(attempt, step):
                self.steps[attempt] = step
            case CheckBegan(node) | JudgingElsewhere(node):
                self.steps[node.id] = "check"
            case AttemptFinished(node) | JudgedElsewhere(node):
                self.steps.pop(node.id, None)
            case CheckFinished(node, evaluation):
                self.steps.pop(node.id, None)
                self.checked[node.id] = evaluation

    @property
    def best(self) -> str | None:
        """The best speedup so far."""
        best = best_node(self.tree.nodes, self.checked)
        if best is None:
            return None
        assert isinstance(best.evaluation, Correct)
        return speedup_text(best.evaluation.speedup_vs("eager"))


class _BenchView(View[BenchEvent]):
    """Follows the runs that are in flight, and how many have ended."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._opened: Opened | None = None
        self._in_flight: dict[str, _InFlight] = {}
        self._ended, self._runs = 0, 0
        self._left = ""
        """A line about the run that stopped last: its best kernel, and why it stopped."""

    def handle(self, event: BenchEvent) -> None:
        """Update the state that is shown."""
        match event:
            case Opened(bench, ended):
                self._opened, self._ended, self._runs = event, ended, len(bench.cells)
            case InRun(cell, Started(_, _, tree)):
                self._in_flight[cell.run_id] = _InFlight(cell, tree)
            case InRun(cell, inner):
                if cell.run_id in self._in_flight:
                    self._in_flight[cell.run_id].note(inner)
            case Left(cell, reason, ended):
                self._ended += ended
                run = self._in_flight.pop(cell.run_id, None)
                found = "" if run is None else f"{run.best or 'no correct kernel'}; "
                place = f"[{self._ended}/{self._runs}] {cell.problem} {cell.strategy}"
                self._left = f"{place} seed {cell.seed}: {found}{reason} ({cell.run_id})"


class BenchLines(_BenchView):
    """One line per run that stops, for logs and pipes."""

    def handle(self, event: BenchEvent) -> None:
        """Print the lines of an event."""
        super().handle(event)
        match event:
            case Opened(bench, ended, progress):
                self._say(f"bench {bench.name}: {head(bench)}")
                if progress.finished:
                    before = f"{counted(ended, 'run')} and {counted(progress.finished, 'attempt')}"
                    self._say(f"continues after {before}")
            case InRun(_, Notice(text)) if text:
                self._say(text)
            case Left():
                self._say(self._left)


class BenchScreen(_BenchView, Screen[BenchEvent]):
    """The runs in flight, and how much of the bench's budget is used."""

    def screen(self) -> RenderableType:
        """The current content of the screen."""
        if self._opened is None:
            return Text("opening the bench", "dim")
        bench = self._opened.bench
        title = Text.assemble((bench.name, "bold"), "  ", (head(bench), "dim"))
        return Group(
            title,
            Text(),
            self._table(bench.attempts),
            Text(),
            cut(self._left),
            self._steps(),
            self._spent(self._opened.progress),
        )

    def _table(self, attempts: int) -> Table:
        """A line for each run in flight, as many as fit."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        room = max(3, self._console.height - FRAME_LINES)
        in_flight = list(self._in_flight.values())
        for one in in_flight[:room]:
            cell = one.cell
            steps = Counter(STEP_WORDS.get(step, step) for step in one.steps.values())
            doing = ", ".join(step if n == 1 else f"{n} {step}" for step, n in steps.items())
            table.add_row(
                cut(cell.problem, ""),
                Text(f"{cell.strategy} {cell.seed}", "dim"),
                f"{one.tree.made}/{attempts}",
                Text(one.best or "", "green", no_wrap=True),
                spinning(doing, one.since_s),
            )
        if len(in_flight) > room:
            table.add_row(Text(f"and {len(in_flight) - room} more", "dim"))
        return table

    def _steps(self) -> Text:
        """How many attempts are with a model and how many with a judge, to show whether both are kept busy."""
        in_flight = self._in_flight.values()
        if not in_flight:
            return Text("starting judges and measuring references", "dim")
        steps = Counter(step for one in in_flight for step in one.steps.values())
        judged = steps.pop("judge", 0)
        asking = f"{counted(steps.total(), 'attempt')} with a model, {judged} with a judge"
        return cut(f"{counted(len(in_flight), 'run')} in flight: {asking}")

    def _spent(self, progress: Progress) -> RenderableType:
        finished, most = progress.finished, progress.ledger.budget.attempts
        made = (
            f"{self._ended} of {self._runs} runs",
            f"{finished:,} of {most:,} attempts",
            f"{progress.correct / finished:.0%} correct" if finished else "none correct yet",
        )
        return spent_row(progress.ledger, finished, made, self._console.width)
