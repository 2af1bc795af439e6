"""Results by hand, and a bench over the examples with scripted replies and an invented judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stark.benches.document import report_document
from stark.benches.grid import enter, lay_out
from stark.benches.report import Report, make_report
from stark.benches.results import Result
from stark.benches.running import BenchEvent, BenchSession, InRun, Left, Opened, Progress
from stark.benches.suite import folders
from stark.core.bench import Bench, Cell
from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.run import Ended, RoleModel, RunConfig
from stark.core.standing import standing
from stark.core.usage import Budget, Cost, Spent
from stark.correspondence import ModelPool
from stark.evaluator.executors import Executor
from stark.events import AttemptFinished, Started
from stark.store import Attempted, Outcome, Store
from stark.strategies import strategy, team_of
from support.executor import FakeExecutor
from support.model import ScriptedModel
from support.nodes import DEVICE, EAGER_MS, correct, measurement
from support.replies import team_reply

EXAMPLES = Path(__file__).parents[2] / "examples"
PROBLEMS = [
    EXAMPLES / f"{name}.py" for name in ("masked_softmax", "moving_average", "small_matmuls")
]
STRATEGIES = ("stark", "sampling", "search-only")
ENDED = Ended(kind="attempts", detail="30 attempts made")


def kernel(speedup: float, **others: float) -> Correct:
    """A correct evaluation with these speedups against eager and other references."""
    latency_ms = EAGER_MS / speedup
    references = {"eager": EAGER_MS} | {
        name.replace("_", "-"): latency_ms * value for name, value in others.items()
    }
    measured = {name: measurement(value) for name, value in references.items()}
    return correct(latency_ms).model_copy(update={"references": measured})


def speedup(ratio: float, low: float | None = None) -> Speedup:
    return Speedup(reference="eager", ratio=ratio, low=low or ratio, high=ratio)


def attempt(
    id: int,
    ratio: float | None = None,
    parent: int = 0,
    action: str = "improve",
    status: str = "",
) -> Attempted:
    """A finished attempt; without a speedup it failed."""
    status = status or ("incorrect" if ratio is None else "correct")
    return Attempted(id, parent, action, status, None if ratio is None else speedup(ratio))


def result(
    problem: str,
    best: Correct | None,
    attempts: tuple[Attempted, ...] = (),
    *,
    strategy: str = "stark",
    seed: int = 1,
    level: str = "level1",
    roles: Mapping[str, Spent] | None = None,
    elapsed_s: float = 0.0,
    ended: Ended | None = ENDED,
) -> Result:
    """A run whose best kernel passed the final check."""
    cell = Cell(
        problem=problem,
        level=level,
        strategy=strategy,
        seed=seed,
        run_id=f"{problem}-{strategy}-{seed}",
    )
    leader = standing({tried.id: tried.speedup for tried in attempts}, {}).best
    outcome = Outcome(
        version="0.1.0",
        ended=ended,
        attempts=attempts,
        checks={} if best is None else {leader or 1: best.speedup_vs("eager")},
        best_attempt=None if best is None else leader,
        best=best,
        roles=dict(roles or {}),
        elapsed_s=elapsed_s,
    )
    return Result(cell, outcome)


def configs(
    attempts: int, strategies: tuple[str, ...] = STRATEGIES, **changes: Any
) -> dict[str, RunConfig]:
    """The configuration of each strategy."""
    values: dict[str, Any] = {
        "language": "triton",
        "executor": "local",
        "budget": Budget(attempts=attempts),
        "seed": 1,
    }
    return {
        name: RunConfig(
            strategy=strategy(name),
            models={
                role: RoleModel(model="exec:scripted") for role in team_of(strategy(name)).roles
            },
            **values | changes,
        )
        for name in strategies
    }


def new_bench(
    store: Store,
    attempts: int = 6,
    seeds: int = 1,
    name: str | None = None,
    budget: Budget | None = None,
    strategies: tuple[str, ...] = STRATEGIES,
    problems: Sequence[Path] = PROBLEMS,
    **changes: Any,
) -> Bench:
    """A bench over three examples in this store, whether it is there already or not.

    `changes` are those of its runs' configuration.
    """
    suite, configured = folders(list(problems)), configs(attempts, strategies, **changes)
    bench, runs = lay_out(suite, range(1, seeds + 1), configured, name)
    return enter(store, bench.model_copy(update={"budget": budget or bench.budget}), runs)


OTHER = DEVICE.model_copy(update={"name": "Other GPU"})


def two_kinds(delay_s: float = 0.0) -> FakeExecutor:
    """A judge, and one on another kind of machine, where every kernel is three times as fast as eager mode."""
    other = FakeExecutor(lambda _: correct(EAGER_MS / 3), device=OTHER, delay_s=delay_s)
    return FakeExecutor(delay_s=delay_s, others=(other,))


def on_two_kinds(store: Store, attempts: int = 6, **changes: Any) -> Bench:
    """A bench for `two_kinds`."""
    kinds: dict[str, Any] = {"device_class": "Invented", "other_classes": ("Other",)}
    return new_bench(store, attempts, **kinds, **changes)


def killed_bench(store: Store) -> Bench:
    """The bench of `bench_worker.py`."""
    return on_two_kinds(store, 3, name="killed", problems=[EXAMPLES])


def pool_of(model: Any, slots: int | None = None) -> ModelPool:
    """One model for every role."""
    return ModelPool(slots, lambda *_: model)


def scripted(dollars: float | None = 0.25) -> tuple[ModelPool, ScriptedModel]:
    model = ScriptedModel(team_reply, dollars=dollars)
    return pool_of(model), model


async def work(
    store: Store,
    bench: Bench,
    parallel: int = 3,
    executor: Executor | None = None,
    models: ModelPool | None = None,
    notes: Notes | None = None,
) -> Ended | None:
    session = BenchSession(
        bench,
        store,
        executor or FakeExecutor(),
        models or scripted()[0],
        (notes or Notes()).handle,
        parallel,
    )
    return await session.work()


class Notes:
    """What the events of a bench say."""

    progress: Progress

    def __init__(self) -> None:
        self.most_in_flight = self.ended = 0
        self.reasons: dict[str, str] = {}
        self._in_flight: set[str] = set()

    def handle(self, event: BenchEvent) -> None:
        match event:
            case Opened(_, ended, progress):
                self.ended, self.progress = ended, progress
            case InRun(cell, Started()):
                self._in_flight.add(cell.run_id)
                self.most_in_flight = max(self.most_in_flight, len(self._in_flight))
            case InRun(cell, AttemptFinished(node)):
                self.finished(cell, node.id)
            case Left(cell, reason, ended):
                self._in_flight.discard(cell.run_id)
                self.reasons[cell.run_id] = reason
                self.ended += ended

    def finished(self, cell: Cell, attempt: int) -> None:
        pass


def timeless(report: Report) -> dict[str, Any]:
    """A report without times, durations and the bill."""
    document = report_document(report).model_dump(mode="json")
    document["bench"].pop("created")
    for one in document["summaries"]:
        for name in ("active_hours", "roles"):
            one.pop(name)
    for run in document["runs"]:
        for name in ("active_s", "calls", "tokens", "dollars"):
            run.pop(name)
    return document


def bill(store: Store) -> dict[str, list[tuple[str, Cost]]]:
    """The cost of each answered call, by run."""
    return {
        summary.id: sorted(
            ((call.role, call.spent.cost) for call in store.calls(summary.id)), key=str
        )
        for summary in store.summaries()
    }


def report_of(store: Store, name: str = "last") -> dict[str, Any]:
    return timeless(make_report(store, store.bench(name)))
