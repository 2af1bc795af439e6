"""Tuning: which variant wins a race, what a race costs, and how its winner becomes a node."""

from __future__ import annotations

import io
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console, RenderableType

import loop_samples as samples
from stark.benches.metrics import tuning_gain
from stark.configuration import replayed_run
from stark.core.call import Message
from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable
from stark.core.evaluation import Correct, Effort, Evaluation
from stark.core.measurement import Speedup
from stark.core.node import ROOT, Node, Selection
from stark.core.problem import Problem
from stark.core.tunable import Variant, tunables
from stark.core.tuning import Change, Tuning
from stark.events import CheckFinished, Stepped
from stark.explain.run import idea, tuning_text
from stark.options import RunOptions
from stark.recorded import RecordedReplies, record
from stark.report.attempt_document import node_document
from stark.report.document import run_document
from stark.report.node import node_text
from stark.report.run import run_text
from stark.report.view import RunView
from stark.search.policies.best_first import BestFirst
from stark.search.policies.epsilon_greedy import EpsilonGreedy
from stark.search.policies.recorded import Recorded
from stark.search.tree import Tree
from stark.stopping import last_gain
from stark.store import Store
from stark.tuning import PAIRS, is_due, next_tuned, proposals, race
from support.executor import FakeExecutor
from support.nodes import DEVICE, EAGER_MS, correct, failing, failure, noisy, working

PROBLEM = Problem(name="relu", source="class Model: ...\n")
EVALUATION_S = 0.5
"""What every timing of a `Variants` judge takes."""


def declaring(**constants: tuple[object, ...]) -> str:
    """A candidate whose constants have these values, the first of which is its own."""
    lines = [
        f"{name} = {values[0]!r}  # tune: {', '.join(map(repr, values))}"
        for name, values in constants.items()
    ]
    return "\n".join([*lines, "class ModelNew: ...", ""])


class Variants(FakeExecutor):
    """Judges a variant by its constants: a speedup with noise; None fails."""

    def __init__(
        self, speedup: Callable[[Variant], float | None], noise: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__()
        self._speedup, self._noise, self._random = speedup, noise, random.Random(seed)

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        await super().evaluate(problem, candidate, effort)
        found = self._speedup(tunables(candidate.source).own)
        if found is None:
            return failure().model_copy(update={"seconds": {"verify": EVALUATION_S}})
        ratio = found * math.exp(self._random.gauss(0, self._noise))
        seconds = {"build": 9.0, "verify": EVALUATION_S}
        return correct(EAGER_MS / ratio).model_copy(update={"seconds": seconds, "effort": effort})

    def variants(self) -> list[Variant]:
        """Those raced, in order."""
        return [tunables(each.source).own for each in self.raced]


async def raced(
    judge: FakeExecutor, source: str, seconds: float = 1000.0, seed: int = 0
) -> Tuning | None:
    candidate = Candidate(language="triton", source=source)
    return await race(PROBLEM, candidate, judge, DEVICE, seconds, random.Random(seed))


BLOCKS = declaring(BLOCK=(64, 32, 128), WARPS=(4, 8))


def by_block(variant: Variant) -> float:
    """Fastest with BLOCK 128 and WARPS 8."""
    block, warps = variant
    return {32: 1.0, 64: 1.5, 128: 2.0}[int(block)] * (1.1 if warps == 8 else 1.0)


async def test_the_fastest_variant_wins_with_its_gain_over_the_candidate() -> None:
    judge = Variants(by_block, noise=0.01)

    found = await raced(judge, BLOCKS)

    assert found is not None and found.gain is not None
    assert (5, 5) == (found.variants, found.raced)
    assert [("BLOCK", "64", "128"), ("WARPS", "4", "8")] == [
        (each.name, each.old, each.new) for each in found.changes
    ]
    assert 2.2 / 1.5 == pytest.approx(found.gain.ratio, rel=0.03)
    assert 1 < found.gain.low <= found.gain.ratio <= found.gain.high
    assert len(judge.raced) * EVALUATION_S == found.seconds, "builds need no GPU"
    assert (64, 4) == judge.variants()[0], "the candidate itself comes first"
    last = judge.variants()[-2 * PAIRS :]
    assert PAIRS == last.count((64, 4)) == last.count((128, 8))


async def test_variants_that_are_equally_fast_hardly_ever_win() -> None:
    won = 0
    for seed in range(300):
        found = await raced(Variants(lambda _: 1.5, noise=0.05, seed=seed), BLOCKS, seed=seed)
        assert found is not None
        won += bool(found.changes)

    assert won <= 300 / 2**PAIRS + 10, "one in 2^6, and three standard deviations"


async def test_variants_that_fail_lose() -> None:
    judge = Variants(lambda variant: None if variant[0] == 128 else by_block(variant))

    found = await raced(judge, BLOCKS)

    assert found is not None
    assert ["WARPS"] == [each.name for each in found.changes]


@pytest.mark.parametrize("failing", [1, 2])
async def test_no_variant_of_a_candidate_that_fails_itself_wins(failing: int) -> None:
    """At once, or in the last heat."""
    own = iter([1.5] * (failing - 1))
    judge = Variants(lambda variant: next(own, None) if variant == (64, 4) else by_block(variant))

    found = await raced(judge, BLOCKS)

    assert found is not None
    assert (found.changes, found.gain) == ((), None)
    assert (0 if failing == 1 else 5) == found.raced


async def test_the_seconds_of_the_device_limit_a_race() -> None:
    source = declaring(BLOCK=(64, *range(1, 60)), WARPS=(4, *range(5, 60)))
    judge = Variants(lambda variant: 1.0 + int(variant[0]) / 100)

    found = await raced(judge, source, seconds=20.0)

    assert found is not None
    assert 20 < found.raced < 40 and found.variants == 60 * 56 - 1
    assert found.seconds <= 20.0


async def test_too_few_seconds_race_nothing() -> None:
    found = await raced(Variants(by_block), BLOCKS, seconds=1.0)

    assert Tuning(variants=5, raced=0, seconds=EVALUATION_S) == found


async def test_a_candidate_without_constants_is_not_raced() -> None:
    judge = Variants(by_block)

    assert await raced(judge, "class ModelNew: ...\n") is None
    assert [] == judge.raced


async def test_all_variants_of_a_small_space_come_and_each_once() -> None:
    judge = Variants(lambda _: 1.0)

    await raced(judge, BLOCKS)

    assert 6 == len(judge.raced) == len(set(judge.variants())), "none was faster than the candidate"


async def test_a_variant_that_is_out_of_the_race_does_not_win_by_its_one_lucky_timing() -> None:
    """Six variants have two finalists. Both are slower when they are timed again than the third was at first."""
    timed: Counter[Variant] = Counter()

    def speedup(variant: Variant) -> float:
        timed[variant] += 1
        luck = 0.5 if timed[variant] == 1 and variant[0] != 64 else 0.0
        return 1.0 + int(variant[0]) / 1000 + luck

    judge = Variants(speedup)
    found = await raced(judge, declaring(BLOCK=(64, 128, 256, 512, 200, 100)))

    assert found is not None
    assert ["512"] == [change.new for change in found.changes]
    assert 2 == sum(count > 1 for variant, count in timed.items() if variant != (64,))


async def test_each_variant_is_a_candidate_of_its_own() -> None:
    candidate = Candidate(language="triton", source=BLOCKS)
    assert candidate.digest  # which is kept
    judge = Variants(lambda _: 1.0)

    await race(PROBLEM, candidate, judge, DEVICE, 1000.0, random.Random(0))

    assert 6 == len({each.digest for each in judge.raced})


async def test_more_variants_than_a_machine_can_count_are_raced_too() -> None:
    values = tuple(range(60))
    source = declaring(**{f"C{number}": values for number in range(12)})

    found = await raced(Variants(lambda _: 1.0), source, seconds=20.0)

    assert found is not None
    assert (60**12 - 1, True) == (found.variants, found.raced > 20)


def test_neighbours_of_the_fastest_come_first_and_never_twice() -> None:
    space = tunables(declaring(A=(1, 2, 3), B=(1, 2, 3), C=(1, 2, 3)))
    scores: dict[Variant, float] = {(1, 1, 1): 0.0}

    first = proposals(space, scores, random.Random(0), 6)
    scores |= dict.fromkeys(first, -1.0) | {(1, 3, 1): 1.0}
    second = proposals(space, scores, random.Random(0), 100)

    assert all(sum(value != 1 for value in variant) == 1 for variant in first)
    assert {(2, 3, 1), (3, 3, 1), (1, 3, 2), (1, 3, 3)} == set(second[:4])
    assert 27 - 7 == len(second) == len(set(second))


# Who is tuned, and what is made of it.


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def replies(*sources: str) -> Callable[[tuple[Message, ...]], str]:
    """A model that writes these candidates in turn, the last one again and again with another comment."""
    left, count = list(sources), iter(range(1000))

    def answer(_: tuple[Message, ...]) -> str:
        source = left.pop(0) if len(left) > 1 else f"{left[0]}# {next(count)}\n"
        return f"```python\n{source}```"

    return answer


PLAIN = "class ModelNew: ...\n"


def plain_too(variant: Variant) -> float:
    """As `by_block`, and a candidate without constants is as fast as the reference."""
    return by_block(variant) if variant else 1.0


async def tuned_run(
    store: Store, judge: FakeExecutor, *sources: str, attempts: int = 2, **changes: object
) -> samples.Worked:
    run = samples.run("sampling", attempts, **{"tune_seconds": 1000.0, **changes})
    answer = samples.scripted(replies(*sources))[0]
    return await samples.work(store, run, judge, answer)


async def test_the_winner_becomes_a_node_that_cost_nothing(store: Store) -> None:
    judge = Variants(plain_too, noise=0.001)

    worked = await tuned_run(store, judge, BLOCKS, PLAIN)

    first, tuned, other = worked.tree.nodes
    assert [(1, ROOT, "improve"), (2, 1, "tune"), (3, ROOT, "improve")] == [
        (node.id, node.parent, node.action) for node in (first, tuned, other)
    ]
    assert "tuned from 1: BLOCK 128 (was 64), WARPS 8 (was 4)" == idea(tuned)
    assert tuned.candidate is not None and (128, 8) == tunables(tuned.candidate.source).own
    assert tuned.candidate in judge.evaluated, "it is judged as any candidate"
    assert isinstance(tuned.evaluation, Correct) and "search" == tuned.evaluation.effort
    assert first.tuning is not None and tuned.tuning is None
    assert "5 of 5 variants raced" in tuning_text(first.tuning)

    assert "2 attempts made" == worked.reason
    assert 2 == worked.ledger.attempts == store.attempts("relu-1a2b")
    assert {1, 3} == {call.attempt for call in store.calls("relu-1a2b")}
    assert (2, 2) == (store.summaries()[0].attempts, store.summaries()[0].correct)
    assert [(1, "solo"), (1, "judge"), (1, "tune"), (2, "judge"), (3, "solo"), (3, "judge")] == [
        (event.attempt, event.step) for event in worked.of(Stepped)
    ]


async def test_the_last_attempt_is_tuned_too(store: Store) -> None:
    worked = await tuned_run(store, Variants(by_block), BLOCKS, attempts=1)

    assert ["improve", "tune"] == [node.action for node in worked.tree.nodes]
    assert worked.tree.best == worked.tree.node(2)


async def test_nothing_is_raced_by_default_and_nothing_is_taught(store: Store) -> None:
    judge = Variants(by_block)

    worked = await tuned_run(store, judge, BLOCKS, tune_seconds=0.0)

    assert [] == judge.raced
    assert [1, 2] == [node.id for node in worked.tree.nodes]
    prompts = [message.text for call in store.calls("relu-1a2b") for message in call.messages]
    assert not any("# tune:" in prompt for prompt in prompts)


async def test_writers_learn_the_convention_where_it_is_used(store: Store) -> None:
    await tuned_run(store, Variants(by_block), BLOCKS, attempts=1)

    (call,) = store.calls("relu-1a2b")
    prompt = "\n".join(message.text for message in call.messages)
    assert 1 == prompt.count("`BLOCK = 64  # tune: 32, 64, 128`")


def test_attempts_near_the_leader_are_due() -> None:
    tree = Tree.replay(EAGER_MS, [working(1, latency_ms=EAGER_MS / 2)])

    def due(node: Node, **changes: object) -> bool:
        return is_due(node.model_copy(update=changes), tree)

    near, slow = (working(2, latency_ms=EAGER_MS / one) for one in (1.81, 1.79))
    assert due(near) and not due(slow)
    assert not due(near, duplicate_of=1)
    assert not due(near, action="tune")
    assert not due(failing(2))
    assert not due(near, evaluation=noisy(EAGER_MS / 3))
    assert is_due(slow, Tree(EAGER_MS))


async def test_after_a_failure_in_a_race_the_attempt_is_raced_again_and_written_once(
    store: Store,
) -> None:
    class Fails(Variants):
        async def evaluate(
            self, problem: Problem, candidate: Candidate, effort: Effort = "search"
        ) -> Evaluation:
            if len(self.raced) >= 2:
                raise JudgeUnavailable("no judge answers: start one")
            return await super().evaluate(problem, candidate, effort)

    with pytest.raises(JudgeUnavailable):
        await tuned_run(store, Fails(by_block), BLOCKS, attempts=1)
    assert [] == store.nodes("relu-1a2b")

    worked = await tuned_run(store, Variants(by_block), "never asked", attempts=1)

    assert ["improve", "tune"] == [node.action for node in worked.tree.nodes]
    assert 1 == len(store.calls("relu-1a2b"))


async def test_after_a_failure_behind_a_race_its_winner_is_judged_without_another(
    store: Store,
) -> None:
    class Fails(Variants):
        async def evaluate(
            self, problem: Problem, candidate: Candidate, effort: Effort = "search"
        ) -> Evaluation:
            if effort == "search" and self.evaluated:
                raise JudgeUnavailable("no judge answers: start one")
            return await super().evaluate(problem, candidate, effort)

    with pytest.raises(JudgeUnavailable):
        await tuned_run(store, Fails(by_block), BLOCKS, attempts=1)
    assert [1] == [node.id for node in store.nodes("relu-1a2b")]
    assert {2: Selection(parent=1, action="tune")} == store.unfinished("relu-1a2b")

    judge = Variants(by_block)
    worked = await tuned_run(store, judge, "never asked", attempts=1)

    assert ["improve", "tune"] == [node.action for node in worked.tree.nodes]
    assert [] == judge.raced


@pytest.mark.parametrize("parallel", [1, 3])
async def test_a_replay_takes_the_winners_of_its_recording(store: Store, parallel: int) -> None:
    sources = (BLOCKS, BLOCKS.replace("...", "pass"), PLAIN)
    recorded = await tuned_run(
        store, Variants(plain_too, 0.001), *sources, attempts=6, parallel=parallel
    )
    recording = record(store, store.run("relu-1a2b"))
    run = replayed_run(recording, RunOptions(), {"relu-1a2b"})
    judge = Variants(plain_too, 0.001, seed=1)

    replayed = await samples.work(
        store,
        run,
        judge,
        RecordedReplies(recording),
        policy=Recorded(recording.selections),
    )

    assert [] == judge.raced
    assert "6 attempts made" == replayed.reason
    was = {node.id: node for node in recorded.tree.nodes}
    assert any(not node.counts for node in was.values())
    assert {
        id: (node.parent, node.candidate, node.tuning, node.changes) for id, node in was.items()
    } == {
        node.id: (node.parent, node.candidate, node.tuning, node.changes)
        for node in replayed.tree.nodes
    }


# What counts.


def tuned_from(parent: Node, id: int, speedup: float) -> Node:
    return working(id, parent.id, EAGER_MS / speedup, "tune").model_copy(
        update={"changes": (Change(name="BLOCK", old="64", new="128"),)}
    )


def test_tuned_children_use_up_no_quota_and_revive_no_dead_node() -> None:
    first = working(1, latency_ms=EAGER_MS / 2)
    tree = Tree.replay(EAGER_MS, [first, tuned_from(first, 2, 1.5)])
    quota = BestFirst(drafts=1, width=1, fresh=0.0)
    assert Selection(parent=1, action="improve") == quota.select(tree, random.Random(0))

    for id in (3, 4, 5):
        tree.add(failing(id, parent=1))
    greedy = EpsilonGreedy(epsilon=0.0, n_root=1)
    assert Selection(parent=2, action="improve") == greedy.select(tree, random.Random(0))


def test_nothing_goes_on_from_a_tuned_candidate_that_fails() -> None:
    first = working(1)
    failed = failing(2, parent=1, action="tune")
    tree = Tree.replay(EAGER_MS, [first, failed])

    assert (1,) == tree.leaves
    assert Selection(parent=1, action="improve") == BestFirst(drafts=1, fresh=0.0).select(
        tree, random.Random(0)
    )


def test_a_winner_is_begun_once() -> None:
    first = working(1).model_copy(
        update={
            "tuning": Tuning(
                variants=1,
                raced=1,
                seconds=1.0,
                changes=(Change(name="BLOCK", old="64", new="128"),),
                gain=Speedup(reference="untuned", ratio=1.2, low=1.1, high=1.3),
            )
        }
    )
    tree = Tree.replay(EAGER_MS, [first])
    selection = next_tuned(tree)

    assert Selection(parent=1, action="tune") == selection
    tree.begin(2, Selection(parent=1, action="tune"))
    assert next_tuned(tree) is None
    tree.add(tuned_from(first, 2, 1.5))
    assert next_tuned(tree) is None


async def test_tuning_never_ends_below_its_start_at_the_final_check(store: Store) -> None:
    """The tuned attempt leads in the search, and is slower than the one that was tuned in the final check."""

    class Disappointing(Variants):
        async def evaluate(
            self, problem: Problem, candidate: Candidate, effort: Effort = "search"
        ) -> Evaluation:
            found = await super().evaluate(problem, candidate, effort)
            if effort == "promote" and tunables(candidate.source).own == (64, 4):
                return correct(EAGER_MS / 2.5).model_copy(update={"effort": effort})
            return found

    worked = await tuned_run(store, Disappointing(by_block), BLOCKS, attempts=1)

    assert [2, 1] == [event.node.id for event in worked.of(CheckFinished)]
    (summary,) = store.summaries()
    assert (1, True) == (summary.best_attempt, summary.confirmed)
    outcome = store.outcome("relu-1a2b", 1)
    gain = tuning_gain(outcome)
    assert gain is not None and 1.0 == pytest.approx(gain), "what was tuned is the best itself"


async def test_a_bench_counts_attempts_and_states_the_gain_apart(store: Store) -> None:
    await tuned_run(store, Variants(plain_too), BLOCKS, PLAIN, attempts=4)

    short, whole = store.outcome("relu-1a2b", 1), store.outcome("relu-1a2b", 4)

    assert ([1, 2], [1]) == ([one.id for one in short.attempts], [one.id for one in short.made])
    assert 4 == len(whole.made) and 5 == len(whole.attempts)
    gain = tuning_gain(whole)
    assert gain is not None and 2.2 / 1.5 == pytest.approx(gain, rel=0.01)


async def test_reports_say_what_was_tuned_and_count_it_apart(store: Store) -> None:
    await tuned_run(store, Variants(plain_too, noise=0.001), BLOCKS, PLAIN)
    view = RunView.of_store(store, "relu-1a2b")

    document = run_document(view)
    shown = _printed(run_text(document, 200))
    parent, tuned = (_printed(node_text(node_document(view, view.nodes[at]))) for at in (0, 1))

    assert (2, 3, 2) == (document.made, len(document.attempts), document.correct)
    assert "2 attempts: 2 correct; 1 tuned" in shown
    assert "tuned from 1: BLOCK 128 (was 64), WARPS 8 (was 4)" in shown
    assert re.search(r"5 of 5 variants raced in [\d.]+ s of the device; BLOCK 128", parent)
    assert "attempt 2 of relu-1a2b: tuned from 1" in tuned


def _printed(content: RenderableType) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(content)
    return console.export_text()


def test_a_tuned_attempt_is_a_gain_but_no_attempt_without_one() -> None:
    first = working(1, latency_ms=EAGER_MS / 1.5)
    tree = Tree.replay(EAGER_MS, [failing(2), first, tuned_from(first, 3, 2.0), failing(4)])

    assert 3 == tree.made
    assert 2 == last_gain(tree), "by the attempt that was tuned"
