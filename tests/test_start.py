"""Runs that begin with what PyTorch's own compiler makes of the problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import loop_samples as samples
from stark.core.candidate import Candidate
from stark.core.errors import CompilerRefused, UsageError
from stark.core.evaluation import Evaluation, Unusable
from stark.core.run import Run
from stark.events import CheckBegan
from stark.final_check import MOST_PASSED
from stark.recording import RecordedCompiler, RecordedReplies, record
from stark.search.policies.recorded import Recorded
from stark.store import Store
from stark.strategies import STRATEGIES
from support.executor import COMPILED, FakeExecutor, invented
from support.nodes import EAGER_MS, correct, failure


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def from_compiler(attempts: int = 6, **changes: object) -> Run:
    return samples.run(attempts=attempts, start="compiler", **changes)


def judging(compiled: Evaluation, others: Callable[[Candidate], Evaluation] = invented):
    """A judge with a verdict of its own on what the compiler wrote."""
    return lambda c: compiled if c.source == COMPILED else others(c)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("parallel", [1, 4])
async def test_the_first_attempt_is_the_compilers_under_every_strategy(
    store: Store, name: str, parallel: int
) -> None:
    run = samples.run(name, 8, parallel=parallel, start="compiler")
    executor = FakeExecutor(judging(correct(EAGER_MS / 2)))

    worked = await samples.work(store, run, executor)

    assert "8 attempts made" == worked.reason
    first = worked.tree.node(1)
    found = (first.parent, first.action, first.role, first.plan)
    assert (0, "improve", "compiler", None) == found
    assert Candidate(language="triton", source=COMPILED) == first.candidate
    assert [] == store.calls(run.id, 1)
    assert 1 == executor.compilations
    assert list(worked.tree.nodes) == store.nodes(run.id)


async def test_a_run_from_the_reference_asks_no_compiler(store: Store) -> None:
    executor = FakeExecutor()

    worked = await samples.work(store, samples.run(attempts=3), executor)

    assert 0 == executor.compilations
    assert "compiler" not in {node.role for node in worked.tree.nodes}


async def test_others_go_on_from_what_the_compiler_wrote(store: Store) -> None:
    judge = judging(correct(EAGER_MS / 8), lambda _: correct(EAGER_MS))

    worked = await samples.work(store, from_compiler(attempts=8), FakeExecutor(judge))

    assert 1 in {node.parent for node in worked.tree.nodes}


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        (FakeExecutor(compiled=CompilerRefused("no graph")), "no graph"),
        (FakeExecutor(judging(failure("incorrect"))), "does not work here: incorrect: "),
    ],
    ids=["refused", "wrong"],
)
async def test_where_it_is_of_no_use_the_run_says_so_and_goes_on_from_the_reference(
    store: Store, executor: FakeExecutor, said: str
) -> None:
    worked = await samples.work(store, from_compiler(), executor)

    first = worked.tree.node(1)
    assert first.candidate is None
    assert isinstance(first.evaluation, Unusable)
    assert said in first.evaluation.reason
    assert 0 == worked.tree.node(2).parent
    assert 6 == len(worked.tree.nodes)


async def test_a_run_killed_while_the_compiler_worked_asks_it_again(store: Store) -> None:
    run = from_compiler()

    def dying(_: Candidate) -> Evaluation:
        raise RuntimeError("the power went")

    with pytest.raises(RuntimeError):
        await samples.work(store, run, FakeExecutor(dying))
    assert {1} == set(store.unfinished(run.id))

    worked = await samples.work(store, run, FakeExecutor(judging(correct(EAGER_MS / 2))))

    assert [1, 2, 3, 4, 5, 6] == [node.id for node in worked.tree.nodes]
    assert "compiler" == worked.tree.node(1).role


async def test_a_resumed_run_does_not_ask_it_again(store: Store) -> None:
    await samples.work(store, from_compiler(attempts=2), FakeExecutor())
    executor = FakeExecutor()

    await samples.work(store, from_compiler(attempts=4), executor)

    assert 0 == executor.compilations


@pytest.mark.parametrize(
    "compiled", [COMPILED, CompilerRefused("no graph")], ids=["made", "refused"]
)
async def test_a_replay_takes_what_the_compiler_wrote_then(
    store: Store, compiled: str | CompilerRefused
) -> None:
    judge = judging(correct(EAGER_MS / 8))
    original = await samples.work(store, from_compiler(), FakeExecutor(judge, compiled=compiled))
    recording = record(store, from_compiler())
    today = FakeExecutor(judge, compiled="class ModelNew: ...  # as another version has it\n")

    with Store.open("sqlite://") as other:
        worked = await samples.work(
            other,
            from_compiler(id="again-1"),
            RecordedCompiler(today, recording),
            RecordedReplies(recording),
            policy=Recorded(recording.selections),
        )

    assert 0 == today.compilations
    assert [node.candidate for node in original.tree.nodes] == [
        node.candidate for node in worked.tree.nodes
    ]


async def test_no_run_ends_below_what_the_compiler_wrote(store: Store) -> None:
    lucky = iter([EAGER_MS / n for n in range(20, 13, -1)])

    def judge(candidate: Candidate) -> Evaluation:
        if candidate.source == COMPILED:
            return correct(EAGER_MS / 2)
        return correct(next(lucky, EAGER_MS))  # in the final check they are as fast as eager

    worked = await samples.work(store, from_compiler(attempts=8), FakeExecutor(judge))

    checks = [event.node.id for event in worked.of(CheckBegan)]
    assert [2, 3, 1] == checks
    assert MOST_PASSED + 1 == len(checks)


async def test_a_team_that_repeats_the_compilers_candidate_makes_a_duplicate(store: Store) -> None:
    def repeats(_: object) -> str:
        return f"```python\n{COMPILED}```"

    run = samples.run("search-only", 3, start="compiler")
    executor = FakeExecutor(compiled=COMPILED)

    worked = await samples.work(store, run, executor, samples.scripted(repeats)[0])

    assert [None, 1, 1] == [node.duplicate_of for node in worked.tree.nodes]
    assert 1 == len(executor.evaluated)
    assert [1] == [event.node.id for event in worked.of(CheckBegan)]


async def test_a_language_that_the_compiler_does_not_write_is_refused_at_once(store: Store) -> None:
    run = from_compiler(language="cuda")

    with pytest.raises(UsageError, match="writes no cuda kernels"):
        await samples.work(store, run)
    assert not store.holds(run.id)
