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
from stark.cli.showing import FRAME_LINES, STEP_WORDS, Screen, View, cut, spent_row, spinning
from stark.core.bench import Bench, Cell
from stark.core.evaluation import Correct, Evaluation
from stark.core.standing import best_node
from stark.events import AttemptFinished, CheckBegan, CheckFinished, Event, Started, Stepped
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import counted
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

    @property
    def best(self) -> str | None:
        """The best speedup so far."""
        best = best_node(self.tree.nodes, self.checked)
        if best is None:
            return None
        assert isinstance(best.evaluation, Correct)
        return speedup_text(best.evaluation.speedup_vs("eager"))


class _Board:
    """The runs that are in flight, and how many have ended."""

    def __init__(self) -> None:
        self.in_flight: dict[str, _InFlight] = {}
        self.ended = 0
        self.left = ""
        """The run that was left last, what it found, and why it was left."""

    def follow(self, event: BenchEvent) -> None:
        match event:
            case Opened(_, ended):
                self.ended = ended
            case InRun(cell, Started(_, _, tree)):
                self.in_flight[cell.run_id] = _InFlight(cell, tree)
            case InRun(cell, inner):
                if cell.run_id in self.in_flight:
                    self.in_flight[cell.run_id].note(inner)
            case Left(cell, reason, ended):
                self.ended += ended
                run = self.in_flight.pop(cell.run_id, None)
                found = "" if run is None else f"{run.best or 'no correct kernel'}; "
                self.left = f"{cell.problem} {cell.strategy} seed {cell.seed}: {found}{reason}"


class BenchLines(View[BenchEvent]):
    """One line per finished run, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._board = _Board()
        self._runs = 0

    def handle(self, event: BenchEvent) -> None:
        """Print the lines of an event."""
        self._board.follow(event)
        match event:
            case Opened(bench, ended, progress):
                self._runs = len(bench.cells)
                self._say(f"bench {bench.name}: {head(bench)}")
                if progress.finished:
                    before = f"{counted(ended, 'run')} and {counted(progress.finished, 'attempt')}"
                    self._say(f"continues after {before}")
            case Left(cell):
                place = f"[{self._board.ended}/{self._runs}]"
                self._say(f"{place} {self._board.left} ({cell.run_id})")


class BenchScreen(Screen[BenchEvent]):
    """The runs in flight, and what is left of the whole budget."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._board = _Board()
        self._opened: Opened | None = None

    def handle(self, event: BenchEvent) -> None:
        """Note what is to be shown."""
        self._board.follow(event)
        if isinstance(event, Opened):
            self._opened = event

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
            cut(self._board.left),
            self._steps(),
            self._spent(bench, self._opened.progress),
        )

    def _runs(self, attempts: int) -> Table:
        """A line for each run in flight, as many as fit."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        room = max(3, self._console.height - FRAME_LINES)
        shown = list(self._board.in_flight.values())[:room]
        for one in shown:
            cell = one.cell
            steps = Counter(STEP_WORDS.get(step, step) for step in one.steps.values())
            doing = ", ".join(step if n == 1 else f"{n} {step}" for step, n in steps.items())
            table.add_row(
                cut(cell.problem, ""),
                Text(f"{cell.strategy} {cell.seed}", "dim"),
                f"{len(one.tree.nodes)}/{attempts}",
                Text(one.best or "", "green", no_wrap=True),
                spinning(doing, one.since_s),
            )
        if len(self._board.in_flight) > len(shown):
            table.add_row(Text(f"and {len(self._board.in_flight) - len(shown)} more", "dim"))
        return table

    def _steps(self) -> Text:
        """How many attempts wait for a model and how many for a judge; ideally both are busy."""
        if not self._board.in_flight:
            return Text("starting judges and measuring references", "dim")
        steps = Counter(
            step for one in self._board.in_flight.values() for step in one.steps.values()
        )
        judged = steps.pop("judge", 0)
        asking = counted(steps.total(), "attempt")
        said = f"{counted(len(self._board.in_flight), 'run')} in flight: {asking} with a model, {judged} with a judge"
        return cut(said)

    def _spent(self, bench: Bench, progress: Progress) -> Table:
        finished, most = progress.finished, progress.ledger.budget.attempts
        session = finished - progress.finished_before
        made = (
            f"{self._board.ended} of {len(bench.cells)} runs",
            f"{finished:,} of {most:,} attempts",
            f"{progress.correct / session:.0%} correct" if session else "none correct yet",
        )
        return spent_row(progress.ledger, finished, made, self._console.width)
