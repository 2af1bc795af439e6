from __future__ import annotations

import math

import pytest

from stark.core.combined import correct_over, reference_over
from stark.core.declared import Tolerance
from stark.core.evaluation import Correct, Matched, evaluation_adapter
from stark.core.reference import Reference
from stark.core.standing import vs_eager
from support.cases import EAGER_MS, correct_in, reference, reference_of, weighing
from support.nodes import PROFILE, ROOFLINE, correct

EXAMPLE = {"decode": 0.5, "prefill": 16.0}
"""Twice as fast as eager in decode, and as fast in prefill."""


def test_the_fields_are_the_main_cases_and_the_figures_are_over_all() -> None:
    found = correct_in(EXAMPLE)

    assert found.cases["decode"].candidate == found.candidate
    assert found.latency_ms == pytest.approx((0.5**3 * 16) ** 0.25)
    assert found.reference_ms("eager") == pytest.approx(2.0)
    assert found.speedup_vs("eager").ratio == pytest.approx(2**0.75)
    assert found.speedup_vs("compile").ratio == pytest.approx(0.8 * 2**0.75)
    assert {"decode": 2.0, "prefill": 1.0} == {
        case: round(speedup.ratio, 6) for case, speedup in found.speedups_vs().items()
    }
    assert found.speedup_vs() == vs_eager(found)


def test_the_references_time_by_the_latency_is_the_geometric_mean_of_the_speedups() -> None:
    found = correct_in(EXAMPLE, "worst")

    assert found.reference_ms("eager") / found.latency_ms == pytest.approx(2**0.75)
    assert found.speedup_vs().ratio == pytest.approx(1.0)


def test_a_problem_without_cases_has_the_figures_of_its_only_one() -> None:
    found = correct(0.5)

    assert (0.5, 1.0) == (found.latency_ms, found.reference_ms("eager"))
    assert {} == found.cases == found.speedups_vs()


def test_a_reference_counts_only_where_every_case_was_timed_against_it() -> None:
    cases = {case: correct(0.5) for case in EAGER_MS}
    slow = cases["prefill"].model_copy(
        update={"references": {"eager": cases["prefill"].references["eager"]}}
    )

    found = correct_over(weighing(), cases | {"prefill": slow})

    assert ["eager"] == list(found.references)
    with pytest.raises(KeyError):
        found.speedup_vs("compile")


def test_another_benchmarks_tolerance_is_that_of_the_case_with_the_fewest_matches() -> None:
    tolerance = Tolerance(absolute=0.01, relative=0.01, matched=0.99)
    shares = dict(zip(EAGER_MS, (1.0, 0.98), strict=True))
    cases = {}
    for case, share in shares.items():
        one = correct(0.5)
        stated = Matched(tolerance=tolerance, share=share)
        accuracy = one.accuracy.model_copy(update={"stated": stated})
        cases[case] = one.model_copy(update={"accuracy": accuracy})

    found = correct_over(weighing(), cases).accuracy.stated

    assert found is not None
    assert (0.98, False) == (found.share, found.passes)


def test_the_accuracy_is_that_of_the_case_closest_to_its_budget() -> None:
    cases = {case: correct(0.5) for case in EAGER_MS}
    loose = cases["prefill"].accuracy.model_copy(
        update={"relative_rms": 1e-3, "budget": 4e-3, "meets": "bf16", "allclose": False}
    )
    cases["prefill"] = cases["prefill"].model_copy(update={"accuracy": loose})

    found = correct_over(weighing(), cases).accuracy

    assert loose == found


def test_the_class_met_is_that_of_every_case() -> None:
    cases = {case: correct(0.5) for case in EAGER_MS}
    near = cases["decode"].accuracy.model_copy(update={"relative_rms": 1.9e-5})
    loose = cases["prefill"].accuracy.model_copy(update={"relative_rms": 1e-7, "meets": "tf32"})
    cases["decode"] = cases["decode"].model_copy(update={"accuracy": near})
    cases["prefill"] = cases["prefill"].model_copy(update={"accuracy": loose})

    found = correct_over(weighing(), cases).accuracy

    assert (1.9e-5, "tf32") == (found.relative_rms, found.meets)


@pytest.mark.parametrize(
    ("decode", "prefill", "both"),
    [(True, True, True), (True, None, None), (None, False, False), (True, False, False)],
)
def test_a_kernel_generalizes_if_it_does_in_every_case(
    decode: bool | None, prefill: bool | None, both: bool | None
) -> None:
    cases = {
        "decode": correct(0.5).model_copy(update={"generalizes": decode}),
        "prefill": correct(0.5).model_copy(update={"generalizes": prefill}),
    }

    assert both is correct_over(weighing(), cases).generalizes


def test_time_adds_up_and_a_warning_says_where_it_belongs() -> None:
    cases = {
        "decode": correct(0.5).model_copy(update={"warnings": ("both", "first")}),
        "prefill": correct(0.5).model_copy(update={"warnings": ("both", "second")}),
    }

    found = correct_over(weighing(), cases)

    assert 18.0 == found.seconds["build"]
    assert ("both", "case decode: first", "case prefill: second") == found.warnings


def with_floors(decode_ms: float, prefill_ms: float, objective: str) -> Correct:
    """Twice as fast as eager in decode and as fast as torch.compile in prefill, with these rooflines."""
    latencies_ms = {"decode": 0.5, "prefill": 0.8 * EAGER_MS["prefill"]}
    floors = {"decode": decode_ms, "prefill": prefill_ms}
    cases = {
        case: correct(latencies_ms[case], EAGER_MS[case]).model_copy(
            update={"roofline": ROOFLINE.model_copy(update={"memory_ms": floors[case]})}
        )
        for case in EAGER_MS
    }
    how = weighing().model_copy(update={"objective": objective})
    return correct_over(how, cases)


def test_headroom_is_by_how_much_the_objective_can_grow() -> None:
    mean, worst = with_floors(0.5, 6.4, "geomean"), with_floors(0.5, 6.4, "worst")

    assert mean.headroom == pytest.approx(2**0.25 - 1)
    assert mean.roofline_fraction == pytest.approx(0.5**0.25)
    assert worst.headroom == pytest.approx(1.0)
    assert worst.roofline_fraction == pytest.approx(0.5)


def test_a_search_ends_when_the_objective_cannot_grow() -> None:
    assert with_floors(0.49, 12.7, "geomean").near_roofline
    assert not with_floors(0.1, 12.7, "geomean").near_roofline
    assert with_floors(0.1, 12.7, "worst").near_roofline
    assert not with_floors(0.49, 6.4, "worst").near_roofline


def test_one_unknown_roofline_makes_the_whole_unknown() -> None:
    beaten, none = with_floors(0.1, 40.0, "geomean"), with_floors(0.1, 0.0, "geomean")

    assert beaten.roofline_fraction is None
    assert not beaten.near_roofline
    assert none.headroom < math.inf  # one launch is the least
    assert "launch" == none.bound


def test_a_profile_is_read_with_its_own_cases_time() -> None:
    cases = {case: correct(EXAMPLE[case]) for case in EAGER_MS}
    cases["decode"] = cases["decode"].model_copy(update={"profile": PROFILE})

    found = correct_over(weighing(), cases).profiled

    assert found is not None
    assert 0.5 == found.latency_ms


def test_an_evaluation_with_cases_comes_back_from_json() -> None:
    found = correct_in(EXAMPLE)

    again = evaluation_adapter.validate_json(evaluation_adapter.dump_json(found))

    assert found == again
    assert found.speedup_vs() == again.speedup_vs()  # type: ignore[union-attr]


def test_an_evaluation_of_before_there_were_cases_has_none() -> None:
    stored = correct(0.5).model_dump(mode="json")
    for name in ("cases", "weighing", "case"):
        del stored[name]

    assert correct(0.5) == evaluation_adapter.validate_python(stored)


def test_a_reference_over_cases() -> None:
    found = reference()

    assert EAGER_MS["decode"] == found.eager.latency_ms
    assert found.latency_ms == pytest.approx(2.0)
    assert {"decode", "prefill"} == set(found.cases)
    assert found == Reference.model_validate_json(found.model_dump_json())


def test_only_tensors_may_differ_between_cases() -> None:
    cases = {
        "decode": reference_of("decode"),
        "prefill": reference_of("prefill").model_copy(update={"arguments": "[<tensor 0>, 3]"}),
    }

    with pytest.raises(ValueError, match=r"in case decode and \[<tensor 0>, 3\] in case"):
        reference_over(weighing(), cases)
