from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.regimes import LARGE, REGIMES, TINY, changed

DRAWN = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
DRAWN[0, 0] = 0.0


def in_regime(regime: str) -> torch.Tensor:
    return changed(Drawn([DRAWN], []), regime, 1, {0: 0.0}).tensors[0]


def test_there_are_five() -> None:
    assert ["mixed", "heavy-tailed", "tiny", "large", "shifted"] == list(REGIMES)


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
