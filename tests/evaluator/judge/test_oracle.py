from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.oracle import compare, expect  # noqa: E402


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_references_own_precision_passes() -> None:
    oracle = normal(64, 64)

    found = compare(oracle.float(), expect(oracle, oracle.float()), 0)

    assert found.fault is None
    assert found.allclose


@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
def test_a_drop_to_a_lower_precision_fails(lower: torch.dtype) -> None:
    oracle = normal(64, 64)
    dropped = oracle.to(lower).float()

    fault = compare(dropped, expect(oracle, oracle.float()), 0).fault

    assert fault is not None


def test_a_reference_that_is_itself_inexact_allows_as_much() -> None:
    oracle = normal(64, 64)
    tf32_like = oracle.half().float()

    assert compare(tf32_like, expect(oracle, tf32_like), 0).fault is None


def test_a_single_wrong_element_fails_and_is_named() -> None:
    oracle = normal(100, 100)
    wrong = oracle.float()
    wrong[7, 3] += 0.01

    fault = compare(wrong, expect(oracle, oracle.float()), 0).fault

    assert fault is not None
    assert "1 of 10000 elements" in fault
    assert "[7, 3]" in fault


def test_what_was_never_written_fails() -> None:
    oracle = normal(8, 8)
    poisoned = oracle.float()
    poisoned[5:] = float("nan")

    fault = compare(poisoned, expect(oracle, oracle.float()), 0).fault

    assert fault is not None
    assert "never written" in fault


def test_infinities_pass_only_where_the_oracle_has_them() -> None:
    oracle = normal(8, 8)
    oracle[0, 0] = float("inf")
    right, wrong = oracle.float(), oracle.float()
    wrong[0, 1] = float("inf")

    assert compare(right, expect(oracle, oracle.float()), 0).fault is None
    assert compare(wrong, expect(oracle, oracle.float()), 0).fault is not None


def test_the_error_of_a_huge_element_is_relative_to_it() -> None:
    oracle = normal(100, 100)
    oracle[0, 0] = 1e6
    close = oracle.float()
    close[0, 0] *= 1 + 2e-7

    assert compare(close, expect(oracle, oracle.float()), 0).fault is None


def test_integers_must_be_equal() -> None:
    exact = torch.arange(10)
    off = exact.clone()
    off[4] = 9

    assert compare(exact, expect(exact, exact), 0).fault is None
    assert "expected 4, got 9" in str(compare(off, expect(exact, exact), 0).fault)


def test_a_zero_output_has_an_absolute_budget() -> None:
    oracle = torch.zeros(16, dtype=torch.float64)

    assert compare(torch.zeros(16), expect(oracle, torch.zeros(16)), 0).fault is None
    assert compare(torch.ones(16), expect(oracle, torch.zeros(16)), 0).fault is not None
