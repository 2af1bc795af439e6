from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from stark.core.declared import Tolerance
from stark.core.precision import CLASSES, Precision
from stark.evaluator.judge.verify.mismatch import fault
from stark.evaluator.judge.verify.oracle import DEFAULT_TERMS, Terms, compare, expect


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def passes(
    result: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor, terms: Terms = DEFAULT_TERMS
) -> bool:
    return compare(result, expect(oracle, eager, terms)).passes


def said(
    result: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor, terms: Terms = DEFAULT_TERMS
) -> str:
    expected = expect(oracle, eager, terms)
    assert not compare(result, expected).passes
    return fault("output 0", result, expected, {})


def test_the_references_own_precision_passes() -> None:
    oracle = normal(64, 64)

    found = compare(oracle.float(), expect(oracle, oracle.float()))

    assert found.passes
    assert found.allclose


def test_another_benchmarks_tolerance_is_reported_and_decides_nothing() -> None:
    oracle = normal(64, 64)
    stated = Tolerance(absolute=0.0, relative=1e-6, matched=0.5)
    result = oracle.float()
    result[:16] *= 1 + 1e-5  # within our budget, and beyond theirs
    expected = expect(oracle, oracle.float(), Terms(stated=stated))

    found = compare(result, expected)

    assert (True, 0.75) == (found.passes, found.matched)
    assert compare(result, expect(oracle, oracle.float())).matched is None
    whole = torch.arange(4)
    assert 1.0 == compare(whole, expect(whole, whole, Terms(stated=stated))).matched


def test_a_result_may_overflow_where_the_reference_does_and_hardly_elsewhere() -> None:
    oracle = normal(64, 64)
    eager, near, elsewhere = (oracle.float() for _ in range(3))
    eager[::2, ::2] = near[::2, ::2] = elsewhere[1::2, 1::2] = torch.inf
    eager[1, 1::2] = near[1, 1::2] = torch.inf
    near[0, 1:9:2] = torch.inf

    assert all(passes(each, oracle, eager) for each in (eager, near, oracle.float()))
    assert not passes(elsewhere, oracle, eager)
    assert not passes(near, oracle, oracle.float())


@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
def test_a_drop_to_a_lower_precision_fails(lower: torch.dtype) -> None:
    oracle = normal(64, 64)

    text = said(oracle.to(lower).float(), oracle, oracle.float())

    assert f"rounded to {str(lower).removeprefix('torch.')}" in text


def test_a_reference_with_inexact_products_allows_as_much() -> None:
    oracle = normal(64, 64)
    tf32_like = oracle.half().float()

    assert passes(tf32_like, oracle, tf32_like, Terms(own="tf32"))


def with_error(oracle: torch.Tensor, error: float) -> torch.Tensor:
    """The oracle in float32 with about this relative RMS error."""
    return (oracle * (1 + error * normal(*oracle.shape, seed=1).sign())).float()


def test_a_badly_conditioned_reference_does_not_admit_half_precision() -> None:
    oracle = normal(64, 64)
    inexact, half = with_error(oracle, 5e-3), oracle.half().float()

    found = compare(half, expect(oracle, inexact))

    assert not found.passes
    assert pytest.approx(2e-4) == found.budget
    assert "allowed 0.0002" in said(half, oracle, inexact)
    assert passes(half, oracle, inexact, Terms(bounded=False))  # as in a regime


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_looser_class_never_allows_less_and_no_class_more_than_its_limit(
    dtype: torch.dtype,
) -> None:
    oracle = normal(64, 64)
    for eager in (oracle, with_error(oracle, 1e-5), with_error(oracle, 0.5)):
        expected = expect(oracle, eager.to(dtype))

        budgets = [expected.budget_in(each) for each in CLASSES]
        floors = [expect(oracle, oracle.to(dtype)).budget_in(each) for each in CLASSES]

        assert sorted(budgets) == budgets
        assert all(
            found <= 10 * max(floor, 1e-2) for found, floor in zip(budgets, floors, strict=True)
        )


@pytest.mark.parametrize(
    ("error", "met"),
    [
        (1e-6, "reference"),
        (1e-5, "fp32-split"),
        (5e-4, "tf32"),
        (5e-3, "bf16"),
        (5e-2, None),
        (float("nan"), None),
    ],
)
def test_the_strictest_class_that_an_error_meets_is_named(
    error: float, met: Precision | None
) -> None:
    oracle = normal(64, 64)
    for precision in CLASSES:
        found = compare(with_error(oracle, error), expect(oracle, oracle.float(), Terms(precision)))

        passes = met is not None and CLASSES.index(met) <= CLASSES.index(precision)
        assert (passes, met if passes else None) == (found.passes, found.meets)


def test_a_single_wrong_element_counts_for_the_class() -> None:
    oracle = normal(200, 200)
    wrong = oracle.float()
    wrong[7, 3] += 0.002

    found = compare(wrong, expect(oracle, oracle.float(), Terms("tf32")))

    assert found.errors.relative_rms < 2e-5
    assert ("tf32", True) == (found.meets, found.passes)


def test_what_a_regime_grants_to_a_class_names_no_stricter_one() -> None:
    oracle = normal(64, 64)
    terms = Terms("fp32-split", bounded=False)
    expected = replace(
        expect(oracle, oracle.float(), terms), granted={"reference": 1e-4, "fp32-split": 1e-3}
    )

    found = [compare(with_error(oracle, error), expected) for error in (5e-5, 5e-4, 5e-3)]

    assert ["reference", "fp32-split", None] == [each.meets for each in found]


def test_a_lost_row_counts_for_the_class() -> None:
    oracle = normal(2048, 128)
    oracle[5] *= 1e-5
    wrong = oracle.float()
    wrong[5] *= 1.05

    found = compare(wrong, expect(oracle, oracle.float(), Terms("tf32")))

    assert found.errors.relative_rms < 2e-6
    assert ("tf32", True) == (found.meets, found.passes)


@pytest.mark.parametrize(("times", "passed"), [(2.9, True), (3.1, False)])
def test_three_times_the_references_error_is_allowed(times: float, passed: bool) -> None:
    oracle, noise = normal(64, 64), 1e-5 * normal(64, 64, seed=1)

    assert passed == passes((oracle + times * noise).float(), oracle, (oracle + noise).float())


def test_a_single_wrong_element_fails_and_is_named() -> None:
    oracle = normal(100, 100)
    wrong = oracle.float()
    wrong[7, 3] += 0.01

    first, second, third = said(wrong, oracle, oracle.float()).splitlines()

    assert first.startswith("output 0: wrong: column 3 of 100 in row 7 of 100 (1 of 10,000")
    assert second.startswith("first at [7, 3]: got ")
    assert third.startswith("relative RMS error ")


def test_what_was_never_written_fails() -> None:
    oracle = normal(8, 8)
    poisoned = oracle.float()
    poisoned[5:] = float("nan")

    text = said(poisoned, oracle, oracle.float())

    assert "all of them are NaN: never written" in text
    assert "RMS" not in text  # there is none of what is no number


def test_infinities_pass_only_where_the_oracle_has_them() -> None:
    oracle = normal(8, 8)
    oracle[0, 0] = float("inf")
    right, wrong = oracle.float(), oracle.float()
    wrong[0, 1] = float("inf")

    assert passes(right, oracle, oracle.float())
    assert not passes(wrong, oracle, oracle.float())


def test_the_error_of_a_huge_element_is_relative_to_it() -> None:
    oracle = normal(100, 100)
    oracle[0, 0] = 1e6
    close = oracle.float()
    close[0, 0] *= 1 + 2e-7

    assert passes(close, oracle, oracle.float())


def test_integers_must_be_equal() -> None:
    exact = torch.arange(10)
    off = exact.clone()
    off[4] = 9

    assert passes(exact, exact, exact)
    assert said(off, exact, exact).endswith("first at [4]: got 9")


def test_truth_values_must_be_equal() -> None:
    exact = torch.tensor([True, False, True])

    assert passes(exact, exact, exact)
    assert not passes(~exact, exact, exact)


def test_numbers_of_one_byte_have_the_references_own_error() -> None:
    oracle = normal(64, 64)
    eager = oracle.to(torch.float8_e4m3fn)

    terms = Terms(own="bf16")

    assert passes(eager.clone(), oracle, eager, terms)
    assert "relative RMS error 1," in said(torch.zeros_like(eager), oracle, eager, terms)


def test_complex_numbers_have_a_budget_like_real_ones() -> None:
    oracle = torch.complex(normal(64, 64), normal(64, 64, seed=1))
    eager = oracle.to(torch.complex64)
    close, wrong = eager * (1 + 1e-6), eager.clone()
    wrong[7, 3] += 1j

    assert passes(eager.conj().conj(), oracle, eager)
    assert passes(close, oracle, eager)
    assert "first at [7, 3, 1]: got" in said(wrong, oracle, eager)


def test_an_empty_output_passes() -> None:
    empty = torch.empty(0, 4)

    assert passes(empty, empty.double(), empty)


def test_a_zero_output_has_an_absolute_budget() -> None:
    oracle = torch.zeros(16, dtype=torch.float64)

    assert passes(torch.zeros(16), oracle, torch.zeros(16))
    assert not passes(torch.ones(16), oracle, torch.zeros(16))
