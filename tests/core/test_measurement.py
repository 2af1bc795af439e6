from __future__ import annotations

import math
import random
import statistics

import pytest
from pydantic import ValidationError

from stark.core.measurement import Measurement, speedup


def measured(*samples_ms: float) -> Measurement:
    return Measurement(
        samples_ms=samples_ms, calls_per_sample=10, warmups=3, clock="device_events", cache="cold"
    )


@pytest.mark.parametrize(
    ("samples_ms", "latency_ms"), [((3.0,), 3.0), ((9.0, 1.0, 2.0), 2.0), ((1.0, 3.0), 2.0)]
)
def test_the_latency_is_the_median(samples_ms: tuple[float, ...], latency_ms: float) -> None:
    assert latency_ms == measured(*samples_ms).latency_ms


def test_a_measurement_without_samples_cannot_be_made() -> None:
    with pytest.raises(ValidationError):
        measured()


def test_a_speedup_is_reference_over_candidate_and_names_its_reference() -> None:
    faster = speedup("compile", measured(4.0, 4.0), measured(2.0, 2.0))

    assert "compile" == faster.reference
    assert pytest.approx((2.0, 2.0, 2.0)) == (faster.ratio, faster.low, faster.high)


def test_drift_that_both_of_a_pair_share_cancels() -> None:
    drift = [1.0, 1.4, 3.0, 0.7, 2.2, 1.1]

    found = speedup("eager", measured(*(3.0 * d for d in drift)), measured(*drift))

    assert pytest.approx((3.0, 3.0, 3.0)) == (found.ratio, found.low, found.high)


def test_one_wild_pair_does_not_move_the_ratio() -> None:
    found = speedup("eager", measured(*[2.0] * 10, 900.0), measured(*[1.0] * 11))

    assert pytest.approx((2.0, 2.0, 2.0)) == (found.ratio, found.low, found.high)


def test_the_ratio_is_the_middle_between_two_pairs_on_the_scale_of_ratios() -> None:
    """Twice as fast and half as fast are no difference at all."""
    found = speedup("eager", measured(2.0, 1.0), measured(1.0, 2.0))

    assert pytest.approx(1.0) == found.ratio == found.low * found.high


def test_swapping_reference_and_candidate_inverts_the_speedup() -> None:
    chance = random.Random(3)
    one, other = ([chance.uniform(1, 2) for _ in range(20)] for _ in range(2))

    forth = speedup("eager", measured(*one), measured(*other))
    back = speedup("eager", measured(*other), measured(*one))

    assert pytest.approx((1 / back.ratio, 1 / back.high, 1 / back.low)) == (
        forth.ratio,
        forth.low,
        forth.high,
    )


def test_samples_that_were_not_taken_in_pairs_have_no_speedup() -> None:
    with pytest.raises(ValueError, match="zip"):
        speedup("eager", measured(1.0, 2.0), measured(1.0))


def test_of_few_pairs_the_interval_is_wider_than_their_range() -> None:
    one, three = speedup("eager", measured(3.0), measured(1.0)), [1.0, 1.1, 1.3]

    found = speedup("eager", measured(*three), measured(*[1.0] * 3))

    assert pytest.approx((3.0, 3.0)) == (one.low, one.high)
    logs = [math.log(each) for each in three]
    half = 4.303 * statistics.stdev(logs) / math.sqrt(3)
    expected = (math.exp(sum(logs) / 3 - half), math.exp(sum(logs) / 3 + half))
    assert pytest.approx(expected) == (found.low, found.high)


def test_three_pairs_may_all_be_above_one_by_chance() -> None:
    """A program that is three times slower was reported with this ratio and this range, on a machine that was busy."""
    found = speedup("eager", measured(7.10, 4.01, 2.08), measured(*[1.0] * 3))

    assert 4.01 == pytest.approx(found.ratio) and found.low < 1


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [2, 3, 4, 5, 6, 9, 20, 50, 100])
def test_the_interval_covers_the_true_speedup_95_times_in_100(pairs: int) -> None:
    """Whatever the noise is like: here it is skewed, as the noise of a busy machine is."""
    chance, trials, true = random.Random(pairs), 1500, 1.7
    centre = math.log(2.0)  # the median of the exponential distribution
    covered = 0
    for _ in range(trials):
        noise = [math.exp(0.1 * (chance.expovariate(1.0) - centre)) for _ in range(pairs)]
        found = speedup("eager", measured(*(true * n for n in noise)), measured(*[1.0] * pairs))
        covered += found.low <= true <= found.high

    # Three standard errors below 95 %; order statistics come in steps, so it may be more. With fewer than six pairs, skewed
    # noise takes a little of it.
    assert (0.933 if pairs > 5 else 0.915) < covered / trials < 0.99


def test_the_interval_is_no_wider_than_it_must_be() -> None:
    """With one rank less on each side it would cover the median too seldom."""
    for pairs in (6, 9, 20, 50, 100):
        ranked = [math.exp(rank) for rank in range(pairs)]
        found = speedup("eager", measured(*ranked), measured(*[1.0] * pairs))
        cut = round(math.log(found.low))
        assert pairs - 1 - cut == round(math.log(found.high))
        assert missed(cut, pairs) <= 0.05 < missed(cut + 1, pairs)


def missed(cut: int, pairs: int) -> float:
    """How often the median lies outside [x(cut), x(pairs - 1 - cut)]: fair coins decide each side."""
    ways = 2 * sum(math.comb(pairs, k) for k in range(cut + 1))
    return ways / float(2**pairs)


def test_the_resolution_widens_the_interval_of_short_programs() -> None:
    coarse = {"resolution_ms": 0.001}
    short, long = measured(*[0.01] * 9), measured(*[10.0] * 9)

    blurred = speedup("eager", short.model_copy(update=coarse), short)
    sharp = speedup("eager", long.model_copy(update=coarse), long)

    assert pytest.approx((1 / 1.1, 1.0, 1.1)) == (blurred.low, blurred.ratio, blurred.high)
    assert 1.0 == pytest.approx(sharp.low, abs=1e-3)
