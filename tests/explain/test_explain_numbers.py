from __future__ import annotations

import pytest

from stark.explain.numbers import counted, duration, listed, milliseconds


def test_one_is_not_several() -> None:
    assert ["0 runs", "1 run", "2 runs", "37,500 runs"] == [
        counted(number, "run") for number in (0, 1, 2, 37_500)
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0004, "0.40 µs"),
        (0.0123, "12.3 µs"),
        (0.5, "500 µs"),
        (1.234, "1.23 ms"),
        (2500, "2.50 s"),
    ],
)
def test_milliseconds(value: float, said: str) -> None:
    assert said == milliseconds(value)


@pytest.mark.parametrize(("value", "said"), [(7.9, "0:07"), (750, "12:30"), (3725, "1:02:05")])
def test_duration(value: float, said: str) -> None:
    assert said == duration(value)


def test_listed() -> None:
    assert ["1", "1 and 2", "1, 2 and 3"] == [listed(range(1, end)) for end in (2, 3, 4)]
