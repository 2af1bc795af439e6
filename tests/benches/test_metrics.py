"""Every metric against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from stark.benches import metrics
from stark.core.usage import Spent
from support.benches import attempt, kernel, result, speedup

HALF = {"plan": Spent(calls=3, input_tokens=100, output_tokens=20, dollars=0.5)}

RESULTS = [
    result(
        "a",
        kernel(4.0, compile=2.0),
        (attempt(1), attempt(2, 4.0, parent=1, action="debug"), attempt(3, 2.0)),
        roles=HALF,
        elapsed_s=1800,
    ),
    result("b", kernel(1.0, compile=0.5), (attempt(1, 1.0),), roles=HALF, elapsed_s=900),
    result(
        "c", kernel(0.5, compile=0.25), (attempt(2), attempt(1, 0.5)), roles=HALF, elapsed_s=900
    ),
    result(
        "d",
        None,
        (attempt(1), attempt(2, parent=1, action="debug"), attempt(3, status="unusable")),
        roles=HALF,
    ),
]
"""Speedups 4, 1, 1/2 and none; against compile half of that."""

SUMMARY = metrics.summarize("level1", "stark", RESULTS)
EAGER = SUMMARY.against["eager"]
COMPILE = SUMMARY.against["compile"]


def test_success_is_the_share_of_runs_with_a_correct_kernel() -> None:
    assert 3 / 4 == SUMMARY.success
    assert (4, 4) == (SUMMARY.runs, SUMMARY.problems)


@pytest.mark.parametrize(
    ("p", "share"),
    [(0.0, 3 / 4), (0.8, 2 / 4), (1.0, 1 / 4), (2.0, 1 / 4), (5.0, 0.0)],
)
def test_fast_p_counts_all_runs(p: float, share: float) -> None:
    assert share == EAGER.fast[p]


def test_fast_p_is_kernelbenchs_fastp() -> None:
    """With its definition: correct ones with baseline / actual > p, over all n. Numbers of its own test of means."""
    baseline, actual = [0.1, 0.15, 0.2, 0.05, 0.3], [0.2, 0.15, 0.3, 0.01, 0.2]
    is_correct = [1, 0, 1, 1, 0]
    ours = [b / a if ok else None for b, a, ok in zip(baseline, actual, is_correct, strict=True)]
    assert 3 / 5 == metrics.fast_p(ours, 0.0)
    assert 2 / 5 == metrics.fast_p(ours, 0.5), "0.1 / 0.2 is not over 0.5"
    assert 1 / 5 == metrics.fast_p(ours, 1.0)
    correct = [value for value in ours if value is not None]
    assert math.isclose(1.185631101, metrics.geomean(correct), abs_tol=1e-7)


def test_clearly_faster_needs_the_whole_interval_above_1() -> None:
    unsure = kernel(1.02)
    noisy = unsure.candidate.model_copy(update={"resolution_ms": 0.1})
    unsure = unsure.model_copy(update={"candidate": noisy})
    both = metrics.against([result("a", kernel(4.0)), result("b", unsure)], "eager")

    assert (1.0, 0.5) == (both.fast[1.0], both.clearly_faster)


def test_spreads_over_correct_kernels_and_over_all_with_failed_as_1() -> None:
    assert EAGER.of_correct is not None
    correct, every = EAGER.of_correct, EAGER.of_all
    assert pytest.approx(2 ** (1 / 3)) == correct.geomean
    assert pytest.approx(5.5 / 3) == correct.mean
    assert pytest.approx(1.0) == correct.median
    assert pytest.approx(0.5) == correct.worst
    assert pytest.approx(2 ** (1 / 4)) == every.geomean
    assert pytest.approx(6.5 / 4) == every.mean
    assert pytest.approx(1.0) == every.median
    assert pytest.approx(0.5) == every.worst


def test_another_reference_has_the_same_numbers_of_its_own() -> None:
    assert COMPILE.of_correct is not None
    assert pytest.approx((2 * 0.5 * 0.25) ** (1 / 3)) == COMPILE.of_correct.geomean
    assert (1 / 4, 0.0) == (COMPILE.fast[1.0], COMPILE.fast[2.0])


def test_a_reference_without_a_measured_kernel_is_not_reported_on() -> None:
    assert {"eager", "compile"} == set(SUMMARY.against)
    assert {"eager"} == set(metrics.summarize("x", "stark", [RESULTS[3]]).against)


def test_one_kernel_without_a_reference_does_not_blank_the_others() -> None:
    """The run without a kernel still counts as failed; the one that was not measured counts nowhere."""
    mixed = [
        result("a", kernel(4.0, compile=3.0)),
        result("b", kernel(4.0)),
        result("c", kernel(4.0, compile=0.5)),
        result("d", None),
    ]
    found = metrics.against(mixed, "compile")

    assert found.of_correct is not None
    assert (2, 3) == (found.measured, found.kernels)
    assert (2 / 3, 1 / 3, 1 / 3) == (found.fast[0.0], found.fast[1.0], found.clearly_faster)
    assert pytest.approx(1.75) == found.of_correct.mean
    assert pytest.approx(4.5 / 3) == found.of_all.mean


def test_the_share_of_the_roofline_is_the_median_of_the_kernels() -> None:
    # The roofline is 0.01 ms; the kernels take 0.25, 1 and 2 ms.
    assert pytest.approx(0.01) == SUMMARY.roofline
    assert metrics.summarize("x", "stark", [RESULTS[3]]).roofline is None


def test_correct_attempts_count_against_all_finished_ones() -> None:
    assert 9 == SUMMARY.attempts
    assert pytest.approx(4 / 9) == SUMMARY.correct_share
    assert metrics.summarize("x", "stark", [result("a", None)]).correct_share is None


def test_repaired_is_a_share_of_the_failures_that_debugging_worked_on() -> None:
    # Attempt 1 of a was taken up and repaired, attempt 1 of d taken up without success; others were left alone.
    assert (2, 1, 0.5) == (
        SUMMARY.failures_taken_up,
        SUMMARY.failures_repaired,
        SUMMARY.repaired_share,
    )
    assert metrics.summarize("x", "sampling", [RESULTS[1]]).repaired_share is None


def test_attempts_to_best_are_counted_in_the_order_of_finishing() -> None:
    # The second of a, the first of b, and of c the second to finish.
    assert pytest.approx((2 + 1 + 2) / 3) == SUMMARY.attempts_to_best
    assert metrics.summarize("x", "stark", [RESULTS[3]]).attempts_to_best is None


def test_the_best_is_by_measured_speedup_then_age_and_a_noisy_one_comes_last() -> None:
    noisy = attempt(4, 9.0)._replace(speedup=speedup(9.0, low=0.1))
    tried = (noisy, attempt(2, 3.0), attempt(3, 2.0), attempt(1, 2.0))

    assert (
        2.0 == metrics.summarize("x", "stark", [result("a", kernel(2.0), tried)]).attempts_to_best
    )
    assert pytest.approx([9.0, 3.0, 3.0, 3.0]) == metrics.best_by_attempt(
        [result("a", kernel(2.0), tried)], 4
    )


def test_an_attempt_that_failed_the_final_check_is_no_progress() -> None:
    found = result("a", kernel(2.0), (attempt(1, 50.0), attempt(2, 2.0)))
    checked = found.outcome._replace(best_attempt=2, checks={1: None, 2: speedup(2.0)})

    assert (
        2.0 == metrics.summarize("x", "stark", [found._replace(outcome=checked)]).attempts_to_best
    )
    assert pytest.approx([1.0, 2.0]) == metrics.best_by_attempt(
        [found._replace(outcome=checked)], 2
    )


def test_best_by_attempt_is_a_geometric_mean_with_1_for_runs_without_a_kernel() -> None:
    course = metrics.best_by_attempt(RESULTS, 4)

    # After one attempt: 1, 1, 1, 1; after two: 4, 1, 0.5, 1; then nothing changes.
    assert pytest.approx([1.0, 2 ** (1 / 4), 2 ** (1 / 4), 2 ** (1 / 4)]) == course
    assert pytest.approx(EAGER.of_all.geomean) == course[-1]


def test_cost_is_added_up_by_role() -> None:
    assert (12, 480, 2.0, 1.0) == (
        SUMMARY.spent.calls,
        SUMMARY.spent.tokens,
        SUMMARY.spent.dollars,
        SUMMARY.active_hours,
    )
    code = Spent(calls=1, input_tokens=9, estimated_calls=1, unpriced_calls=1)
    summary = metrics.summarize(
        "level1", "stark", [*RESULTS, result("e", None, roles={"code": code})]
    )
    assert {"plan": SUMMARY.spent, "code": code} == summary.roles
    assert SUMMARY.spent + code == summary.spent


def test_seeds_count_as_runs_of_one_problem() -> None:
    summary = metrics.summarize(
        "x", "stark", [result("a", kernel(2.0), seed=seed) for seed in (1, 2, 3)]
    )
    assert (1, 3) == (summary.problems, summary.runs)
