"""When a run ends although its budget is not used up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import loop_samples as samples
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation
from stark.core.run import Ended
from stark.search.tree import Tree
from stark.stopping import PATIENCE, enough, last_gain
from stark.store import Store
from support.executor import FakeExecutor
from support.nodes import EAGER_MS, ROOFLINE, correct, failing, failure, noisy, working


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def converged(detail: str | None) -> Ended | None:
    return None if detail is None else Ended(kind="converged", detail=detail)


def tree_of(latencies_ms: list[float | None]) -> Tree:
    """Attempts from the root that took so long, or failed."""
    nodes = [
        failing(number) if ms is None else working(number, latency_ms=ms)
        for number, ms in enumerate(latencies_ms, start=1)
    ]
    return Tree.replay(EAGER_MS, nodes)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (1.04, "within 4 % of the roofline"),
        (0.97, "within 0 % of the roofline"),
        (1.06, None),
        (0.9, None),
    ],
    ids=["near", "within its uncertainty", "far", "below: it is no bound for this kernel"],
)
def test_a_kernel_at_the_roofline_is_enough(share: float, said: str | None) -> None:
    assert converged(said) == enough(tree_of([None, share * ROOFLINE.floor_ms]))


def test_where_a_launch_takes_longer_than_the_work_it_is_what_counts() -> None:
    small = ROOFLINE.model_copy(update={"memory_ms": 0.001})
    node = working(1, latency_ms=0.002)
    assert isinstance(node.evaluation, Correct)
    evaluation = node.evaluation.model_copy(update={"roofline": small})
    tree = Tree.replay(EAGER_MS, [node.model_copy(update={"evaluation": evaluation})])

    assert converged("within 0 % of the time of one kernel launch") == enough(tree)


def test_without_any_roofline_nothing_is_near_it() -> None:
    none = ROOFLINE.model_copy(update={"memory_ms": 0.0})
    found = correct(0.01)
    assert isinstance(found, Correct)
    device = found.device.model_copy(update={"launch_us": None})

    assert not found.model_copy(update={"roofline": none, "device": device}).near_roofline


@pytest.mark.parametrize(
    ("latencies_ms", "stops"),
    [
        ([0.5] + [0.6] * PATIENCE, True),
        ([0.5] + [0.6] * (PATIENCE - 1), False),
        ([0.9] * 14 + [0.5] + [0.6] * 14, False),
        ([0.9] * 14 + [0.5] + [0.6] * 15, True),
        ([0.5] + [None] * PATIENCE, True),
        ([0.5] + [0.499] * PATIENCE, True),
        ([None] * 3 * PATIENCE, False),
    ],
    ids=[
        "10 in vain",
        "9 in vain",
        "14 after 15",
        "15 after 15",
        "failures",
        "noise",
        "nothing works",
    ],
)
def test_as_many_attempts_in_vain_as_led_to_the_best_are_enough(
    latencies_ms: list[float | None], stops: bool
) -> None:
    assert stops == (enough(tree_of(latencies_ms)) is not None)


def test_the_last_gain_is_counted_in_finished_attempts() -> None:
    assert 0 == last_gain(tree_of([None, None]))
    assert 3 == last_gain(tree_of([None, 0.6, 0.5, 0.55, None]))
    said = enough(tree_of([0.6, 0.5] + [None] * PATIENCE))
    assert (
        converged("no gain in the last 10 attempts; the last gain came within the first 2") == said
    )


def at_the_roofline(_: Candidate) -> Evaluation:
    return correct(1.03 * ROOFLINE.floor_ms)


async def test_a_run_with_stop_auto_ends_once_it_converged(store: Store) -> None:
    run = samples.run(stop="auto")

    worked = await samples.work(store, run, FakeExecutor(at_the_roofline))

    assert converged("within 3 % of the roofline") == worked.ended == store.ended(run.id)
    assert 1 == len(worked.tree.nodes)


async def test_a_run_uses_its_budget_by_default(store: Store) -> None:
    worked = await samples.work(store, samples.run(attempts=4), FakeExecutor(at_the_roofline))

    assert ("4 attempts made", 4) == (worked.reason, len(worked.tree.nodes))


async def test_a_run_where_nothing_works_goes_on_to_its_budget(store: Store) -> None:
    run = samples.run("sampling", 25, stop="auto")

    worked = await samples.work(store, run, FakeExecutor(lambda _: failure("crashed")))

    assert "25 attempts made" == worked.reason


def test_a_noisy_attempt_hides_no_gain() -> None:
    gains = [working(id, latency_ms=EAGER_MS * 0.9**id) for id in range(2, PATIENCE + 3)]
    lucky = working(1).model_copy(update={"evaluation": noisy(EAGER_MS / 10)})

    tree = Tree.replay(EAGER_MS, [lucky, *gains])

    assert len(gains) + 1 == last_gain(tree)
    assert enough(tree) is None
