from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem import impossible
from stark.evaluator.judge.problem.impossible import fresh_bytes, least_ms

_CHANCE = torch.Generator().manual_seed(
    2
)  # unseeded, two of the products are the same number now and then
X, Y = (torch.randn(64, 16, generator=_CHANCE) for _ in range(2))
WEIGHT = torch.randn(16, generator=_CHANCE)


def test_what_was_computed_had_to_be_written() -> None:
    assert 64 * 16 * 4 == fresh_bytes([X * WEIGHT], [X, WEIGHT], [Y * WEIGHT])


def test_every_result_counts_in_its_own_type() -> None:
    results = [X * 2, (X * 3).double()]

    assert 64 * 16 * (4 + 8) == fresh_bytes(results, [X], [Y * 2, (Y * 3).double()])


@pytest.mark.parametrize(
    ("result", "elsewhere"),
    [
        (X, Y),  # returned as it is
        (X[:8, ::2], Y[:8, ::2]),  # a part of it, as a view
        (X.T, Y.T),
        (WEIGHT.expand(64, 16), WEIGHT.expand(64, 16)),
        (torch.arange(1024.0) / 7, torch.arange(1024.0) / 7),  # a table, kept by its size
        (X.argmax(dim=1), Y.argmax(dim=1)),  # few values, all of them seen before
    ],
)
def test_what_need_not_be_written_does_not_count(
    result: torch.Tensor, elsewhere: torch.Tensor
) -> None:
    assert fresh_bytes([result], [X, WEIGHT], [elsewhere]) <= 8 * 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
def test_values_are_told_apart_in_parts_as_in_one(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = [t.to(dtype) for t in (X * WEIGHT * 40, X * 40, Y * WEIGHT * 40)]
    whole = fresh_bytes(*([t] for t in case))

    monkeypatch.setattr(impossible, "PART_BYTES", 256)

    assert whole > 0
    assert whole == fresh_bytes(*([t] for t in case))


def test_a_value_in_many_places_counts_once() -> None:
    assert 64 * 4 == fresh_bytes([X.sum(dim=1, keepdim=True).expand(64, 512)], [X], [Y])


def test_zeros_of_a_relu_are_one_value() -> None:
    assert int((X < 0).sum() > 0) * 4 == fresh_bytes([X.relu()], [X], [X * 0 + 1])


def test_values_that_are_no_numbers_do_not_count() -> None:
    assert 0 == fresh_bytes([X * float("nan")], [X], [Y])


def test_complex_results_are_pairs_of_numbers() -> None:
    result = torch.complex(X * 2, X * 3)

    assert 2 * 64 * 16 * 4 == fresh_bytes([result], [X], [torch.complex(Y * 2, Y * 3)])


def test_what_a_cache_may_hold_takes_no_time() -> None:
    assert 0.0 == least_ms(50_000_000, cache_bytes=60e6, bandwidth_gb_s=1000)


def test_the_rest_takes_half_the_time_of_the_measured_bandwidth() -> None:
    assert 0.5 == pytest.approx(least_ms(1_060_000_000, cache_bytes=60e6, bandwidth_gb_s=1000))
