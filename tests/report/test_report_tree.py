from __future__ import annotations

import random
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from stark.core.node import Node, Selection
from stark.explain.numbers import milliseconds
from stark.report.attempt_document import attempt_document
from stark.report.document import standing_among
from stark.report.tree import TreeTable
from stark.search.tree import Tree
from support.nodes import EAGER_MS, correct, failing, random_tree, working


def table_of(tree: Tree, title: str = "softmax", **more: Any) -> TreeTable:
    attempts = {node.id: attempt_document(node) for node in tree.nodes}
    best = standing_among(attempts.values(), {}).best
    time = milliseconds(tree.root_latency_ms)
    return TreeTable(title, time, attempts, tree.pending, best, **more)


def drawn(table: TreeTable, columns: int = 120) -> list[str]:
    console = Console(width=columns, markup=False)
    with console.capture() as capture:
        console.print(table.table(columns))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_every_attempt_has_a_line_below_its_parent() -> None:
    tree = Tree.replay(EAGER_MS, [working(1), failing(2), working(3, parent=1, latency_ms=0.25)])

    lines = drawn(table_of(tree))

    assert ["softmax", "├─ 1 code", "│  └─ 3 code", "└─ 2 code"] == [
        line[:12].rstrip() for line in lines
    ]
    assert "★ best" in lines[2] and "4.00x" in lines[2]
    assert "output 0: relative error 0.31" in lines[3]


def test_narrow_screens_show_no_strategies() -> None:
    tree = Tree.replay(EAGER_MS, [working(1)])

    assert "fuse the elementwise tail" in drawn(table_of(tree), 120)[1]
    assert "fuse" not in drawn(table_of(tree), 80)[1]


@pytest.mark.parametrize("seed", range(5))
def test_folding_keeps_what_is_in_flight_and_the_best(seed: int) -> None:
    tree = random_tree(60, random.Random(seed), pending=2)

    lines = drawn(table_of(tree, most_lines=25))

    assert len(lines) <= 25
    assert all(any(f" {id} " in line for line in lines) for id in tree.pending)
    assert any("★ best" in line for line in lines)
    folded = 60 + len(tree.pending) - (len(lines) - 1)
    assert f"{folded} more folded away" in lines[0]


def test_a_repair_and_a_repetition_say_so() -> None:
    repeated = working(4).model_copy(update={"duplicate_of": 1})
    tree = Tree.replay(
        EAGER_MS,
        [working(1), failing(2), working(3, parent=2, action="debug", latency_ms=0.6), repeated],
    )

    lines = drawn(table_of(tree))

    assert "repair of 2: Strategy 3: fuse the elementwise tail" in lines[3]
    assert "same source as attempt 1" in lines[4]


def noisy(id: int) -> Node:
    found = correct(0.1)
    samples = (0.01, 0.02, 0.1, 0.1, 0.1, 0.1, 0.1, 0.4, 0.5)
    candidate = found.candidate.model_copy(update={"samples_ms": samples})
    return working(id).model_copy(
        update={"evaluation": found.model_copy(update={"candidate": candidate})}
    )


def test_a_noisy_speedup_is_marked_and_has_no_star() -> None:
    lines = drawn(table_of(Tree.replay(EAGER_MS, [noisy(1), working(2)])))

    assert "noisy 9.97x" in lines[1] and "★" not in lines[1]
    assert "★ best" in lines[2]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_screen_cuts_branches_and_titles_but_no_number(columns: int) -> None:
    chain = [working(id, parent=id - 1, latency_ms=0.111) for id in range(1, 31)]
    tree = Tree.replay(EAGER_MS, chain)
    tree.begin(31, Selection(parent=30, action="improve"))
    steps = {31: Text("⠋ final check 1:02:05")}

    lines = drawn(table_of(tree, "a_problem_with_quite_a_long_name_" * 2, steps=steps), columns)

    assert all(len(line) <= columns for line in lines)
    assert lines[0].endswith("reference              1.00 ms  1.00x")
    assert all("code" in line and line.endswith(" µs  9.01x") for line in lines[1:31])
    assert "31 improve" in lines[31] and "final check 1:02:05" in lines[31]
