"""The tree of attempts as a table: one line per attempt, with its branch drawn on the left.

If the attempts do not fit on the screen, the least interesting ones are folded away. The caller gives the size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from stark.core.node import ROOT, Selection
from stark.explain.evaluation import ratio_text
from stark.report.attempt_document import AttemptDocument
from stark.report.document import Pending
from stark.report.tables import STATUS_STYLES

ROOM_FOR_IDEAS = 100
"""On a screen with fewer characters per line, the tree shows neither plans nor errors."""

GAP = 2
"""Number of blanks between two cells."""


_Row = tuple[str, Text, Text, str, Text, Text]
"""Branch, name, state, latency, speedup and note."""


@dataclass
class TreeTable:
    """A tree to be drawn."""

    title: str
    reference: str
    """The reference's time as text."""

    attempts: Mapping[int, AttemptDocument]
    """The finished ones, by number."""

    pending: Mapping[int, Selection | Pending]
    best: int | None
    steps: Mapping[int, Text] = field(default_factory=dict)
    """The current step of each attempt in flight."""

    doubtful: bool = False
    """Whether the best one's speedup is too noisy to call it the best."""

    most_lines: int | None = None
    """Maximum number of lines; further attempts are folded away. None means no limit."""

    def table(self, columns: int) -> Table:
        """The tree, drawn for a screen with `columns` characters per line."""
        parents = {id: each.parent for id, each in (*self.attempts.items(), *self.pending.items())}
        shown = self._shown(parents)
        hidden = len(parents) - len(shown)
        folded = Text(f"{hidden} more folded away" if hidden else "", "dim italic")
        root = (
            *("", Text(self.title, "bold"), Text("reference"), self.reference),
            *(Text("1.00x"), folded),
        )
        rows = [self._row(id, branch) for id, branch in _walk(parents, shown)]
        return _drawn([root, *rows], columns)

    def _row(self, id: int, branch: str) -> _Row:
        if id not in self.attempts:
            name = Text(f"{id} {self.pending[id].action}", "cyan")
            return branch, name, self.steps.get(id, Text("waiting", "dim")), "", Text(), Text()
        found = self.attempts[id]
        note = Text(_note(found), "dim")
        name = Text(f"{id} {found.role}")
        state = Text(found.status.replace("_", " "), STATUS_STYLES[found.status])
        if (figures := found.figures) is None:
            return branch, name, state, "", Text(), note
        then = f" ({figures.eager_beside})" if figures.eager_beside else ""
        speedup = Text(ratio_text(found.speedups["eager"]) + then)
        if id == self.best:
            name.stylize("bold")
            speedup.stylize("bold green")
            state = Text("★ correct" if self.doubtful else "★ best", "bold green")
        return branch, name, state, figures.latency, speedup, note

    def _shown(self, parents: Mapping[int, int]) -> set[int]:
        """The attempts that fit: running ones first, then the best, then the newest, each with its ancestors."""
        if self.most_lines is None or len(parents) < self.most_lines:
            return set(parents)
        shown: set[int] = set()
        for id in (*self.pending, *filter(None, [self.best]), *sorted(parents)[::-1]):
            path = set()
            while id != ROOT and id not in shown:
                path.add(id)
                id = parents[id]
            if len(shown) + len(path) < self.most_lines:
                shown |= path
        return shown


def _note(attempt: AttemptDocument) -> str:
    """The idea of an attempt that is correct or a duplicate, otherwise why the attempt failed."""
    if attempt.works or attempt.duplicate_of is not None:
        return attempt.idea
    return f"{attempt.idea}; {attempt.reason}" if attempt.action == "debug" else attempt.reason


def _drawn(rows: list[_Row], columns: int) -> Table:
    """The rows as a table. To keep numbers whole on a narrow screen, long branches are cut and notes are left out."""
    _, _, states, latencies, speedups, _ = zip(*rows, strict=True)
    fixed = (max(cell_len(str(cell)) for cell in cells) for cells in (states, latencies, speedups))
    width = max(columns - sum(fixed) - 5 * GAP, 1)
    table = Table.grid(padding=(0, GAP, 0, 0), expand=True)
    table.add_column(no_wrap=True, max_width=width)
    for justify in ("left", "right", "right"):
        table.add_column(no_wrap=True, justify=justify)
    table.add_column(no_wrap=True, ratio=1)
    for branch, name, state, latency, speedup, note in rows:
        room = max(width - cell_len(str(name)), 0)
        fitting = branch if len(branch) <= room else f"…{branch[1 - room :]}"[:room]
        shown = note if columns >= ROOM_FOR_IDEAS or name is rows[0][1] else ""
        table.add_row(Text(fitting, "dim") + name, state, latency, speedup, shown)
    return table


def _walk(parents: Mapping[int, int], shown: set[int]) -> Iterator[tuple[int, str]]:
    """Every shown attempt with its branch, from top to bottom, siblings in the order of their numbers."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for id in sorted(shown, reverse=True):
        children[parents[id]].append(id)
    waiting = [(ROOT, "", "")]
    while waiting:
        id, branch, indent = waiting.pop()
        if id != ROOT:
            yield id, branch
        for child in children[id]:
            last = child == children[id][0]
            ends = ("└─ ", "   ") if last else ("├─ ", "│  ")
            waiting.append((child, indent + ends[0], indent + ends[1]))
