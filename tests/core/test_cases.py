from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from pydantic import ValidationError

from stark.core.cases import Weighing, least
from stark.core.errors import ProblemError
from stark.core.measurement import Speedup
from stark.core.problem import Problem
from support.cases import PROBLEM, weighing


def speedup(ratio: float, low: float, high: float) -> Speedup:
    return Speedup(reference="eager", ratio=ratio, low=low, high=high)


SPEEDUPS = {"decode": speedup(2.0, 1.0, 4.0), "prefill": speedup(16.0, 16.0, 16.0)}


def test_the_heaviest_case_is_the_main_one_and_the_first_of_equals() -> None:
    assert "decode" == weighing().main
    assert "a" == Weighing(weights={"a": 1.0, "b": 1.0}, objective="worst").main
    assert "b" == Weighing(weights={"a": 1.0, "b": 2.0}, objective="worst").main


def test_a_weighing_has_a_case() -> None:
    with pytest.raises(ValidationError):
        Weighing(weights={}, objective="worst")


def test_the_mean_is_geometric_and_weighted() -> None:
    assert weighing().mean({"decode": 2.0, "prefill": 16.0}) == pytest.approx(2 * 2**0.75)
    assert weighing().mean({"decode": 0.0, "prefill": 16.0}) == 0
    assert weighing().mean({"decode": math.inf, "prefill": 16.0}) == math.inf


def test_the_objective_over_speedups() -> None:
    mean, worst = weighing().speedup(SPEEDUPS), weighing("worst").speedup(SPEEDUPS)

    assert (mean.ratio, mean.low, mean.high) == pytest.approx((2 * 2**0.75, 2.0, 4 * 2**0.5))
    assert (2.0, 1.0, 4.0) == (worst.ratio, worst.low, worst.high)
    assert {"eager"} == {mean.reference, worst.reference}


def test_the_worst_takes_each_end_from_the_case_where_it_is_smallest() -> None:
    found = weighing("worst").speedup(
        {"decode": speedup(2.0, 1.9, 2.1), "prefill": speedup(2.5, 1.0, 6.0)}
    )

    assert (2.0, 1.0, 2.1) == (found.ratio, found.low, found.high)


@pytest.mark.parametrize("objective", ["geomean", "worst"])
@pytest.mark.parametrize("correlated", [False, True])
def test_the_interval_holds_as_often_as_in_one_case(objective: str, correlated: bool) -> None:
    """Four cases of the same speedup, the hardest for the minimum, with normal errors of known size."""
    cases, noise, draws = ("a", "b", "c", "d"), 0.05, 4000
    weights = dict.fromkeys(cases, 1.0)
    every = Weighing.model_validate({"weights": weights, "objective": objective})
    half, drawn = NormalDist().inv_cdf(0.975) * noise, random.Random(7)
    too_high = too_low = 0
    for _ in range(draws):
        common = drawn.gauss(0, noise)
        errors = (common if correlated else drawn.gauss(0, noise) for _ in cases)
        found = every.speedup(
            {
                case: speedup(*(math.exp(error + end) for end in (0, -half, half)))
                for case, error in zip(cases, errors, strict=True)
            }
        )
        too_high += found.low > 1
        too_low += found.high < 1

    most = 0.025 + 3 * math.sqrt(0.025 / draws)
    assert too_high / draws < most
    if objective == "geomean":
        assert too_low / draws < most


def test_a_figure_belongs_to_the_objective() -> None:
    by_case = {"decode": 1.0, "prefill": 16.0}

    assert weighing().figure(by_case, SPEEDUPS) == pytest.approx(2.0)
    assert weighing("worst").figure(by_case, SPEEDUPS) == 1.0
    assert "decode" == least(SPEEDUPS)


def test_a_problem_of_one_case_has_the_same_text_and_a_last_line() -> None:
    found = PROBLEM.at("prefill")

    assert "scaled_relu[prefill]" == found.name
    assert found.source.startswith(PROBLEM.source.rstrip())
    assert PROBLEM.digest != found.digest != PROBLEM.at("decode").digest


def test_the_last_line_chooses_the_case_whatever_the_name_is() -> None:
    source = "def get_inputs(case='a'):\n    return [case]"

    for name in ("it's", 'a "b"', "new\nline", "\\", "{}"):
        space: dict[str, object] = {}
        exec(Problem(name="p", source=source).at(name).source, space)
        assert [name] == space["get_inputs"]()  # type: ignore[operator]
        assert {"get_inputs", "__builtins__"} == set(space)


def test_a_problem_without_cases_weighs_nothing() -> None:
    assert Problem(name="p", source="def get_inputs(): ...").weighing is None
    assert Problem(name="p", source="does not parse (").weighing is None
    assert weighing() == PROBLEM.weighing


def test_constants_of_another_form_are_a_problems_fault() -> None:
    with pytest.raises(ProblemError, match=r"^p: line 1: CASES: .* the weight of 'a' is -1"):
        assert Problem(name="p", source="CASES = {'a': -1}").weighing
