"""Progress of a run: a growing tree on a terminal, a line per event elsewhere."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.text import Text

from stark.cli.consoles import can_redraw
from stark.cli.showing import FRAME_LINES, Screen, View, cut, spent_row, spinning
from stark.core.evaluation import Evaluation
from stark.core.run import Run
from stark.core.standing import vs_eager
from stark.events import (
    AttemptFinished,
    CheckBegan,
    CheckFinished,
    Draining,
    Event,
    JudgedElsewhere,
    JudgingElsewhere,
    Notice,
    Prepared,
    Started,
    Stepped,
)
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import milliseconds
from stark.explain.run import (
    STEP_WORDS,
    estimate_line,
    mode_line,
    models_line,
    reference_line,
    replay_line,
)
from stark.report.attempt_document import AttemptDocument, attempt_document
from stark.report.document import standing_among
from stark.report.progress import DRAINING, Lines
from stark.report.tree import TreeTable


def open_progress(console: Console) -> View[Event]:
    """A live screen on a terminal, else plain lines."""
    return LiveScreen(console) if can_redraw(console) else PlainLines(console)


class PlainLines(View[Event]):
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._lines = Lines()

    def handle(self, event: Event) -> None:
        """Print the lines of an event."""
        for line in self._lines.of(event):
            self._say(line)


class LiveScreen(Screen[Event]):
    """The growing tree, what is in flight, the best kernel so far and how much of the budget is used."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._begin(None)

    def _begin(self, run: Run | None) -> None:
        """Show this run and nothing of those before it."""
        self._run = run
        self._started: Started | None = None
        self._attempts: dict[int, AttemptDocument] = {}
        self._steps: dict[int, tuple[str, float]] = {}
        self._notice: tuple[str, float] | None = None
        self._doing: tuple[str, float] | None = None
        """What the line below the tree shows instead of the best kernel, and since when."""

        self._checked: dict[int, Evaluation] = {}
        self._begin_s = time.monotonic()

    def handle(self, event: Event) -> None:
        """Update the state that is shown."""
        now = time.monotonic()
        match event:
            case Prepared(run, expected):
                self._begin(run)
                if expected is None:
                    self._say(f"In this run {replay_line(run)}.", "dim")
                else:
                    self._say(estimate_line(expected, run.config.budget), "dim")
                if mode := mode_line(run.problem):
                    self._say(f"mode: {mode}", "yellow")
            case Started(_, reference):
                self._started = event
                for warning in reference.warnings:
                    self._say(warning, "yellow")
            case Stepped(attempt, step):
                self._steps[attempt] = (step, now)
            case AttemptFinished(node):
                self._steps.pop(node.id, None)
            case CheckBegan(node):
                self._steps.clear()  # attempts that a limit cut off send no AttemptFinished
                self._doing = (f"final check of attempt {node.id}", now)
            case CheckFinished(node, evaluation):
                self._doing = None
                self._checked[node.id] = evaluation
            case JudgingElsewhere(node, kind):
                self._doing = (f"final check of attempt {node.id} on {kind}", now)
            case JudgedElsewhere():
                self._doing = None
            case Draining():
                self._doing = (DRAINING, now)
            case Notice(text):
                self._notice = (text, now) if text else None

    def screen(self) -> RenderableType:
        """The current content of the screen."""
        run, started = self._run, self._started
        if run is None:
            return Text("starting", "dim")
        config = run.config
        title = Text.assemble(
            (run.problem.name, "bold"),
            f"  {config.strategy.name} in {config.language}  ",
            (run.id, "dim"),
        )
        models = cut(models_line(run))
        if started is None:
            doing = "starting the judge and measuring the reference"
            said = self._notice or (doing, self._begin_s)
            return Group(title, models, Text(), spinning(*said))
        reference = started.reference
        device = cut(f"{reference.device.name}: {reference_line(reference)}")
        for node in started.tree.nodes[len(self._attempts) :]:
            self._attempts[node.id] = attempt_document(node, reference=reference)
        best = standing_among(self._attempts.values(), self._checked).best
        tree = TreeTable(
            run.problem.name,
            milliseconds(reference.latency_ms),
            self._attempts,
            started.tree.pending,
            best,
            steps={
                attempt: spinning(STEP_WORDS.get(step, step), since_s)
                for attempt, (step, since_s) in self._steps.items()
            },
            most_lines=max(3, self._console.height - FRAME_LINES),
        )
        return Group(
            title,
            models,
            device,
            Text(),
            tree.table(self._console.width),
            Text(),
            self._best(best),
            self._spent(started),
        )

    def _best(self, best: int | None) -> Text:
        if doing := self._notice or self._doing:
            return spinning(*doing)
        if best is None:
            unchecked, failed = "no correct kernel yet", "no kernel passed the final check"
            return Text(failed if self._checked else unchecked, "dim")
        attempt, check = self._attempts[best], self._checked.get(best)
        speedup = (check and vs_eager(check)) or attempt.speedups["eager"]
        said = f"best  {speedup_text(speedup)}, attempt {best}"
        return cut(said, "green").append(f"  {attempt.idea}", "dim")

    def _spent(self, started: Started) -> RenderableType:
        done, most = started.tree.made, started.ledger.budget.attempts
        made = (f"{done} of {most} attempts",)
        return spent_row(started.ledger, done, made, self._console.width)
