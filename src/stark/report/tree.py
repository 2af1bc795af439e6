"""The tree of attempts as a table: one line per attempt, with its branch drawn on the left.

If the attempts do not fit on the screen, the least interesting ones are folded away. The caller gives the size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from stark.core.evaluation import Correct, Evaluation
from stark.core.node import ROOT, Node
from stark.core.standing import best_node
from stark.explain.evaluation import reason, status
from stark.explain.numbers import milliseconds
from stark.explain.run import idea
from stark.report.tables import STATUS_STYLES
from stark.search.tree import Tree

ROOM_FOR_IDEAS = 100
"""Below this many columns the tree shows neither plans nor errors."""

GAP = 2
"""Columns between two cells."""


class _Row(NamedTuple):
    branch: str
    name: Text
    state: Text
    latency: str = ""
    speedup: Text = Text()
    note: Text = Text()


@dataclass
class TreeTable:
    """A tree to be drawn."""

    tree: Tree
    title: str
    steps: Mapping[int, Text] = field(default_factory=dict)
    """The current step of each attempt in flight."""

    checked: Mapping[int, Evaluation] = field(default_factory=dict)
    """The final check's evaluations, by attempt."""

    most_lines: int | None = None
    """Fold attempts away beyond this many lines."""

    def table(self, columns: int) -> Table:
        """The tree, drawn for a screen of so many columns."""
        best = best_node(self.tree.nodes, self.checked)
        shown = self._shown(best)
        hidden = len(self.tree.nodes) + len(self.tree.pending) - len(shown)
        folded = Text(f"{hidden} more folded away" if hidden else "", "dim italic")
        root_ms = milliseconds(self.tree.root_latency_ms)
        rows = [
            _Row("", Text(self.title, "bold"), Text("reference"), root_ms, Text("1.00x"), folded)
        ]
        for id, branch in _walk(self._children(), shown):
            rows.append(self._row(id, branch, best))
        return _drawn(rows, columns)

    def _row(self, id: int, branch: str, best: Node | None) -> _Row:
        if id in self.tree.pending:
            name = Text(f"{id} {self.tree.pending[id].action}", "cyan")
            return _Row(branch, name, self.steps.get(id, Text("waiting", "dim")))
        node = self.tree.node(id)
        found = node.evaluation
        name, state = Text(f"{id} {node.role}"), Text(status(found), STATUS_STYLES[found.status])
        if not isinstance(found, Correct):
            return _Row(branch, name, state, note=Text(_note(node), "dim"))
        vs_eager = found.speedup_vs("eager")
        speedup = Text(f"{'noisy ' if vs_eager.too_noisy else ''}{vs_eager.ratio:.2f}x")
        if best is not None and best.id == id:
            name.stylize("bold")
            speedup.stylize("bold green")
            state = Text("★ best", "bold green")
        latency = milliseconds(found.latency_ms)
        return _Row(branch, name, state, latency, speedup, Text(_note(node), "dim"))

    def _children(self) -> dict[int, list[int]]:
        """Finished and running attempts by parent, in the order of their numbers."""
        children: defaultdict[int, list[int]] = defaultdict(list)
        for id in sorted([*(node.id for node in self.tree.nodes), *self.tree.pending]):
            children[self._parent(id)].append(id)
        return children

    def _parent(self, id: int) -> int:
        pending = self.tree.pending
        return pending[id].parent if id in pending else self.tree.node(id).parent

    def _shown(self, best: Node | None) -> set[int]:
        """The attempts that fit: running ones first, then the best, then the newest, each with its ancestors."""
        everything = {node.id for node in self.tree.nodes} | set(self.tree.pending)
        if self.most_lines is None or len(everything) < self.most_lines:
            return everything
        wanted = [*self.tree.pending, *([best.id] if best else []), *sorted(everything)[::-1]]
        shown: set[int] = set()
        for id in wanted:
            path = self._path(id) - shown
            if len(shown) + len(path) < self.most_lines:
                shown |= path
        return shown

    def _path(self, id: int) -> set[int]:
        path: set[int] = set()
        while id != ROOT:
            path.add(id)
            id = self._parent(id)
        return path


def _note(node: Node) -> str:
    """What a working attempt is, and why another one failed."""
    if node.works or node.duplicate_of is not None:
        return idea(node)
    return (
        f"{idea(node)}; {reason(node.evaluation)}"
        if node.action == "debug"
        else reason(node.evaluation)
    )


def _drawn(rows: list[_Row], columns: int) -> Table:
    """The rows as a table in which numbers are never cut: deep branches and notes give way."""
    wide = columns >= ROOM_FOR_IDEAS
    numbers = sum(
        max(cell_len(str(cell)) for cell in cells) + GAP
        for cells in ([row[n] for row in rows] for n in (2, 3, 4))
    )
    width = max(columns - numbers - 2 * GAP, 1)
    table = Table.grid(padding=(0, GAP, 0, 0), expand=True)
    table.add_column(no_wrap=True, max_width=width)
    table.add_column(no_wrap=True)
    for _ in ("latency", "speedup"):
        table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, ratio=1)
    for n, row in enumerate(rows):
        room = max(width - cell_len(str(row.name)), 0)
        branch = row.branch if len(row.branch) <= room else f"…{row.branch[1 - room :]}"[:room]
        note = row.note if wide or n == 0 else ""
        table.add_row(Text(branch, "dim") + row.name, row.state, row.latency, row.speedup, note)
    return table


def _walk(children: Mapping[int, list[int]], shown: set[int]) -> Iterator[tuple[int, str]]:
    """Every shown attempt below the root with its branch, from top to bottom."""
    stack: list[tuple[int, str, str]] = []

    def push(parent: int, indent: str) -> None:
        visible = [id for id in children.get(parent, []) if id in shown]
        for id in reversed(visible):
            last = id == visible[-1]
            stack.append(
                (id, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  "))
            )

    push(ROOT, "")
    while stack:
        id, branch, indent = stack.pop()
        yield id, branch
        push(id, indent)
