from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.evaluator.judge.shelf import MOST_KEPT, Shelf


class Prepared:
    room_bytes = 10.0

    def __init__(self, held_bytes: float = 1.0, short_of_memory: bool = False) -> None:
        self.held_bytes, self.short_of_memory = held_bytes, short_of_memory
        self.closed = False

    def close(self) -> None:
        self.closed = True


def problem(name: str) -> Problem:
    return Problem(name=name, source=f"# {name}")


def none() -> Prepared:
    raise AssertionError("it is ready")


def test_what_is_ready_is_not_prepared_again() -> None:
    shelf: Shelf[Prepared] = Shelf()
    one, other = Prepared(), Prepared()

    shelf.take(problem("a"), lambda: one)
    shelf.take(problem("b"), lambda: other)

    assert one is shelf.take(problem("a"), none)
    assert other is shelf.take(problem("b"), none)


def test_the_least_recently_used_goes_where_all_hold_too_much() -> None:
    shelf: Shelf[Prepared] = Shelf()
    a, b, c = Prepared(4.0), Prepared(4.0), Prepared(4.0)
    shelf.take(problem("a"), lambda: a)
    shelf.take(problem("b"), lambda: b)
    shelf.take(problem("a"), none)

    shelf.take(problem("c"), lambda: c)

    assert [False, True, False] == [a.closed, b.closed, c.closed]


def test_one_that_grew_pushes_the_others_out() -> None:
    shelf: Shelf[Prepared] = Shelf()
    small, growing = Prepared(), Prepared()
    shelf.take(problem("a"), lambda: small)
    shelf.take(problem("b"), lambda: growing)
    growing.held_bytes = 1000.0

    assert growing is shelf.take(problem("b"), none)
    assert small.closed
    assert not growing.closed


def test_no_more_than_a_few_are_kept_however_small() -> None:
    shelf: Shelf[Prepared] = Shelf()
    first = Prepared(0.0)
    shelf.take(problem("first"), lambda: first)

    for number in range(MOST_KEPT):
        shelf.take(problem(str(number)), lambda: Prepared(0.0))

    assert first.closed


def test_one_that_memory_was_short_for_is_prepared_with_nothing_beside_it() -> None:
    shelf: Shelf[Prepared] = Shelf()
    beside = Prepared()
    shelf.take(problem("a"), lambda: beside)
    made: list[Prepared] = []

    def prepare() -> Prepared:
        made.append(Prepared(short_of_memory=not beside.closed))
        return made[-1]

    found = shelf.take(problem("b"), prepare)

    assert [True, False] == [one.closed for one in made]
    assert found is made[1]


def test_a_refusal_is_believed_when_nothing_was_beside() -> None:
    shelf: Shelf[Prepared] = Shelf()
    beside = Prepared()
    shelf.take(problem("a"), lambda: beside)
    tries: list[bool] = []

    def refuse() -> Prepared:
        tries.append(beside.closed)
        raise ProblemError("forward raised OutOfMemoryError") from torch.OutOfMemoryError("none")

    with pytest.raises(ProblemError):
        shelf.take(problem("b"), refuse)
    assert [False, True] == tries


def test_a_mistake_in_a_problem_pushes_no_other_out() -> None:
    shelf: Shelf[Prepared] = Shelf()
    beside = Prepared()
    shelf.take(problem("a"), lambda: beside)

    def mistaken() -> Prepared:
        raise ProblemError("b: line 3: forward raised NameError: name 'rleu' is not defined")

    with pytest.raises(ProblemError, match="rleu"):
        shelf.take(problem("b"), mistaken)

    assert not beside.closed
    assert beside is shelf.take(problem("a"), none)
