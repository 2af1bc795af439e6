from __future__ import annotations

import pytest

from stark.core.evaluation import Accuracy
from stark.core.judging import Limits
from stark.core.precision import (
    CLASSES,
    DEFAULT,
    FLOORS,
    Precision,
    budget_of,
    floor_of,
    limit_of,
    looser,
)

TODAY = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-3, "bfloat16": 4e-3}


def test_the_default_has_the_floors_of_the_recorded_verdicts() -> None:
    assert TODAY == {dtype: floor_of(DEFAULT, dtype) for dtype in TODAY}
    assert DEFAULT == Limits().precision


@pytest.mark.parametrize("dtype", FLOORS)
@pytest.mark.parametrize("error", [0.0, 1e-7, 1e-4, 1.0])
def test_a_looser_class_allows_at_least_as_much(dtype: str, error: float) -> None:
    budgets = [budget_of(each, dtype, error, limit_of(each, dtype)) for each in CLASSES]

    assert sorted(budgets) == budgets


@pytest.mark.parametrize(("error", "budget"), [(1e-7, 2e-5), (1e-5, 3e-5), (1e-3, 2e-4)])
def test_a_budget_is_three_times_the_references_error_between_floor_and_limit(
    error: float, budget: float
) -> None:
    limit = limit_of("fp32-split", "float32")

    assert pytest.approx(budget) == budget_of("fp32-split", "float32", error, limit)


@pytest.mark.parametrize(
    ("precision", "product"), [("reference", 2.9e-4), ("fp32-split", 2.9e-4), ("tf32", 3.7e-2)]
)
def test_the_limit_of_a_class_is_below_the_error_of_much_looser_products(
    precision: Precision, product: float
) -> None:
    assert limit_of(precision, "float32") < product


def test_other_types_count_as_float32() -> None:
    assert 2e-6 == floor_of("reference", "int8")


def test_the_looser_of_two_classes() -> None:
    assert "tf32" == looser("tf32", "reference") == looser("reference", "tf32")


def test_an_accuracy_from_before_classes_were_recorded_names_none() -> None:
    old = '{"relative_rms":1e-7,"budget":2e-5,"reference_relative_rms":1e-7,"allclose":true,"oracle":"float64"}'

    accuracy = Accuracy.model_validate_json(old)

    assert ("fp32-split", None) == (accuracy.precision, accuracy.meets)
