from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.arena import TensorAt
from stark.evaluator.candidate.program import floats_of
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.regimes import (
    FLOATS,
    FLOATS_CHANGE,
    LARGE,
    REGIMES,
    SIGNS,
    TINY,
    changed,
)

DRAWN = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
DRAWN[0, 0] = 0.0


def in_regime(regime: str) -> torch.Tensor:
    return changed(Drawn([DRAWN], []), regime, 1, {0: 0.0}).tensors[0]


def test_there_are_six() -> None:
    assert ["mixed", SIGNS, "heavy-tailed", "tiny", "large", "shifted"] == list(REGIMES)


def test_mixed_has_every_kind_of_element() -> None:
    factors = in_regime("mixed")[1:] / DRAWN[1:]

    kinds = torch.tensor([1.0, -1.0, LARGE, -TINY, 0.0])
    nearest = (factors[..., None] - kinds).abs()
    assert nearest.amin(-1).max() < 1e-4 * LARGE
    assert {0, 1, 2, 3, 4} == set(nearest.argmin(-1).flatten().tolist())


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "factor"), [("large", LARGE), ("tiny", TINY)])
def test_large_and_tiny_scale_everything(regime: str, factor: float) -> None:
    torch.testing.assert_close(in_regime(regime), DRAWN * factor)


def test_shifted_changes_signs_and_keeps_zeros() -> None:
    shifted = in_regime("shifted")

    assert 0 == shifted[0, 0]
    assert 0.5 < (shifted < 0).float().mean() < 1
    assert shifted.std() == pytest.approx(float(DRAWN.std()), rel=0.02)


def test_heavy_tailed_keeps_signs_and_has_outliers() -> None:
    factors = in_regime("heavy-tailed")[1:] / DRAWN[1:]

    assert (factors > 0).all()
    assert 1 == pytest.approx(float(factors.median()), rel=0.2)
    assert factors.max() > 30


def test_the_draw_itself_stays_as_it_is() -> None:
    before = DRAWN.clone()

    for regime in REGIMES:
        in_regime(regime)

    assert torch.equal(before, DRAWN)


def test_complex_numbers_change_in_both_parts() -> None:
    numbers = torch.complex(DRAWN, DRAWN.flip(0))

    large = changed(Drawn([numbers.T], []), "large", 1, {0: 0.0}).tensors[0]
    mixed = torch.view_as_real(changed(Drawn([numbers], []), "mixed", 1, {0: 0.0}).tensors[0])

    torch.testing.assert_close(large, numbers.T * LARGE)
    assert ((mixed[..., 0] > 0) & (mixed[..., 1] < 0)).any()


def test_some_inputs_alone_can_be_in_a_regime() -> None:
    for regime in REGIMES:
        one, other = changed(Drawn([DRAWN, DRAWN], []), regime, 1, {1: 0.0}).tensors
        assert one is DRAWN
        assert not torch.equal(DRAWN, other)


def test_a_seed_gives_the_same_inputs_again() -> None:
    assert torch.equal(in_regime("mixed"), in_regime("mixed"))


def test_floats_change_by_a_few_percent_and_all_else_stays() -> None:
    arguments = [TensorAt(0), 1.0, {"eps": 1e-5, "heads": 8, "causal": True}, (None, -2.0, "sum")]
    drawn = Drawn([torch.ones(2)], arguments)

    found = changed(drawn, FLOATS, 1, {})

    assert [1.0, 1e-5, -2.0] == floats_of(arguments)
    shares = [
        1 - new / old
        for old, new in zip(floats_of(arguments), floats_of(found.arguments), strict=True)
    ]
    least, largest = FLOATS_CHANGE
    assert all(least <= share <= largest for share in shares) and len(set(shares)) == 3
    assert [TensorAt(0), 8, True] == [
        found.arguments[0],
        found.arguments[2]["heads"],
        found.arguments[2]["causal"],
    ]
    assert (None, "sum") == found.arguments[3][::2]
    assert found.tensors is drawn.tensors


def test_nothing_is_made_of_nothing() -> None:
    drawn = Drawn([], [0.0, float("inf")])

    assert [0.0, float("inf")] == floats_of(changed(drawn, FLOATS, 1, {}).arguments)


def test_structure_on_which_honest_kernels_rely_stays() -> None:
    table, square = DRAWN.repeat(1, 2), DRAWN + DRAWN.T

    for regime in REGIMES:
        given = Drawn([DRAWN.sort(1)[0], square, table], [])
        rising, matrix, halves = changed(given, regime, 1, dict.fromkeys(range(3), 0.0)).tensors

        assert torch.equal(rising, rising.sort(1)[0]) and not torch.equal(rising, given.tensors[0])
        assert torch.equal(matrix, matrix.T) and not torch.equal(matrix, square)
        assert torch.equal(halves[:, :64], halves[:, 64:]) and not torch.equal(halves, table)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (4, 0), (1, 1)])
def test_tensors_without_rows_have_no_structure(shape: tuple[int, ...]) -> None:
    for regime in REGIMES:
        assert (
            shape == changed(Drawn([torch.rand(shape)], []), regime, 1, {0: 0.0}).tensors[0].shape
        )
