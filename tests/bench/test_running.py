from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

import bench_samples as samples
import pytest

from stark.bench.account import Account
from stark.bench.grid import enter, lay_out
from stark.bench.report import make_report
from stark.bench.running import unfinished
from stark.bench.shared import ModelDoor
from stark.bench.suite import folders
from stark.core.call import Message, Reply
from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable, ModelUnreachable, ProblemError, StarkError
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.usage import Budget
from stark.store import Store
from stark.testing.executor import FakeExecutor
from stark.testing.model import ScriptedModel
from stark.testing.replies import team_reply


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


async def test_every_run_of_the_grid_is_worked_on_to_its_end(store: Store) -> None:
    bench, watch, executor = samples.new_bench(store, seeds=2), samples.Quiet(), Counting()

    limit = await samples.work(store, bench, 5, executor, watch=watch)

    assert "288 attempts made by the whole bench" == limit
    assert [] == unfinished(store, bench)
    assert {"6 attempts made"} == set(watch.reasons.values())
    assert 5 == watch.most_in_flight
    assert 48 == watch.ended
    assert {1} == set(executor.described.values()), "each reference is measured once"
    assert executor.closed


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
    bench = samples.new_bench(store, budget=budget)

    limit = await samples.work(store, bench, executor=Counting())

    assert limit is not None and re.fullmatch(f"{said} by the whole bench", limit)
    left = unfinished(store, bench)
    assert left
    ended = {summary.id for summary in store.summaries() if summary.ended_reason}
    assert not ended & {cell.run_id for cell in left}
    assert all(not store.unfinished(cell.run_id) for cell in left)


async def test_a_run_that_a_limit_of_the_whole_stopped_has_not_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = count()

    def limit(account: Account) -> str | None:
        """The total moves on while other runs pay."""
        return f"{next(spent)} tokens" if account.finished >= 20 else None

    monkeypatch.setattr(Account, "limit", limit)
    bench, watch = samples.new_bench(store), samples.Quiet()

    await samples.work(store, bench, watch=watch)

    assert len(bench.cells) - len(unfinished(store, bench)) == watch.ended


async def test_a_limit_counts_what_earlier_sessions_spent(store: Store) -> None:
    bench = samples.new_bench(store, budget=Budget(attempts=20))
    await samples.work(store, bench)
    models, model = samples.door()

    limit = await samples.work(store, bench, models=models)

    assert "20 attempts made by the whole bench" == limit
    assert [] == model.asked


async def test_an_unknown_price_lifts_no_limit_of_what_is_known(store: Store) -> None:
    bench = samples.new_bench(store, budget=Budget(attempts=999, tokens=30_000))

    limit = await samples.work(store, bench, models=samples.door(dollars=None)[0])

    assert limit is not None and "tokens used" in limit


async def test_what_earlier_sessions_were_told_counts_beside_what_they_were_not(
    store: Store,
) -> None:
    bench = samples.new_bench(store, budget=Budget(attempts=999, dollars=2.0))
    prices = cycle([None, 0.25])
    half_priced = ModelDoor(open_one=lambda _: Alternating(prices))

    first = await samples.work(store, bench, models=half_priced)
    models, model = samples.door()
    again = await samples.work(store, bench, models=models)

    assert first is not None and first.endswith("of $2.00 spent by the whole bench")
    assert first == again
    assert [] == model.asked


class Alternating:
    """A model that tells the price of every other reply."""

    name = "alternating"

    def __init__(self, prices: Iterator[float | None]) -> None:
        self._prices = prices

    async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
        return await ScriptedModel(team_reply, dollars=next(self._prices)).ask(
            messages, temperature
        )


async def test_resumed_with_more_it_gives_the_same_report_as_an_unbroken_one(store: Store) -> None:
    for attempts in (20, 70, 999):
        bench = samples.new_bench(store, name="mine", budget=Budget(attempts=attempts))
        await samples.work(store, bench)
    resumed = samples.report_of(store)

    with Store.open("sqlite://") as other:
        whole = samples.new_bench(other, name="mine", budget=Budget(attempts=999))
        await samples.work(other, whole)
        assert resumed == samples.report_of(other)


async def test_a_problem_that_cannot_be_used_ends_its_runs_alone(store: Store) -> None:
    bench, watch = samples.new_bench(store), samples.Quiet()

    await samples.work(store, bench, executor=Counting("moving_average"), watch=watch)

    bad = [cell for cell in bench.cells if cell.problem == "moving_average"]
    assert [] == unfinished(store, bench), "they have ended, if not well"
    for cell in bad:
        assert "the problem cannot be used: moving_average: line 3" in watch.reasons[cell.run_id]
    report = samples.report_of(store)
    assert [8, 8, 8] == [one["runs"] for one in report["summaries"]], "it counts as failed"
    assert any(note.startswith("moving_average: the problem") for note in report["notes"])


async def test_what_was_refused_is_tried_again_by_the_next_session(store: Store) -> None:
    bench, watch = samples.new_bench(store), samples.Quiet()
    models, model = samples.door()
    await samples.work(store, bench, executor=Counting("moving_average"))
    still = Counting("moving_average")

    await samples.work(store, bench, executor=still, models=models)

    assert {"moving_average": 1} == still.described
    assert [] == model.asked
    assert [] == unfinished(store, bench), "they have ended once more"

    await samples.work(store, bench, watch=watch)

    assert {"6 attempts made"} == set(watch.reasons.values())
    assert len(bench.cells) == watch.ended
    assert not make_report(store, bench).refused


class RefusedLate(FakeExecutor):
    """Measures every reference, and finds in the final check that the problem cannot be used."""

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if effort == "promote":
            raise ProblemError("out of memory")
        return await super().evaluate(problem, candidate, effort)


async def test_a_run_may_be_refused_after_its_reference_was_measured(store: Store) -> None:
    bench = samples.new_bench(store)
    await samples.work(store, bench, executor=RefusedLate())
    assert 8 == len(make_report(store, bench).refused)
    models, model = samples.door()

    await samples.work(store, bench, models=models)

    assert [] == make_report(store, bench).refused
    assert [] == model.asked, "nothing is paid twice"


class Unreachable:
    """A model that is out of reach for whatever mentions some words."""

    name = "unreachable"

    def __init__(self, words: str) -> None:
        self._words, self.refused = words, 0
        _, self._model = samples.door()

    async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
        if self._words in messages[1].text:
            self.refused += 1
            raise ModelUnreachable("no answer after 5 tries")
        return await self._model.ask(messages, temperature)


async def test_a_run_whose_model_is_out_of_reach_is_set_aside(store: Store) -> None:
    bench, watch = samples.new_bench(store), samples.Quiet()
    models = ModelDoor(open_one=lambda _: Unreachable("moving average over time"))

    await samples.work(store, bench, 4, models=models, watch=watch)

    left = unfinished(store, bench)
    assert {"moving_average"} == {cell.problem for cell in left}
    assert {"no answer after 5 tries"} == {watch.reasons[cell.run_id] for cell in left}
    await samples.work(store, bench, 4)
    assert [] == unfinished(store, bench)


async def test_attempts_that_were_set_aside_are_in_flight_no_more(store: Store) -> None:
    bench, watch = samples.new_bench(store), samples.Quiet()
    models = ModelDoor(open_one=lambda _: Unreachable("moving average over time"))

    await samples.work(store, bench, 4, models=models, watch=watch)

    assert watch.account is not None
    made = sum(len(store.nodes(cell.run_id)) for cell in bench.cells)
    assert watch.account.begun == made == watch.account.finished


async def test_what_a_first_attempt_was_paid_counts_before_it_is_finished(store: Store) -> None:
    bench = samples.new_bench(store)

    def once(messages: tuple[Message, ...]) -> str:
        if len(paid.asked) > 1:
            raise ModelUnreachable("no answer after 5 tries")
        return team_reply(messages)

    paid = ScriptedModel(once, dollars=0.25)
    with pytest.raises(ModelUnreachable):
        await samples.work(store, bench, 1, models=ModelDoor(open_one=lambda _: paid))
    assert not any(store.nodes(cell.run_id) for cell in bench.cells)

    account = Account.of_store(store, bench)

    assert (0, 0.25) == (account.finished, account.usage.dollars)


async def test_a_run_that_another_process_works_on_is_left_to_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with Store.open(url) as store, Store.open(url) as other:
        bench, watch = samples.new_bench(store), samples.Quiet()
        held = bench.cells[3].run_id

        with other.exclusive(held):
            await samples.work(store, bench, 4, watch=watch)

        assert [held] == [cell.run_id for cell in unfinished(store, bench)]
        assert "is being worked on by another process" in watch.reasons[held]


async def test_models_that_never_answer_end_the_session(store: Store) -> None:
    bench, model = samples.new_bench(store), Unreachable("Your role")

    with pytest.raises(ModelUnreachable):
        await samples.work(store, bench, 3, models=ModelDoor(open_one=lambda _: model))

    assert 3 <= model.refused < len(bench.cells)
    assert bench.cells == tuple(unfinished(store, bench))


class Dying(FakeExecutor):
    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if len(self.evaluated) >= 40:
            raise JudgeUnavailable("the judge died 3 times")
        return await super().evaluate(problem, candidate, effort)


async def test_what_a_session_cannot_go_on_with_is_raised_as_it_is(store: Store) -> None:
    bench, executor = samples.new_bench(store), Dying()

    with pytest.raises(StarkError, match="the judge died 3 times"):
        await samples.work(store, bench, 4, executor)

    assert executor.closed
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
    models = {"stark": samples.terms(12).models["stark"]}
    suite = folders([samples.EXAMPLES / "moving_average.py"])
    bench = enter(store, *lay_out(suite, [1], samples.terms(12, models=models)))
    with pytest.raises(JudgeUnavailable):
        await samples.work(store, bench, executor=DyingAtTheEnd())
    door, model = samples.door()

    limit = await samples.work(store, bench, models=door)

    assert "12 attempts made by the whole bench" == limit
    assert [] == unfinished(store, bench)
    assert [] == model.asked
    assert store.promotions(bench.cells[0].run_id)


async def test_only_so_many_questions_are_asked_at_once(store: Store) -> None:
    busy, most = 0, 0
    _, scripted = samples.door()

    class Slow:
        name = "slow"

        async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            busy -= 1
            return await scripted.ask(messages, temperature)

    bench = samples.new_bench(store, attempts=2)
    await samples.work(store, bench, 6, models=ModelDoor(2, lambda _: Slow()))

    assert 2 == most
