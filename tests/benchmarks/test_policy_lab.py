from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import policy_lab
import pytest
from lab.contestants import CONTESTANTS, PAPER
from lab.fit import RECORDINGS, recorded, simulated
from lab.landscape import Place, World
from lab.landscapes import NAMES, world_of
from lab.results import Contest, Row, compete, overall
from lab.runs import Played, grown, play
from lab_samples import CERTAIN

from stark.search.policies import POLICIES
from stark.search.policies.best_first import BestFirst
from support.policies import view

SMALL = Contest(
    landscapes=("recorded", "any"), policies=(PAPER, "ucb"), seeds=30, attempts=8, parallel=2
)


def rows_of(**values: dict[str, float]) -> list[Row]:
    """Rows of these gains, by policy and landscape."""
    empty = Row("", "", 0.0, 0.0, 0.0, 0.3, 0.0, correct=1.0, attempts_to_most=1.0, ceiling=1.0)
    return [
        replace(
            empty,
            landscape=landscape,
            policy=policy,
            gain=gain,
            versus_paper=gain - 0.4,
            early_versus_paper=-gain,
        )
        for policy, gains in values.items()
        for landscape, gain in gains.items()
    ]


def test_a_run_as_computed_by_hand() -> None:
    """The first attempt has half of what the design can reach, the second all; then nothing is left."""
    played = play(World(CERTAIN, 0), POLICIES["latest"](), 4, 1, 0)

    assert (0.5, 1.0, 1.0, 1.0) == played.gains
    assert 1 == played.first_correct
    assert 2 == played.attempts_to_most


def test_a_kernel_that_is_not_measurably_faster_is_no_gain() -> None:
    slower = replace(CERTAIN, ceiling=(-1.0, -1.0), hit=0.0, slip=0.0)
    assert (0.0, 0.0) == play(World(slower, 0), POLICIES["latest"](), 2, 1, 0).gains

    unsure = replace(CERTAIN, interval=5.0)
    assert 0.0 == play(World(unsure, 0), POLICIES["latest"](), 1, 1, 0).gains[-1]


def test_a_run_that_never_works_gains_nothing() -> None:
    hopeless = replace(CERTAIN, start_fails=1.0, repairable=0.0)
    played = play(World(hopeless, 0), POLICIES[PAPER](), 10, 3, 0)

    assert Played(gains=(0.0,) * 10, first_correct=None) == played
    assert 1 == played.attempts_to_most


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_same_seed_gives_the_same_run(parallel: int) -> None:
    for name, make in CONTESTANTS.items():
        once, again = (grown(world_of("buggy", 5), make(), 20, parallel, 9) for _ in range(2))
        assert view(once) == view(again), name


def test_parallel_attempts_are_in_flight_at_once_and_finish_out_of_order() -> None:
    tree = grown(world_of("ladder", 1), POLICIES["always-root"](), 20, 4, 0)
    order = [node.id for node in tree.nodes]

    assert sorted(order) == list(range(1, 21))
    assert order != sorted(order)
    assert all(id <= place + 4 for place, id in enumerate(order))


@pytest.mark.parametrize("name", ["buggy", "chains", "any"])
def test_no_policy_does_better_than_perfect_knowledge(name: str) -> None:
    """Whoever knew the world would go straight to the best place that so many attempts can reach."""
    attempts = 8
    for seed in range(5):
        world = world_of(name, seed)
        bound = max(
            [0.0, *(place.gain for place in reachable(world.root, attempts) if place.works)]
        )
        gains = {
            key: play(world, make(), attempts, 1, seed).gains[-1]
            for key, make in CONTESTANTS.items()
        }
        assert max(gains.values()) <= bound, gains


def reachable(place: Place, attempts: int) -> Iterator[Place]:
    """Every place below this one that so many attempts suffice for: the k-th from a place takes k."""
    for k in range(attempts):
        child = place.attempt(k)
        yield child
        if child.code is not None:
            yield from reachable(child, attempts - k - 1)


def test_a_contest_is_the_same_however_many_processes_work_on_it() -> None:
    assert compete(SMALL, processes=1) == compete(SMALL, processes=2)


def test_the_paper_does_not_differ_from_itself() -> None:
    rows = compete(SMALL, processes=1)

    assert [("recorded", PAPER), ("recorded", "ucb"), ("any", PAPER), ("any", "ucb")] == [
        (row.landscape, row.policy) for row in rows
    ]
    for row in rows:
        paper = next(one for one in rows if (one.landscape, one.policy) == (row.landscape, PAPER))
        assert row.gain - paper.gain == pytest.approx(row.versus_paper)
        assert (row.policy == PAPER) == (row.margin == 0)


def test_other_seeds_are_other_worlds() -> None:
    assert compete(SMALL, 1) != compete(replace(SMALL, first_seed=1000), 1)


def test_the_overall_table_has_means_and_the_worst_places() -> None:
    bold, steady = overall(rows_of(steady={"a": 0.5, "b": 0.5}, bold={"a": 1.0, "b": 0.2}))

    assert ("bold", "steady") == (bold.policy, steady.policy)
    assert (0.2, 0.1) == pytest.approx((bold.versus_paper, steady.versus_paper))
    assert math.sqrt(2) * 0.3 / 2 == pytest.approx(bold.margin)
    assert "b" == bold.worst.landscape
    assert (-0.2, 0.1) == pytest.approx((bold.worst.gain, steady.worst.gain))
    assert ("b", "a") == (bold.regret.landscape, steady.regret.landscape)
    assert (-0.3, -0.5) == pytest.approx((bold.regret.gain, steady.regret.gain))
    assert (-1.0, "a") == bold.early_worst
    assert -0.6 == pytest.approx(bold.early_versus_paper)


def test_the_whole_table_with_a_few_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == policy_lab.main(["--seeds", "2", "--attempts", "6", "--processes", "1"])

    printed = capsys.readouterr().out
    assert all(f"\n{name} (roofline" in printed for name in NAMES)
    assert all(len(NAMES) + 1 == printed.count(f"\n  {name:<25}") for name in CONTESTANTS)


def test_the_document_holds_what_the_table_shows(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--landscape", "chains", "--policy", "beam", "--seeds", "2", "--attempts", "4"]
    assert 0 == policy_lab.main([*chosen, "--json", "--processes", "1"])

    document = json.loads(capsys.readouterr().out)
    assert [PAPER, "beam"] == [row["policy"] for row in document["rows"]]
    assert {"chains"} == {row["landscape"] for row in document["rows"]}
    assert {PAPER, "beam"} == {one["policy"] for one in document["overall"]}
    assert 2 == document["contest"]["seeds"]


@pytest.mark.slow
@pytest.mark.parametrize("landscape", RECORDINGS)
def test_the_fitted_landscapes_look_like_the_recordings(landscape: str) -> None:
    real, ours = recorded(landscape), simulated(landscape, runs=100)

    assert real.starts == pytest.approx(ours.starts, abs=0.06)
    assert real.faster == pytest.approx(ours.faster, abs=0.1)
    assert real.interval == pytest.approx(ours.interval, rel=0.2)
    for one, other in ((real.rise, ours.rise), (real.fall, ours.fall)):
        assert 1 / 2 < one / other < 2, "the size of things"


@pytest.mark.slow
def test_best_first_beats_the_papers_search_in_the_lab() -> None:
    """A small contest is enough to notice if our own search has become worse than the paper's."""
    ours = BestFirst.name
    contest = Contest(NAMES, (PAPER, ours), seeds=60, attempts=30, parallel=1, first_seed=50_000)
    found = {one.policy: one for one in overall(compete(contest, 1))}

    assert found[ours].versus_paper > found[ours].margin
