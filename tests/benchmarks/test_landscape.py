from __future__ import annotations

import math
from dataclasses import replace

import pytest
from lab.landscape import Place, World
from lab.landscapes import ANY, LANDSCAPES, NAMES, any_landscape, world_of
from lab_samples import CERTAIN


def line(world: World, length: int) -> list[Place]:
    """The first attempts of each, one below the other."""
    places = [world.root]
    for _ in range(length):
        places.append(places[-1].attempt(0))
    return places[1:]


def looks(place: Place) -> tuple[object, ...]:
    return place.code, place.repair_chance, place.duration, place.evaluation


def test_gains_as_computed_by_hand() -> None:
    assert [0.5, 1.0, 1.0] == [place.gain for place in line(World(CERTAIN, 0), 3)]


def test_a_chain_gets_slower_before_it_gets_faster() -> None:
    rates = replace(CERTAIN, steps=3, valley=0.2)

    gains = [place.gain for place in line(World(rates, 0), 4)]
    assert [0.5, 0.3, 0.3, 1.0] == pytest.approx(gains)


def test_a_miss_loses_and_a_dead_end_is_never_improved() -> None:
    missed = line(World(replace(CERTAIN, hit=0.0, slip=0.1), 0), 3)
    assert missed[0].gain > missed[1].gain > missed[2].gain

    dead = line(World(replace(CERTAIN, dead=1.0, slip=0.0), 0), 3)
    assert [0.5, 0.5, 0.5] == [place.gain for place in dead]


def test_a_repair_uncovers_what_was_hidden() -> None:
    first, second, third = line(World(replace(CERTAIN, start_fails=1.0, repair=1.0), 0), 3)

    assert ["incorrect", "correct", "correct"] == [
        place.evaluation.status for place in (first, second, third)
    ]
    assert [0.5, 1.0] == [second.gain, third.gain]
    with pytest.raises(ValueError, match="only a correct place"):
        _ = first.gain


def test_each_failed_repair_lowers_the_chance_of_the_next() -> None:
    rates = replace(CERTAIN, start_fails=1.0, repair=1e-9, repair_decay=0.5)
    first, second = line(World(rates, 0), 2)

    assert 1e-9 == first.repair_chance
    assert 0.5e-9 == pytest.approx(second.repair_chance)
    assert 0.25e-9 == pytest.approx(first.attempt(1).repair_chance)


def test_a_failure_that_is_not_repairable_stays_one() -> None:
    rates = replace(CERTAIN, start_fails=1.0, repairable=0.0, repair=1.0)

    assert {"incorrect"} == {place.evaluation.status for place in line(World(rates, 0), 20)}


def test_an_unusable_reply_leaves_nothing_to_start_from() -> None:
    (place,) = line(World(replace(CERTAIN, unusable=1.0), 0), 1)

    assert "unusable" == place.evaluation.status
    with pytest.raises(ValueError, match="nothing can start"):
        place.attempt(0)


def test_the_judge_sees_the_gain_through_its_noise() -> None:
    exact, *_ = line(World(CERTAIN, 0), 1)
    assert exact.evaluation.status == "correct"
    assert math.exp(0.5) == pytest.approx(exact.evaluation.speedup_vs().low)

    world = World(replace(CERTAIN, noise=0.1, interval=0.05), 0)
    judged = [world.root.attempt(k).evaluation for k in range(400)]
    seen = [evaluation.speedup_vs() for evaluation in judged if evaluation.status == "correct"]
    gains = [math.log(speedup.ratio) for speedup in seen]
    assert 0.5 == pytest.approx(sum(gains) / 400, abs=0.02)
    assert 0.1 == pytest.approx(math.dist(gains, [0.5] * 400) / 20, abs=0.01)
    assert all(speedup.low < speedup.ratio for speedup in seen)


@pytest.mark.parametrize("name", NAMES)
def test_a_world_is_the_same_in_any_order(name: str) -> None:
    forwards, backwards = world_of(name, 3), world_of(name, 3)
    there = [looks(forwards.root.attempt(k)) for k in range(6)]
    back = [looks(backwards.root.attempt(k)) for k in reversed(range(6))]

    assert there == back[::-1]
    assert there != [looks(world_of(name, 4).root.attempt(k)) for k in range(6)]


@pytest.mark.parametrize("name", LANDSCAPES)
def test_no_gain_is_beyond_what_a_landscape_allows(name: str) -> None:
    """Reaches are shares of the ceiling; on the noisy one measured ceilings were passed by a tenth."""
    for seed in range(20):
        world = world_of(name, seed)
        most = max(1.0, LANDSCAPES[name].reach[1]) * world.ceiling
        starts = [world.root.attempt(k) for k in range(10)]
        edits = [start.attempt(k) for start in starts if start.works for k in range(5)]
        assert all(place.gain <= most for place in starts + edits if place.works)


def test_any_draws_rates_of_its_own_for_every_world() -> None:
    assert any_landscape(1) == any_landscape(1)
    assert any_landscape(1) != any_landscape(2)
    assert ANY in NAMES
