"""Which integers and booleans may differ from the reference's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.verify.exact import FIRST, MOST_RUNS, differing, is_right
from stark.evaluator.judge.verify.mismatch import fault
from stark.evaluator.judge.verify.oracle import compare, expect

Moved = Callable[[], Iterator[Any]]
TYPES = [torch.int8, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32]


def codes(*shape: int) -> torch.Tensor:
    return torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(0))


def with_one_more(values: torch.Tensor, *places: int) -> torch.Tensor:
    changed = values.clone()
    changed.view(-1)[list(places)] += 1
    return changed


def runs(values: torch.Tensor, *boundary: int, share: float = 0.5) -> Moved:
    """Results of a reference in which the elements of `boundary` are one higher by chance."""

    def moved() -> Iterator[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        for _ in range(MOST_RUNS):
            here = torch.rand(len(boundary), generator=generator) < share
            yield with_one_more(values, *torch.tensor(boundary)[here].tolist())

    return moved


def never() -> Iterator[torch.Tensor]:
    raise AssertionError("the reference is run again")
    yield


@pytest.mark.parametrize("dtype", [*TYPES, torch.bool])
def test_what_equals_the_oracle_is_right(dtype: Any) -> None:
    values = codes(40, 50) % 2 if dtype == torch.bool else codes(40, 50)
    oracle, eager, other = (each.to(dtype) for each in (values, values.flip(1), values.flip(0)))

    assert compare(oracle, expect(oracle, eager)).passes
    assert compare(eager, expect(oracle, eager)).passes
    assert not compare(other, expect(oracle, eager)).passes
    assert not is_right(other, eager, oracle, never)


@pytest.mark.parametrize("dtype", TYPES)
def test_each_element_may_be_the_references_or_the_oracles(dtype: Any) -> None:
    oracle = codes(40, 50).to(dtype)
    eager = with_one_more(oracle.long(), 3, 700, 1500).to(dtype)
    mixed = with_one_more(oracle.long(), 700).to(dtype)

    assert is_right(mixed, eager, oracle, never)


def test_an_oracle_of_another_type_is_of_another_function() -> None:
    eager = codes(40, 50)

    assert not compare(eager.int() + 1, expect(eager.int() + 1, eager)).passes
    assert not is_right(eager + 1, eager, eager.int() + 1, never)


def test_an_element_at_a_boundary_may_fall_to_either_side() -> None:
    eager = codes(40, 50)
    ours = with_one_more(eager, 3, 700)

    assert is_right(ours, eager, eager, runs(eager, 3, 700, 701))
    assert is_right(ours, eager, eager, runs(eager, 3, 700, share=0.2)), "all runs may be needed"
    assert not is_right(ours, eager, eager, runs(eager, 3)), "element 700 lies at none"
    assert not is_right(with_one_more(ours, 3), eager, eager, runs(eager, 3, 700)), "2 more"


def test_what_does_not_depend_on_rounding_must_be_equal() -> None:
    eager = codes(40, 50)

    assert not is_right(with_one_more(eager, 3), eager, eager, runs(eager))


def test_a_comparison_for_equality_explains_nothing() -> None:
    """It never holds once inputs have moved, so no run returns the right value."""
    eager = torch.zeros(40, 50, dtype=torch.bool)
    eager.view(-1)[[3, 700]] = True

    def moved() -> Iterator[torch.Tensor]:
        for _ in range(MOST_RUNS):
            yield torch.zeros_like(eager)

    assert not is_right(torch.zeros_like(eager), eager, eager, moved)


def test_moves_that_change_the_problem_explain_nothing() -> None:
    eager = codes(40, 50)
    ours = with_one_more(eager, 4)

    assert is_right(ours, eager, eager, runs(eager, *range(0, 2000, 2)))
    assert not is_right(ours, eager, eager, runs(eager, *range(2000), share=0.9))


def test_a_wrong_kernel_costs_a_few_runs_of_the_reference() -> None:
    eager = codes(100, 100)
    made = 0

    def moved() -> Iterator[torch.Tensor]:
        nonlocal made
        for _ in range(MOST_RUNS):
            made += 1
            yield eager

    assert not is_right(with_one_more(eager, *range(0, 9900, 110)), eager, eager, moved)
    assert made == FIRST


@pytest.mark.parametrize(("wrong", "few"), [(1, True), (19, True), (21, False)])
def test_one_element_in_a_hundred_may_differ(wrong: int, few: bool) -> None:
    eager = codes(40, 50)
    places = [97 * number for number in range(wrong)]

    found = differing(with_one_more(eager, *places), eager)

    assert few == (found is not None)
    assert found is None or found.tolist() == places


@pytest.mark.parametrize("value", [True, False])
def test_elements_with_the_commonest_value_do_not_count(value: bool) -> None:
    """A mask that is nearly empty, or nearly full, may not be returned as a constant."""
    eager = torch.full((100, 100), not value)
    eager.view(-1)[::97] = value

    assert differing(torch.full_like(eager, not value), eager) is None
    eager.view(-1)[::21] = value
    some = eager.clone()
    some.view(-1)[[0, 2121, 4242]] = not value
    assert differing(some, eager) is not None


@pytest.mark.parametrize(
    ("shape", "left_out"),
    [((400, 20), (7,)), ((20, 400), (slice(None), 7)), ((20, 30, 40), (7, 8)), ((200, 6, 5), (7,))],
)
def test_no_row_and_no_slice_is_left_out(
    shape: tuple[int, ...], left_out: tuple[int | slice, ...]
) -> None:
    """Each of its elements may lie at a boundary, as in a row whose terms cancel."""
    eager = codes(*shape)
    ours = eager.clone()
    ours[left_out] += 1

    assert differing(ours, eager) is None


def test_two_near_values_may_change_places_in_a_short_row() -> None:
    eager = torch.arange(8).repeat(16, 1)
    ours = eager.clone()
    ours[3, 4:6] = torch.tensor([5, 4])

    found = differing(ours, eager)

    assert found is not None
    assert found.tolist() == [28, 29]


@pytest.mark.parametrize("shape", [(0,), (0, 3), ()])
def test_outputs_of_no_or_one_element(shape: tuple[int, ...]) -> None:
    eager = codes(*shape)

    found = differing(eager, eager)

    assert found is not None
    assert not len(found)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8])
def test_a_message_leaves_out_what_equals_the_oracle(dtype: Any) -> None:
    oracle = codes(40, 50).to(dtype)
    eager = with_one_more(oracle.long(), 3, 700).to(dtype)
    ours = with_one_more(oracle.long(), 1504).to(dtype)

    text = fault("output 0", ours, expect(oracle, eager), {})

    assert "1 of 2,000 elements" in text
    assert "next to a tie" in text


def test_what_is_wrong_in_many_elements_is_said_without_ties() -> None:
    eager = codes(40, 50)

    assert "tie" not in fault("output 0", eager + 1, expect(eager, eager), {})
