"""A run whose leaders are judged again on other kinds of machines."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import loop_samples as samples
from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable, ProblemError, UsageError
from stark.core.evaluation import Correct, Effort, Evaluation, Incorrect
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.standing import vs_eager
from stark.evaluator.executors import open_executor
from stark.events import CheckFinished, JudgedElsewhere, JudgingElsewhere, Notice
from stark.recorded import keep, record
from stark.report.progress import Lines
from stark.report.view import RunView
from stark.store import Store
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.executor import FakeExecutor, kind_of
from support.nodes import CPU, DEVICE, EAGER_MS, correct

SMALL = DEVICE.model_copy(update={"name": "Small GPU", "memory_gb": 24.0})
LARGE = DEVICE.model_copy(update={"name": "Large GPU", "memory_gb": 192.0})


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def faster(ratio: float) -> Callable[[Candidate], Evaluation]:
    return lambda _: correct(EAGER_MS / ratio)


def run(*others: str, **changes: Any) -> Run:
    return samples.run(attempts=6, device_class="Invented", other_classes=others, **changes)


def machines(*others: FakeExecutor) -> FakeExecutor:
    """The run's own kind, on which kernels are twice as fast as eager mode, and others."""
    return FakeExecutor(faster(2), others=others)


async def test_the_search_is_on_one_kind_and_its_leaders_are_judged_on_each_other(
    store: Store,
) -> None:
    small, large = FakeExecutor(faster(0.5), device=SMALL), FakeExecutor(faster(9), device=LARGE)
    own = machines(small, large)

    worked = await samples.work(store, run("Small", "192 GB"), own)

    checks, elsewhere = store.promotions(run().id), store.elsewhere(run().id)
    assert [kind_of(SMALL), kind_of(LARGE)] == list(elsewhere)
    for kind, judge, ratio in zip(elsewhere, (small, large), (0.5, 9), strict=True):
        assert not judge.evaluated
        assert len(checks) == len(judge.promoted)
        assert kind == elsewhere[kind].reference.device_class
        assert list(checks) == list(elsewhere[kind].checks)
        for found in elsewhere[kind].checks.values():
            assert isinstance(found, Correct) and "promote" == found.effort
            assert ratio == pytest.approx(found.speedup_vs("eager").ratio)
    began, ended = worked.of(JudgingElsewhere), worked.of(JudgedElsewhere)
    assert [(each.node, each.device_class) for each in began] == [
        (each.node, each.device_class) for each in ended
    ]
    assert worked.events.index(worked.of(CheckFinished)[-1]) < worked.events.index(began[0])
    attempt, (line,) = ended[-1].node.id, Lines().of(ended[-1])
    assert line.startswith(f"final check of attempt {attempt} on {kind_of(LARGE)}: 9.00x vs eager")


async def test_what_was_measured_elsewhere_ranks_nothing(store: Store) -> None:
    large = FakeExecutor(faster(9), device=LARGE)
    await samples.work(store, run("Large"), machines(large))
    with Store.open("sqlite://") as other:
        await samples.work(other, run(), machines())
        alone, both = RunView.of_store(other, run().id), RunView.of_store(store, run().id)

    assert both.elsewhere and not alone.elsewhere
    assert (alone.standing, alone.best) == (both.standing, both.best)
    (summary,) = store.summaries()
    assert summary.speedup is not None
    assert 2 == pytest.approx(summary.speedup.ratio)
    outcome = store.outcome(run().id, 6)
    assert outcome.best is not None
    assert 2 == pytest.approx(outcome.best.speedup_vs("eager").ratio)
    assert [kind_of(DEVICE), kind_of(LARGE)] == list(outcome.classes)
    (elsewhere,) = outcome.classes[kind_of(LARGE)].values()
    assert 9 == pytest.approx(elsewhere.speedups["eager"].ratio)


async def test_leaders_that_failed_the_final_check_are_judged_nowhere_else(store: Store) -> None:
    large = FakeExecutor(faster(9), device=LARGE)
    own = FakeExecutor(
        lambda candidate: (
            Incorrect(error="wrong at times") if own.promoted else faster(2)(candidate)
        ),
        others=(large,),
    )

    await samples.work(store, run("Large"), own)

    assert store.promotions(run().id)
    assert all(vs_eager(found) is None for found in store.promotions(run().id).values())
    assert [] == large.promoted


async def test_a_kind_that_no_judge_offers_is_reported_before_a_model_is_asked(
    store: Store,
) -> None:
    replies, model = samples.scripted()

    with pytest.raises(JudgeUnavailable, match="no judge is a machine of kind 'Large'"):
        await samples.work(store, run("Large"), machines(), replies)

    assert [] == model.asked
    assert [] == store.summaries()


@pytest.mark.parametrize("others", [("Invented GPU, 80",), ("Large", "192 GB")])
async def test_two_names_of_the_same_kind_are_refused(
    store: Store, others: tuple[str, ...]
) -> None:
    replies, model = samples.scripted()

    with pytest.raises(UsageError, match="are the same kind of machine"):
        await samples.work(store, run(*others), machines(FakeExecutor(device=LARGE)), replies)

    assert [] == model.asked


async def test_a_kind_that_cannot_run_the_language_is_refused_at_the_start(store: Store) -> None:
    with pytest.raises(UsageError, match=r"triton kernels do not run on .* Invented CPU"):
        await samples.work(store, run("CPU"), machines(FakeExecutor(device=CPU)))

    assert [] == store.summaries()


class Refusing(FakeExecutor):
    async def describe(self, problem: Problem) -> Reference:
        raise ProblemError("relu: line 3: out of memory")


async def test_a_problem_that_cannot_be_used_there_is_refused_at_the_start(store: Store) -> None:
    with pytest.raises(ProblemError, match="on a machine of kind 'Small': relu: line 3"):
        await samples.work(store, run("Small"), machines(Refusing(device=SMALL)))

    assert [] == store.summaries()


class Dying(FakeExecutor):
    """Is gone after its first final check, and counts how often it measured the reference."""

    described = 0

    async def describe(self, problem: Problem) -> Reference:
        self.described += 1
        return await super().describe(problem)

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if self.promoted:
            raise JudgeUnavailable("no judge answers: start one")
        return await super().evaluate(problem, candidate, effort)


async def test_an_interrupted_session_loses_nothing_and_nothing_is_judged_twice(
    store: Store,
) -> None:
    checks = iter([1.2, 1.1])  # the first leader was lucky, so that a second one is checked
    searched = iter([3.0, 2.0, 2.5, 1.5, 1.4, 1.3])
    own = FakeExecutor(
        lambda _: faster(next(checks if own.promoted else searched))(_),
        others=(dying := Dying(faster(9), device=LARGE),),
    )
    replies, model = samples.scripted(samples.distinct())
    worked = await samples.work(store, run("Large"), own, replies)
    said = [event.text for event in worked.events if isinstance(event, Notice)]
    assert any(text.startswith("not judged on Large") for text in said)
    (there,) = store.elsewhere(run().id).values()
    assert 1 == len(there.checks) < len(store.promotions(run().id))
    asked, large = len(model.asked), FakeExecutor(faster(9), device=LARGE)

    await samples.work(store, store.run(run().id), machines(large), replies)

    assert asked == len(model.asked)
    (there,) = store.elsewhere(run().id).values()
    assert store.promotions(run().id).keys() == there.checks.keys()
    judged = [candidate.digest for candidate in (*dying.promoted, *large.promoted)]
    assert len(there.checks) == len(judged) == len(set(judged))
    assert 1 == dying.described
    assert store.ended(run().id) is not None


async def test_a_recording_keeps_what_was_measured_elsewhere(store: Store) -> None:
    await samples.work(store, run("Large"), machines(FakeExecutor(faster(9), device=LARGE)))
    recording = record(store, store.run(run().id))

    with Store.open("sqlite://") as other:
        keep(recording, other)

        assert store.elsewhere(run().id) == other.elsewhere(run().id)
        assert recording.elsewhere == other.elsewhere(run().id)


@pytest.mark.judge
@pytest.mark.long
async def test_two_kinds_of_real_machines_judge_one_tree(store: Store) -> None:
    """Two cores, and one of them alone."""
    pytest.importorskip("torch")
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2 or shutil.which("taskset") is None:
        pytest.skip("this needs two cores and taskset")
    judge = f"{sys.executable} -m stark.evaluator.judge --device cpu"
    executor = open_executor(
        f"command:taskset -c {cores[0]},{cores[1]} {judge} ;; taskset -c {cores[0]} {judge}",
        Limits(timing_budget_s=0.1),
        Tools(sanitizer=False),
    )
    on_two = samples.run(
        "sampling",
        attempts=1,
        problem=PROBLEM,
        language="cpp",
        device_class=", 2 cores",
        other_classes=(", 1 cores",),
    )
    honest = as_candidate("cpp", FAULTS["honest"][0]).source
    replies, _ = samples.scripted(lambda _: f"```python\n{honest}\n```")

    await samples.work(store, on_two, executor, replies)
    await executor.close()

    ((kind, there),) = store.elsewhere(on_two.id).items()
    own = store.reference(on_two.id)
    assert own is not None
    assert (2, 1) == (own.device.processors, there.reference.device.processors)
    assert (own.device_class, kind) == (kind.replace("1 cores", "2 cores"), kind)
    (check,), (elsewhere,) = store.promotions(on_two.id).values(), there.checks.values()
    for found, machine in ((check, own.device), (elsewhere, there.reference.device)):
        assert isinstance(found, Correct), found
        assert "promote" == found.effort
        assert machine == found.device
        assert {"eager", "compile"} <= found.references.keys()
