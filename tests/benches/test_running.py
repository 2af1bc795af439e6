from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stark.benches.report import make_report
from stark.benches.running import unfinished
from stark.core.bench import Bench
from stark.core.call import Message, Reply
from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable, ModelUnreachable, ProblemError, StarkError
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import Ended
from stark.core.usage import Budget
from stark.store import Store
from support import benches as samples
from support.executor import FakeExecutor
from support.model import ScriptedModel
from support.replies import team_reply


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


class Counting(FakeExecutor):
    """Counts what is described, and may refuse one problem."""

    def __init__(self, refused: str | None = None) -> None:
        super().__init__(delay_s=0.0005)
        self.described: Counter[str] = Counter()
        self._refused = refused

    async def describe(self, problem: Problem) -> Reference:
        self.described[problem.name] += 1
        if problem.name == self._refused:
            raise ProblemError(f"{problem.name}: line 3: forward raised")
        return await super().describe(problem)


@pytest.mark.slow
async def test_every_run_of_the_grid_is_worked_on_to_its_end(store: Store) -> None:
    bench, notes, executor = samples.new_bench(store, seeds=2), samples.Notes(), Counting()

    limit = await samples.work(store, bench, 5, executor, notes=notes)

    assert Ended(kind="attempts", detail="108 attempts made") == limit
    assert [] == unfinished(store, bench)
    assert {"6 attempts made"} == set(notes.reasons.values())
    assert 5 == notes.most_in_flight
    assert 18 == notes.ended
    assert {1} == set(executor.described.values()), "each reference is measured once"


@pytest.mark.slow
async def test_its_runs_are_ordinary_runs(store: Store) -> None:
    bench = samples.new_bench(store)
    await samples.work(store, bench)

    by_id = {summary.id: summary for summary in store.summaries()}
    for cell in bench.cells:
        assert (cell.problem, cell.strategy, 6) == (
            by_id[cell.run_id].problem,
            by_id[cell.run_id].strategy,
            by_id[cell.run_id].attempts,
        )


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(attempts=20), "20 attempts made"),
        (Budget(tokens=40_000), r"[\d,]+ of 40,000 tokens used"),
        (Budget(attempts=999, dollars=5.0), r"\$5\.\d\d of \$5\.00 spent"),
        (Budget(attempts=999, minutes=0.0005), r"0\.0005 minutes passed"),
    ],
    ids=["attempts", "tokens", "dollars", "minutes"],
)
async def test_a_limit_of_the_whole_ends_the_session_and_leaves_runs_to_be_resumed(
    store: Store, budget: Budget, said: str
) -> None:
    bench, notes = samples.new_bench(store, budget=budget), samples.Notes()

    limit = await samples.work(store, bench, executor=Counting(), notes=notes)

    assert limit is not None and re.fullmatch(said, limit.detail)
    left = unfinished(store, bench)
    assert left
    assert len(bench.cells) - len(left) == notes.ended
    ended = {summary.id for summary in store.summaries() if summary.ended}
    assert not ended & {cell.run_id for cell in left}


async def test_a_limit_counts_what_earlier_sessions_spent(store: Store) -> None:
    bench = samples.new_bench(store, budget=Budget(attempts=20))
    await samples.work(store, bench)
    models, model = samples.scripted()

    limit = await samples.work(store, bench, models=models)

    assert limit is not None and "20 attempts made" == limit.detail
    assert [] == model.asked


@pytest.mark.slow
async def test_calls_without_a_price_do_not_lift_a_limit(store: Store) -> None:
    tokens = samples.new_bench(store, budget=Budget(attempts=999, tokens=30_000))
    limit = await samples.work(store, tokens, models=samples.scripted(dollars=None)[0])
    assert limit is not None and "tokens" == limit.kind

    dollars = samples.new_bench(store, name="half", seeds=2, budget=Budget(attempts=999, dollars=9))
    first = await samples.work(store, dollars, models=samples.pool_of(HalfPriced()))
    models, model = samples.scripted()
    again = await samples.work(store, dollars, models=models)

    assert first is not None and first.detail.endswith("of $9.00 spent")
    assert first == again
    assert [] == model.asked


class HalfPriced(ScriptedModel):
    """A model that reports the price of every other reply."""

    def __init__(self) -> None:
        super().__init__(team_reply)

    async def ask(self, *asked: Any, **limit: Any) -> Reply:
        self._dollars = None if len(self.asked) % 2 else 0.25
        return await super().ask(*asked, **limit)


@pytest.mark.slow
async def test_resumed_with_more_it_gives_the_same_report_as_an_unbroken_one(store: Store) -> None:
    for attempts in (10, 30, 999):
        bench = samples.new_bench(store, name="mine", budget=Budget(attempts=attempts))
        await samples.work(store, bench)
    resumed = samples.report_of(store)

    with Store.open("sqlite://") as other:
        whole = samples.new_bench(other, name="mine", budget=Budget(attempts=999))
        await samples.work(other, whole)
        assert resumed == samples.report_of(other)


@pytest.mark.slow
async def test_a_problem_that_cannot_be_used_ends_its_runs_alone(store: Store) -> None:
    bench, notes = samples.new_bench(store), samples.Notes()

    await samples.work(store, bench, executor=Counting("moving_average"), notes=notes)

    bad = [cell for cell in bench.cells if cell.problem == "moving_average"]
    assert [] == unfinished(store, bench), "they have ended, if not well"
    for cell in bad:
        assert "moving_average: line 3: forward raised" == notes.reasons[cell.run_id]
    report = samples.report_of(store)
    assert [3, 3, 3] == [one["runs"] for one in report["summaries"]], "it counts as failed"
    assert any(
        note == "moving_average: moving_average: line 3: forward raised" for note in report["notes"]
    )


@pytest.mark.slow
async def test_what_was_refused_is_tried_again_by_the_next_session(store: Store) -> None:
    bench, notes = samples.new_bench(store), samples.Notes()
    models, model = samples.scripted()
    await samples.work(store, bench, executor=Counting("moving_average"))
    still = Counting("moving_average")

    await samples.work(store, bench, executor=still, models=models)

    assert {"moving_average": 1} == still.described
    assert [] == model.asked
    assert [] == unfinished(store, bench), "they have ended once more"

    await samples.work(store, bench, notes=notes)

    assert {"6 attempts made"} == set(notes.reasons.values())
    assert len(bench.cells) == notes.ended
    assert not make_report(store, bench).refused


class RefusedLate(FakeExecutor):
    """Measures every reference, and finds in the final check that the problem cannot be used."""

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if effort == "promote":
            raise ProblemError("out of memory")
        return await super().evaluate(problem, candidate, effort)


@pytest.mark.slow
async def test_a_run_may_be_refused_after_its_reference_was_measured(store: Store) -> None:
    bench = samples.new_bench(store)
    await samples.work(store, bench, executor=RefusedLate())
    assert 3 == len(make_report(store, bench).refused)
    models, model = samples.scripted()

    await samples.work(store, bench, models=models)

    assert [] == make_report(store, bench).refused
    assert [] == model.asked, "nothing is paid twice"


def unreachable(words: str) -> ScriptedModel:
    """A model that is out of reach for whatever mentions some words."""

    def answer(messages: tuple[Message, ...]) -> str:
        if words in messages[1].text:
            raise ModelUnreachable("no answer after 5 tries")
        return team_reply(messages)

    return ScriptedModel(answer, dollars=0.25)


@pytest.mark.slow
async def test_a_run_whose_model_is_out_of_reach_is_set_aside(store: Store) -> None:
    bench, notes = samples.new_bench(store), samples.Notes()
    models = samples.pool_of(unreachable("moving average over time"))

    await samples.work(store, bench, 4, models=models, notes=notes)

    left = unfinished(store, bench)
    assert {"moving_average"} == {cell.problem for cell in left}
    assert {"no answer after 5 tries"} == {notes.reasons[cell.run_id] for cell in left}
    await samples.work(store, bench, 4)
    assert [] == unfinished(store, bench)


@pytest.mark.slow
async def test_what_was_begun_and_finished_is_counted(store: Store) -> None:
    bench, notes = samples.new_bench(store), samples.Notes()
    models = samples.pool_of(unreachable("moving average over time"))

    await samples.work(store, bench, 4, models=models, notes=notes)

    made = sum(len(store.nodes(cell.run_id)) for cell in bench.cells)
    begun = sum(len(store.selections(cell.run_id)) for cell in bench.cells)
    assert (made, begun) == (notes.progress.finished, notes.progress.ledger.attempts)


async def test_what_a_first_attempt_was_paid_counts_before_it_is_finished(store: Store) -> None:
    bench = samples.new_bench(store)

    def once(messages: tuple[Message, ...]) -> str:
        if len(paid.asked) > 1:
            raise ModelUnreachable("no answer after 5 tries")
        return team_reply(messages)

    paid = ScriptedModel(once, dollars=0.25)
    with pytest.raises(ModelUnreachable):
        await samples.work(store, bench, 1, models=samples.pool_of(paid))
    assert not any(store.nodes(cell.run_id) for cell in bench.cells)

    limit = await samples.work(store, samples.new_bench(store, budget=Budget(dollars=0.25)))

    assert limit is not None and "$0.25 of $0.25 spent" == limit.detail


async def test_a_limit_of_the_whole_within_the_last_attempt_leaves_the_run_to_be_resumed(
    store: Store,
) -> None:
    problem = samples.EXAMPLES / "moving_average.py"

    def bench(dollars: float) -> Bench:
        budget = Budget(dollars=dollars)
        return samples.new_bench(store, 1, budget=budget, strategies=("stark",), problems=[problem])

    await samples.work(store, bench(0.25))  # pays for a plan
    assert 1 == len(unfinished(store, bench(0.25)))

    await samples.work(store, bench(9.0))
    assert [] == unfinished(store, bench(9.0))
    assert [1] == [node.id for node in store.nodes(bench(9.0).cells[0].run_id)]


@pytest.mark.slow
async def test_a_run_that_another_process_works_on_is_left_to_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Store.open(url) as store, Store.open(url) as other:
        bench, notes = samples.new_bench(store), samples.Notes()
        held = bench.cells[3].run_id

        with other.exclusive(held):
            await samples.work(store, bench, 4, notes=notes)

        assert [held] == [cell.run_id for cell in unfinished(store, bench)]
        assert "is being worked on by another process" in notes.reasons[held]


async def test_models_that_never_answer_end_the_session(store: Store) -> None:
    bench, model = samples.new_bench(store), unreachable("Your role")

    with pytest.raises(ModelUnreachable):
        await samples.work(store, bench, 3, models=samples.pool_of(model))

    assert 3 <= len(model.asked) < len(bench.cells)
    assert bench.cells == tuple(unfinished(store, bench))


class Dying(FakeExecutor):
    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if len(self.evaluated) >= 20:
            raise JudgeUnavailable("the judge died 3 times")
        return await super().evaluate(problem, candidate, effort)


@pytest.mark.slow
async def test_what_a_session_cannot_go_on_with_is_raised_as_it_is(store: Store) -> None:
    bench, executor = samples.new_bench(store), Dying()

    with pytest.raises(StarkError, match="the judge died 3 times"):
        await samples.work(store, bench, 4, executor)

    await samples.work(store, bench, 4)
    assert [] == unfinished(store, bench)


class DyingAtTheEnd(FakeExecutor):
    """Judges all attempts, and is gone when the first final check is asked of it."""

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if effort == "promote":
            raise JudgeUnavailable("the judge died 3 times")
        return await super().evaluate(problem, candidate, effort)


async def test_a_bench_that_ended_in_its_last_final_check_can_be_finished(store: Store) -> None:
    problem = samples.EXAMPLES / "moving_average.py"
    bench = samples.new_bench(store, 12, strategies=("stark",), problems=[problem])
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, bench, executor=DyingAtTheEnd())
    models, model = samples.scripted()

    limit = await samples.work(store, bench, models=models)

    assert limit is not None and "12 attempts made" == limit.detail
    assert [] == unfinished(store, bench)
    assert [] == model.asked
    assert store.promotions(bench.cells[0].run_id)


async def test_only_so_many_questions_are_asked_at_once(store: Store) -> None:
    busy, most = 0, 0

    class Slow(ScriptedModel):
        async def ask(self, *asked: Any, **limit: Any) -> Reply:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.002)
            busy -= 1
            return await super().ask(*asked, **limit)

    bench = samples.new_bench(store, attempts=2)
    await samples.work(store, bench, 6, models=samples.pool_of(Slow(team_reply), slots=2))

    assert 2 == most
