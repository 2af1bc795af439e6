"""The tree of attempts as a table: one line per attempt, its branch drawn on the left.

Finished and running attempts look the same from here. Where there is less room than lines, the
attempts that matter least now are folded away. Knows no screen: the caller says how many lines fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from stark.core.evaluation import Correct, Evaluation
from stark.core.node import ROOT
from stark.explain.evaluation import reason, status
from stark.explain.numbers import milliseconds
from stark.explain.run import idea
from stark.promotion import best_so_far
from stark.report.tables import STATUS_STYLES
from stark.search.tree import Tree

ROOM_FOR_IDEAS = 100
"""Below this many columns the tree shows no strategies and evidence."""


@dataclass
class TreeTable:
    """What is to be drawn."""

    tree: Tree
    title: str
    steps: Mapping[int, Text] = field(default_factory=dict)
    """What each attempt in flight is at."""

    checked: Mapping[int, Evaluation] = field(default_factory=dict)
    """What the final check found, by attempt: the star goes to what held in it."""

    most_lines: int | None = None
    """Fold what does not fit into so many lines."""

    def table(self, columns: int) -> Table:
        """The tree, drawn for a screen of so many columns."""
        shown = self._shown()
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for name in ("attempt", "status"):
            table.add_column(name, no_wrap=True)
        for name in ("latency", "speedup"):
            table.add_column(name, no_wrap=True, justify="right")
        table.add_column("note", no_wrap=True, overflow="ellipsis", ratio=1)
        root_ms = milliseconds(self.tree.root_latency_ms)
        table.add_row(
            Text(self.title, "bold"), "reference", root_ms, "1.00x", _folded(self._hidden(shown))
        )
        children = self._children()
        for id, branch in _walk(children, shown):
            table.add_row(*self._row(id, Text(branch, "dim"), columns >= ROOM_FOR_IDEAS))
        return table

    def _row(self, id: int, branch: Text, with_idea: bool) -> tuple[Text | str, ...]:
        if id in self.tree.pending:
            action = self.tree.pending[id].action
            step = self.steps.get(id, Text("waiting", "dim"))
            return branch + Text(f"{id} {action}", "cyan"), step, "", "", ""
        node = self.tree.node(id)
        best = best_so_far(self.tree, self.checked)
        name = branch + Text(f"{id} {node.role}", "default")
        state = Text(status(node.evaluation), STATUS_STYLES[node.evaluation.status])
        note = (idea(node) if node.works else reason(node.evaluation)) if with_idea else ""
        latency, speedup = "", Text("")
        if isinstance(node.evaluation, Correct):
            latency = milliseconds(node.evaluation.latency_ms)
            speedup = Text(f"{node.evaluation.speedup_vs('eager').ratio:.2f}x")
            if best is not None and best.id == id:
                name.stylize("bold")
                state = Text("★ best", "bold green")
                speedup.stylize("bold green")
        return name, state, latency, speedup, Text(note, "dim")

    def _children(self) -> dict[int, list[int]]:
        """Finished and running attempts by where they started, each in the order of their numbers."""
        children: defaultdict[int, list[int]] = defaultdict(list)
        for id in sorted([*(node.id for node in self.tree.nodes), *self.tree.pending]):
            children[self._parent(id)].append(id)
        return children

    def _parent(self, id: int) -> int:
        pending = self.tree.pending
        return pending[id].parent if id in pending else self.tree.node(id).parent

    def _shown(self) -> set[int]:
        """What fits: running attempts first, then the best, then the newest, each with its ancestors."""
        everything = {node.id for node in self.tree.nodes} | set(self.tree.pending)
        if self.most_lines is None or len(everything) < self.most_lines:
            return everything
        best = best_so_far(self.tree, self.checked)
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

    def _hidden(self, shown: set[int]) -> int:
        return len(self.tree.nodes) + len(self.tree.pending) - len(shown)


def _folded(count: int) -> Text:
    return Text(f"{count} more folded away" if count else "", "dim italic")


def _walk(children: Mapping[int, list[int]], shown: set[int]) -> Iterable[tuple[int, str]]:
    """Every shown attempt below the root with its drawn branch, from top to bottom."""
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
