from __future__ import annotations

import random

import pytest
from rich.console import Console

from stark.report.tree import TreeTable
from stark.search.tree import Tree
from stark.testing.nodes import EAGER_MS, failing, random_tree, working


def drawn(table: TreeTable, columns: int = 120) -> list[str]:
    console = Console(width=columns, markup=False)
    with console.capture() as capture:
        console.print(table.table(columns))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_every_attempt_has_a_line_below_its_parent() -> None:
    tree = Tree.replay(EAGER_MS, [working(1), failing(2), working(3, parent=1, latency_ms=0.25)])

    lines = drawn(TreeTable(tree, "softmax"))

    assert ["softmax", "├─ 1 code", "│  └─ 3 code", "└─ 2 code"] == [
        line[:12].rstrip() for line in lines
    ]
    assert "★ best" in lines[2] and "4.00x" in lines[2]
    assert "output 0: relative error 0.31" in lines[3]


def test_narrow_screens_show_no_strategies() -> None:
    tree = Tree.replay(EAGER_MS, [working(1)])

    assert "fuse the elementwise tail" in drawn(TreeTable(tree, "softmax"), 120)[1]
    assert "fuse" not in drawn(TreeTable(tree, "softmax"), 80)[1]


@pytest.mark.parametrize("seed", range(5))
def test_folding_keeps_what_is_in_flight_and_the_best(seed: int) -> None:
    tree = random_tree(60, random.Random(seed), pending=2)

    lines = drawn(TreeTable(tree, "softmax", most_lines=25))

    assert len(lines) <= 25
    assert all(any(f" {id} " in line for line in lines) for id in tree.pending)
    assert any("★ best" in line for line in lines)
    folded = 60 + len(tree.pending) - (len(lines) - 1)
    assert f"{folded} more folded away" in lines[0]
