from __future__ import annotations

import random

import pytest

from stark.benches.compare import Difference, compare
from stark.benches.metrics import best_within
from stark.benches.results import Result
from support.benches import attempt, kernel, result


def of(strategy: str, speedups: dict[str, float | None], seed: int = 1) -> list[Result]:
    return [
        result(
            problem,
            None if speedup is None else kernel(speedup),
            (attempt(1, speedup), attempt(2)),
            strategy=strategy,
            seed=seed,
        )
        for problem, speedup in speedups.items()
    ]


def differences(ours: list[Result], theirs: list[Result]) -> dict[str, Difference]:
    found = compare("level1", "stark", ours, "sampling", theirs)
    return {one.metric: one for one in found}


def test_values_are_means_over_problems() -> None:
    found = differences(
        of("stark", {"a": 4.0, "b": 2.5, "c": 1.5, "d": None}),
        of("sampling", {"a": 1.0, "b": 2.5, "c": None, "d": None}),
    )

    assert 1 / 4 == found["success"].value
    assert 2 / 4 == found["fast_1"].value
    assert 1 / 4 == found["fast_2"].value
    # 4 to 1, 1 to 1, 1.5 to 1, 1 to 1.
    assert pytest.approx(6 ** (1 / 4)) == found["geomean"].value
    # Half of the attempts are correct in a, b and c; in a and b.
    assert pytest.approx(1 / 8) == found["correct_share"].value
    assert {4} == {one.problems for one in found.values()}


def test_the_same_difference_everywhere_is_significant() -> None:
    names = "abcdefgh"
    found = differences(
        of("stark", dict.fromkeys(names, 3.0)), of("sampling", dict.fromkeys(names, 1.5))
    )

    ratio = found["geomean"]
    assert pytest.approx((2.0, 2.0, 2.0)) == (ratio.value, ratio.low, ratio.high)
    assert ratio.significant
    assert not found["success"].significant


@pytest.mark.parametrize(("names", "enough"), [("a", False), ("abcde", False), ("abcdef", True)])
def test_there_is_no_interval_over_fewer_than_six_problems(names: str, enough: bool) -> None:
    found = differences(
        of("stark", dict.fromkeys(names, 3.0)), of("sampling", dict.fromkeys(names, 1.5))
    )["geomean"]

    assert pytest.approx(2.0) == found.value
    assert (enough, enough) == (found.low is not None, found.high is not None)
    assert enough == found.significant


def test_pairing_removes_the_differences_between_problems() -> None:
    rng = random.Random(3)
    hard = {str(n): 2.0 ** rng.uniform(-3, 5) for n in range(40)}
    better = {name: value * 1.2 * rng.uniform(0.95, 1.05) for name, value in hard.items()}

    ratio = differences(of("stark", better), of("sampling", hard))["geomean"]

    assert ratio.low is not None and ratio.high is not None
    assert 1.15 < ratio.low < ratio.value < ratio.high < 1.25


def test_an_interval_covers_about_what_the_normal_approximation_does() -> None:
    # 100 problems, solved by the first strategy alone with probability 0.3: 0.3 +- 1.96 * 0.0458.
    ours: dict[str, float | None] = {str(n): 2.0 if n < 30 else None for n in range(100)}
    found = differences(of("stark", ours), of("sampling", dict.fromkeys(ours)))["success"]

    assert 0.3 == pytest.approx(found.value)
    assert (pytest.approx(0.21, abs=0.02), pytest.approx(0.39, abs=0.02)) == (found.low, found.high)


def test_only_shared_problems_and_seeds_are_compared_and_seeds_are_averaged_first() -> None:
    ours = of("stark", {"a": 4.0, "b": 2.0}) + of("stark", {"a": 1.0}, seed=2)
    theirs = of("sampling", {"a": 1.0, "z": 8.0}) + of("sampling", {"a": 1.0}, seed=2)

    found = differences(ours, theirs)

    assert 1 == found["geomean"].problems
    assert pytest.approx(2.0) == found["geomean"].value, "the mean of 4 and 1 in logarithms"
    assert [] == compare("level1", "stark", ours, "sampling", of("sampling", {"z": 1.0}))


def test_the_same_results_give_the_same_intervals() -> None:
    speedups: dict[str, float | None] = {name: 1.0 + n for n, name in enumerate("abcdefgh")}
    ours, theirs = of("stark", speedups), of("sampling", dict.fromkeys(speedups, 2.0))

    found = differences(ours, theirs)
    assert found["geomean"].low is not None
    assert found == differences(ours, theirs)


def spending(strategy: str, *attempts: tuple[float | None, int]) -> list[Result]:
    """A run whose attempts have these speedups and tokens."""
    made = tuple(attempt(id, ratio) for id, (ratio, _) in enumerate(attempts, 1))
    [best] = sorted(ratio or 0.0 for ratio, _ in attempts)[-1:]
    run = result("a", kernel(best), made, strategy=strategy)
    tokens = {id: spent for id, (_, spent) in enumerate(attempts, 1)}
    return [run._replace(outcome=run.outcome._replace(tokens=tokens))]


def test_at_equal_tokens_the_run_that_spent_more_is_cut_off() -> None:
    team = spending("stark", (2.0, 300), (None, 300), (6.0, 300))
    cheap = spending("sampling", (1.5, 200), (3.0, 200), (2.5, 200))

    found = differences(team, cheap)

    assert pytest.approx(2.0) == found["geomean"].value
    # 600 tokens: two attempts of the team, all of the other.
    assert pytest.approx(2.0 / 3.0) == found["equal_tokens"].value


def test_what_fits_exactly_counts_and_nothing_is_found_for_too_few_tokens() -> None:
    [run] = spending("stark", (None, 100), (2.0, 100))

    assert [1.0, 1.0, 2.0] == [best_within(run, tokens) for tokens in (50, 199, 200)]
