from __future__ import annotations

from stark.evaluator.judge.compiler.pieces import needed, split

SOURCE = """import os, math as m
from torch import device

SIZE = 3
# What it is for.
# And why.
LIMIT = SIZE * m.pi


@staticmethod
def unused(SIZE=4):
    return os.name


class Thing:
    def __init__(self):
        self.limit = LIMIT


device.type = "cpu"
if __name__ == "__main__":
    Thing()
"""


def test_a_piece_keeps_the_comments_above_it_and_imports_come_one_by_one() -> None:
    texts = [piece.text for piece in split(SOURCE)]

    assert ["import os", "import math as m", "from torch import device", "SIZE = 3"] == texts[:4]
    assert "# What it is for.\n# And why.\nLIMIT = SIZE * m.pi" == texts[4]
    assert texts[5].startswith("@staticmethod\ndef unused")


def test_pieces_say_what_they_bind_and_use() -> None:
    pieces = split(SOURCE)

    assert [{"os"}, {"m"}, {"device"}, {"SIZE"}, {"LIMIT"}, {"unused"}, {"Thing"}] == [
        piece.binds for piece in pieces[:7]
    ]
    assert {"SIZE", "m"} == pieces[4].uses
    assert [False] * 8 + [True] == [piece.is_main for piece in pieces]
    assert [True] * 3 + [False] * 6 == [piece.is_import for piece in pieces]


def test_what_a_name_needs_is_kept_in_order_with_what_binds_nothing() -> None:
    pieces = [piece for piece in split(SOURCE + "SIZE = 3\n") if not piece.is_main]

    kept = needed(pieces, ["Thing"])

    assert ["import math as m", "from torch import device", "SIZE = 3"] == [
        piece.text for piece in kept[:3]
    ]
    assert [{"LIMIT"}, {"Thing"}, set()] == [piece.binds for piece in kept[3:]]


def test_what_a_function_binds_itself_it_does_not_need_from_the_file() -> None:
    (whole,) = split(
        "def f(size: Number = LEAST, *rest):\n    total = size + BASE\n"
        "    return lambda x: x + total + (lambda: size)() + g(rest)\n"
    )

    assert {"Number", "LEAST", "BASE", "g"} == whole.uses


def test_what_is_bound_inside_a_function_or_comprehension_is_no_name_of_the_file() -> None:
    (whole,) = split("for i in range(3):\n    total = [j for j in range(i)]\n")

    assert {"i", "total"} == whole.binds
