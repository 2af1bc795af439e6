"""Results by hand, and a bench over the examples with scripted replies and an invented judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loop_samples
from stark.bench.account import Account
from stark.bench.document import report_document
from stark.bench.grid import Terms, enter, lay_out
from stark.bench.report import Report, make_report
from stark.bench.results import Result
from stark.bench.running import BenchSession
from stark.bench.shared import ModelDoor
from stark.bench.suite import folders
from stark.core.bench import Bench, Cell
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import Node
from stark.core.run import RoleModel
from stark.core.standing import standing
from stark.core.usage import Budget, RoleUsage, Usage
from stark.evaluator.executors import Executor
from stark.search.tree import Tree
from stark.store import Attempted, Outcome, Store
from stark.strategies import strategy, team_of
from stark.testing.executor import FakeExecutor
from stark.testing.model import ScriptedModel
from stark.testing.nodes import EAGER_MS, correct, measurement

EXAMPLES = Path(__file__).parents[2] / "examples"
STRATEGIES = ("stark", "sampling", "search-only")


def kernel(speedup: float, **others: float) -> Correct:
    """A correct evaluation with these speedups against eager and other references."""
    latency_ms = EAGER_MS / speedup
    references = {"eager": EAGER_MS} | {
        name.replace("_", "-"): latency_ms * value for name, value in others.items()
    }
    measured = {name: measurement(value) for name, value in references.items()}
    return correct(latency_ms).model_copy(update={"references": measured})


def attempt(
    id: int,
    speedup: float | None = None,
    parent: int = 0,
    action: str = "improve",
    status: str = "",
) -> Attempted:
    """A finished attempt; without a speedup it failed."""
    status = status or ("incorrect" if speedup is None else "correct")
    return Attempted(id, parent, action, status, speedup, speedup)


def result(
    problem: str,
    best: Correct | None,
    attempts: tuple[Attempted, ...] = (),
    *,
    strategy: str = "stark",
    seed: int = 1,
    level: str = "level1",
    usage: Usage | None = None,
    roles: tuple[RoleUsage, ...] = (),
    elapsed_s: float = 0.0,
    ended: str | None = "30 attempts made",
) -> Result:
    cell = Cell(
        problem=problem,
        level=level,
        strategy=strategy,
        seed=seed,
        run_id=f"{problem}-{strategy}-{seed}",
    )
    usage = usage or Usage()
    leader = standing({tried.id: tried.speedup for tried in attempts}, {}).best
    outcome = Outcome(
        "0.1.0",
        ended,
        attempts,
        best,
        None if best is None else leader,
        True,
        frozenset(),
        usage,
        usage.told,
        roles,
        elapsed_s,
    )
    return Result(cell, outcome)


def terms(attempts: int, **changes: Any) -> Terms:
    models = {
        name: {role: RoleModel(model="exec:scripted") for role in team_of(strategy(name)).roles}
        for name in STRATEGIES
    }
    values: dict[str, Any] = {
        "language": "triton",
        "models": models,
        "executor": "local",
        "budget": Budget(attempts=attempts),
    }
    return Terms(**values | changes)


def new_bench(store: Store, attempts: int = 6, seeds: int = 1, **changes: Any) -> Bench:
    """A bench over the eight examples in this store, whether it is there already or not."""
    bench, runs = lay_out(folders([EXAMPLES]), range(1, seeds + 1), terms(attempts), **changes)
    return enter(store, bench, runs)


def door(dollars: float | None = 0.25) -> tuple[ModelDoor, ScriptedModel]:
    model = ScriptedModel(loop_samples.team_reply, dollars=dollars)
    return ModelDoor(open_one=lambda _: model), model


async def work(
    store: Store,
    bench: Bench,
    parallel: int = 3,
    executor: Executor | None = None,
    models: ModelDoor | None = None,
    watch: Quiet | None = None,
) -> str | None:
    session = BenchSession(
        bench, store, executor or FakeExecutor(), models or door()[0], watch or Quiet(), parallel
    )
    return await session.work()


class Quiet:
    """A watch that counts what it sees."""

    def __init__(self) -> None:
        self.most_in_flight = 0
        self.account: Account | None = None
        self.reasons: dict[str, str] = {}
        self._in_flight: set[str] = set()

    def opened(self, bench: Bench, ended: int, account: Account) -> None:
        self.ended, self.account = ended, account

    def began(self, cell: Cell, tree: Tree) -> None:
        self._in_flight.add(cell.run_id)
        self.most_in_flight = max(self.most_in_flight, len(self._in_flight))

    def stepped(self, cell: Cell, attempt: int, step: str) -> None:
        pass

    def attempted(self, cell: Cell, node: Node) -> None:
        pass

    def checked(self, cell: Cell, node: Node, evaluation: Evaluation) -> None:
        pass

    def left(self, cell: Cell, reason: str, ended: bool) -> None:
        self._in_flight.discard(cell.run_id)
        self.reasons[cell.run_id] = reason
        self.ended += ended


def timeless(report: Report) -> dict[str, Any]:
    """A report without times and durations."""
    document = report_document(report)
    document["bench"].pop("created")
    for one in document["summaries"]:
        one.pop("active_hours")
    for run in document["runs"]:
        run.pop("active_s")
    return document


def report_of(store: Store, name: str = "last") -> dict[str, Any]:
    return timeless(make_report(store, store.bench(name)))
