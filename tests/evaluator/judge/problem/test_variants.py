from __future__ import annotations

import pytest

from stark.core.problem import Problem
from stark.evaluator.judge.problem.variants import variants


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("N = 64", "N = 33"),
        ("N = 2", "N = 3"),
        ("N = 64; x = N\n", "N = 33; x = N\n"),
        ("\x0c\nN = 64", "\x0c\nN = 33"),
        ("# \u2028 \x1c \x85\nN = 64\n", "# \u2028 \x1c \x85\nN = 33\n"),
        ("µ = 'µ'; N = 64", "µ = 'µ'; N = 33"),
        ("a = 'x'\r\nN = 64\r\n", "a = 'x'\r\nN = 33\r\n"),
    ],
)
def test_a_constant_is_changed_where_it_stands(source: str, changed: str) -> None:
    ((variant, _),) = variants(Problem(name="p", source=source))

    assert changed == variant.source


def test_each_constant_is_changed_alone() -> None:
    found = list(variants(Problem(name="p", source="N = 64\nM = 9\nEPS = 0.1\nON = True\nZ = 0\n")))

    assert ["N = 33", "M = 19"] == [change for _, change in found]
    assert ["N = 33\nM = 9", "N = 64\nM = 19"] == [
        variant.source.partition("\nEPS")[0] for variant, _ in found
    ]
