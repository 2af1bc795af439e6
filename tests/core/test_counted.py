from __future__ import annotations

from stark.core.counted import counted


def test_one_is_not_several() -> None:
    assert ["0 runs", "1 run", "2 runs", "37,500 runs"] == [
        counted(number, "run") for number in (0, 1, 2, 37_500)
    ]
