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

from stark.core.evaluation import Correct, Evaluation
from stark.core.node import ROOT, Node
from stark.core.standing import best_node
from stark.explain.evaluation import eager_then, ratio_text, reason, status
from stark.explain.numbers import milliseconds
from stark.explain.run import idea
from stark.report.tables import STATUS_STYLES
from stark.search.tree import Tree

ROOM_FOR_IDEAS = 100
"""On a screen with fewer characters per line, the tree shows neither plans nor errors."""

GAP = 2
"""Number of blanks between two cells."""


_Row = tuple[str, Text, Text, str, Text, Text]
"""Branch, name, state, latency, speedup and note."""


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
    """Maximum number of lines; further attempts are folded away. None means no limit."""

    def table(self, columns: int) -> Table:
        """The tree, drawn for a screen with `columns` characters per line."""
        best = best_node(self.tree.nodes, self.checked)
        parents = {node.id: node.parent for node in self.tree.nodes}
        parents |= {id: begun.parent for id, begun in self.tree.pending.items()}
        shown = self._shown(parents, best)
        hidden = len(parents) - len(shown)
        folded = Text(f"{hidden} more folded away" if hidden else "", "dim italic")
        root_ms = milliseconds(self.tree.root_latency_ms)
        root = "", Text(self.title, "bold"), Text("reference"), root_ms, Text("1.00x"), folded
        rows = [self._row(id, branch, best) for id, branch in _walk(parents, shown)]
        return _drawn([root, *rows], columns)

    def _row(self, id: int, branch: str, best: Node | None) -> _Row:
        if id in self.tree.pending:
            name = Text(f"{id} {self.tree.pending[id].action}", "cyan")
            return branch, name, self.steps.get(id, Text("waiting", "dim")), "", Text(), Text()
        node = self.tree.node(id)
        found, note = node.evaluation, Text(_note(node), "dim")
        name, state = Text(f"{id} {node.role}"), Text(status(found), STATUS_STYLES[found.status])
        if not isinstance(found, Correct):
            return branch, name, state, "", Text(), note
        then = eager_then(found, self.tree.root_latency_ms)
        speedup = Text(f"{ratio_text(found.speedup_vs('eager'))}{then}")
        if best is not None and best.id == id:
            name.stylize("bold")
            speedup.stylize("bold green")
            state = Text("★ best", "bold green")
        return branch, name, state, milliseconds(found.latency_ms), speedup, note

    def _shown(self, parents: Mapping[int, int], best: Node | None) -> set[int]:
        """The attempts that fit: running ones first, then the best, then the newest, each with its ancestors."""
        if self.most_lines is None or len(parents) < self.most_lines:
            return set(parents)
        shown: set[int] = set()
        for id in (*self.tree.pending, *([best.id] if best else []), *sorted(parents)[::-1]):
            path = set()
            while id != ROOT and id not in shown:
                path.add(id)
                id = parents[id]
            if len(shown) + len(path) < self.most_lines:
                shown |= path
        return shown


def _note(node: Node) -> str:
    """The idea of an attempt that is correct or a duplicate, otherwise why the attempt failed."""
    if node.works or node.duplicate_of is not None:
        return idea(node)
    repair = f"{idea(node)}; " if node.action == "debug" else ""
    return repair + reason(node.evaluation)


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
