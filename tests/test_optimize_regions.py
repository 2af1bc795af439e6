from __future__ import annotations

import pytest

from stark.improving import part_of_next


def test_a_run_gets_its_share_by_possible_saving() -> None:
    assert {"dollars": 3.0} == part_of_next({"dollars": 4.0}, {}, [6.0, 2.0])
    assert {} == part_of_next({}, {"dollars": 100.0}, [6.0, 2.0])


def test_what_is_left_over_goes_to_the_last() -> None:
    limits = {"dollars": 4.0, "tokens": 1000.0, "minutes": 60.0}
    used = {"dollars": 0.5, "tokens": 100, "minutes": 7.5}

    assert {"dollars": 3.5, "tokens": 900, "minutes": 52.5} == part_of_next(limits, used, [2.0])


@pytest.mark.parametrize("name", ["dollars", "tokens", "minutes"])
def test_nothing_is_left_at_a_limit(name: str) -> None:
    assert part_of_next({name: 4.0}, {name: 4.0}, [2.0]) is None
    assert part_of_next({name: 4.0}, {name: 4.5}, [2.0]) is None
