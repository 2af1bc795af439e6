"""Constants that a candidate declares as free."""

from __future__ import annotations

import ast

import pytest

from stark.core.tunable import tunables, with_changes
from stark.core.tuning import Change

SOURCE = '''"""A kernel."""
import torch

BLOCK = 64  # tune: 32, 64, 128
FAST: bool = True  #tune:True,False
é = 1; ORDER = "é"  # tune: "é", 'rows'
SHIFT = -2  # tune: -2, 0.0 + 1
TEXT = r"""
int x = 1;  # tune: 1, 2
"""
'''


def test_constants_are_read_with_all_their_values() -> None:
    found = tunables(SOURCE)

    assert [
        ("BLOCK", 64, (32, 64, 128)),
        ("FAST", True, (True, False)),
        ("ORDER", "é", ("é", "rows")),
    ] == [(each.name, each.value, each.values) for each in found.constants]
    assert 3 * 2 * 2 == found.size
    assert (64, True, "é") == found.own
    (ignored,) = found.ignored
    assert "line 7" in ignored and "literals" in ignored


def test_a_variant_differs_in_its_constants_alone() -> None:
    found = tunables(SOURCE)

    written = found.written((128, True, "rows"))

    changed = [
        (old, new)
        for old, new in zip(SOURCE.splitlines(), written.splitlines(), strict=True)
        if old != new
    ]
    assert [
        ("BLOCK = 64  # tune: 32, 64, 128", "BLOCK = 128  # tune: 32, 64, 128"),
        (
            'é = 1; ORDER = "é"  # tune: "é", \'rows\'',
            "é = 1; ORDER = 'rows'  # tune: \"é\", 'rows'",
        ),
    ] == changed
    assert SOURCE == found.written(found.own)
    assert (128, True, "rows") == tunables(written).own, "a variant declares the same"
    ast.parse(written)


def test_changes_are_those_of_the_constants_that_differ() -> None:
    found = tunables(SOURCE)

    changes = found.changes((32, True, "é"))

    assert (Change(name="BLOCK", old="64", new="32"),) == changes
    assert found.written((32, True, "é")) == with_changes(SOURCE, changes)


def test_of_many_broken_declarations_the_first_are_reported() -> None:
    found = tunables("# tune: 1\n" * 50 + "BLOCK = 64  # tune: 32, 64\n")

    assert 20 == len(found.ignored) and found.ignored[0].startswith("line 1:")
    assert 1 == len(found.constants)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("BLOCK = 64  # tune: 32, 128", "lack its own, 64"),
        ("BLOCK = 64  # tune: 64", "different values"),
        ("BLOCK = 64  # tune: 64, 64", "different values"),
        ("BLOCK = 64  # tune: 32, 64.5", "differ in type"),
        ("BLOCK = True  # tune: 1, 0", "differ in type"),
        ("BLOCK = 64  # tune: 32 to 128", "literals with commas"),
        ("BLOCK = 64  # tune:", "literals with commas"),
        ("BLOCK = 64  # tune: [32, 64]", "literals with commas"),
        ("BLOCK = size()  # tune: 32, 64", "no number, text"),
        (f"BLOCK = 0x{'F' * 5000}  # tune: 1, 2", "no number, text"),
        (f"BLOCK = 1  # tune: 0x{'F' * 5000}, 1", "literals with commas"),
        ("BLOCK = WARPS = 4  # tune: 4, 8", "one name"),
        ("BLOCK = 64  # tune: 32, 64\nBLOCK += 1", "assigned more than once"),
        ("class A:\n    BLOCK = 64  # tune: 32, 64", "top-level"),
        ("# tune: 32, 64", "top-level"),
        (f"BLOCK = 0  # tune: {', '.join(map(str, range(100)))}", "2 to 64 different"),
    ],
)
def test_a_broken_declaration_is_ignored_with_a_reason(line: str, reason: str) -> None:
    found = tunables(line + "\n")

    assert ((), 1) == (found.constants, found.size)
    (ignored,) = found.ignored
    assert reason in ignored


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1\n",
        "def f(:  # tune: 1, 2",
        "BLOCK = 64  # tune: 32, 64\rx = 1\n",
        "x = '# tune: 1'\n",
    ],
)
def test_other_sources_declare_nothing(source: str) -> None:
    found = tunables(source)

    assert ((), ()) == (found.constants, found.ignored)


def test_lines_may_end_in_carriage_returns() -> None:
    source = "import torch\r\nBLOCK = 64  # tune: 32, 64\r\n"

    assert source.replace("= 64", "= 32") == tunables(source).written((32,))


def test_a_constant_that_is_gone_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="no constant BLOCK"):
        with_changes("x = 1\n", [Change(name="BLOCK", old="64", new="32")])
