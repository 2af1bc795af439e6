"""The outcome of a run, kept small to compare many runs: only the best attempt's evaluation, no prompts, no replies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from sqlalchemy import ColumnElement, Connection, func, select

from stark.core.evaluation import Correct, Evaluation, evaluation_adapter
from stark.core.measurement import Speedup
from stark.core.reference import Reference
from stark.core.run import Ended
from stark.core.standing import standing
from stark.core.usage import Spent
from stark.store.calls import read_spent, read_tokens
from stark.store.schema import AttemptRow, CallRow, ElsewhereRow, NodeRow, PromotionRow, RunRow


class Attempted(NamedTuple):
    """A finished attempt in short."""

    id: int
    parent: int
    action: str
    status: str
    speedup: Speedup | None
    """Against eager; None unless the attempt is correct."""

    duplicate_of: int | None = None
    """The earlier attempt with the same source, whose evaluation this attempt shares; None if the source is new."""

    latency_ms: float | None = None

    @property
    def counts(self) -> bool:
        """Whether it counts as an attempt. Tuning costs none."""
        return self.action != "tune"

    @property
    def works(self) -> bool:
        """Whether the candidate is correct."""
        return self.status == "correct"


class Check(NamedTuple):
    """What a final check measured. Both values are None unless the candidate passed."""

    latency_ms: float | None = None
    speedup: Speedup | None = None


class CheckedOn(NamedTuple):
    """The final check of an attempt on one kind of machine. Only a correct one has times and speedups."""

    status: str
    latency_ms: float | None = None
    references_ms: Mapping[str, float] = MappingProxyType({})
    """The references' times, measured there beside the candidate."""

    speedups: Mapping[str, Speedup] = MappingProxyType({})
    """By reference."""

    @classmethod
    def of(cls, found: Evaluation) -> Self:
        """What an evaluation says in short."""
        if not isinstance(found, Correct):
            return cls(found.status)
        return cls(
            found.status,
            found.latency_ms,
            {name: found.reference_ms(name) for name in found.references},
            {name: found.speedup_vs(name) for name in found.references},
        )


class Outcome(NamedTuple):
    """The current state of a run, counting only its attempts from 1 to a given number."""

    version: str
    """The version of STARK that created the run."""

    ended: Ended | None
    attempts: tuple[Attempted, ...]
    """In the order in which they finished."""

    checks: dict[int, Speedup | None]
    """Speedups against eager in the final check, by attempt; None for an attempt that failed the check."""

    best_attempt: int | None
    """The fastest attempt by the rules of `core.standing`; None if these rules rank no attempt."""

    best: Correct | None
    """The best attempt's evaluation: from the final check if `confirmed`, otherwise from the search."""

    roles: dict[str, Spent]
    """What the calls of the counted attempts cost, by role. Attempts in flight are included."""

    elapsed_s: float
    """Active time of the run when the last counted attempt finished."""

    tokens: Mapping[int, int] = MappingProxyType({})
    """Input and output tokens of the answered calls, by attempt."""

    classes: Mapping[str, Mapping[int, CheckedOn]] = MappingProxyType({})
    """The final checks by kind of machine and attempt, those of the run's own kind first. Empty for a run on one kind."""

    taught_by: tuple[str, ...] = ()
    """The earlier runs whose lessons the prompts had."""

    @property
    def made(self) -> tuple[Attempted, ...]:
        """The attempts that count, which are all but those that tuning found."""
        return tuple(one for one in self.attempts if one.counts)

    @property
    def confirmed(self) -> bool:
        """Whether the final check decides; if so, `best_attempt` is one that passed it."""
        return bool(self.checks) and (self.best_attempt is None or self.best_attempt in self.checks)

    @property
    def spent(self) -> Spent:
        """The cost of all roles together."""
        return sum(self.roles.values(), Spent())


def read_outcome(connection: Connection, run_id: str, attempts: int) -> Outcome:
    """The outcome of a run's first `attempts` attempts, and of what tuning found of them until the next one."""
    counting = (AttemptRow.run_id == run_id, AttemptRow.action != "tune")
    numbers = select(AttemptRow.attempt).where(*counting).order_by(AttemptRow.attempt)
    after = connection.scalar(numbers.offset(attempts).limit(1))

    def counted(table: type[NodeRow | PromotionRow | CallRow]) -> tuple[ColumnElement[bool], ...]:
        every = table.run_id == run_id
        return (every,) if after is None else (every, table.attempt < after)

    run = connection.execute(select(RunRow.body, RunRow.ended).where(RunRow.id == run_id)).one()
    finished = read_attempts(connection, *counted(NodeRow))[run_id]
    measured = read_checks(connection, *counted(PromotionRow))[run_id]
    checks = {attempt: check.speedup for attempt, check in measured.items()}
    best_attempt = best_of(finished, checks)
    best: Correct | None = None
    if best_attempt is not None:
        table = PromotionRow if best_attempt in checks else NodeRow
        query = select(table.evaluation).where(
            table.run_id == run_id, table.attempt == best_attempt
        )
        best = Correct.model_validate(connection.scalars(query).one())
    elapsed_s = select(func.max(NodeRow.elapsed_s)).where(*counted(NodeRow))
    return Outcome(
        version=run.body["version"],
        ended=run.ended and Ended.model_validate(run.ended),
        attempts=tuple(finished),
        checks=checks,
        best_attempt=best_attempt,
        best=best,
        roles=read_spent(connection, *counted(CallRow)).get(run_id, {}),
        elapsed_s=connection.scalar(elapsed_s) or 0.0,
        tokens=read_tokens(connection, *counted(CallRow)),
        classes=_read_classes(connection, run_id, after),
        taught_by=tuple(each["run"] for each in run.body["config"].get("lessons") or ()),
    )


def _read_classes(
    connection: Connection, run_id: str, after: int | None
) -> dict[str, dict[int, CheckedOn]]:
    """See `Outcome.classes`. Of the attempts before `after`, if there is one."""
    columns = RunRow.reference, RunRow.elsewhere
    own, others = connection.execute(select(*columns).where(RunRow.id == run_id)).one()
    if not others:
        return {}
    found: dict[str, dict[int, CheckedOn]] = {}
    tables: list[tuple[str, type[PromotionRow | ElsewhereRow], tuple[ColumnElement[bool], ...]]]
    tables = [(Reference.model_validate(own).device_class, PromotionRow, ())]
    tables += [(kind, ElsewhereRow, (ElsewhereRow.device_class == kind,)) for kind in others]
    for kind, table, which in tables:
        query = select(table.attempt, table.evaluation).where(table.run_id == run_id, *which)
        if after is not None:
            query = query.where(table.attempt < after)
        found[kind] = {
            attempt: CheckedOn.of(evaluation_adapter.validate_python(evaluation))
            for attempt, evaluation in connection.execute(query.order_by(table.attempt))
        }
    return found


def best_of(attempts: Iterable[Attempted], checks: Mapping[int, Speedup | None]) -> int | None:
    """The best attempt, as in `Outcome.best_attempt`."""
    own = {one.id: one.speedup for one in attempts if one.duplicate_of is None}
    return standing(own, checks).best


def best_speedup(
    attempts: Iterable[Attempted], checks: Mapping[int, Speedup | None]
) -> Speedup | None:
    """The speedup of the best attempt where it counts: in the final check, or else in the search."""
    by_id = {one.id: one for one in attempts}
    best = best_of(by_id.values(), checks)
    return None if best is None else checks.get(best, by_id[best].speedup)


def read_attempts(
    connection: Connection, *which: ColumnElement[bool]
) -> defaultdict[str, list[Attempted]]:
    """The finished attempts that meet these conditions, by run, in the order in which they finished."""
    query = (
        select(
            NodeRow.run_id,
            NodeRow.attempt,
            AttemptRow.parent,
            AttemptRow.action,
            NodeRow.status,
            NodeRow.speedup,
            NodeRow.duplicate_of,
            NodeRow.latency_ms,
        )
        .join_from(NodeRow, AttemptRow)
        .where(*which)
        .order_by(NodeRow.position)
    )
    found: defaultdict[str, list[Attempted]] = defaultdict(list)
    for run_id, id, parent, action, status, speedup, *rest in connection.execute(query):
        attempted = Attempted(id, parent, action, status, _read_speedup(speedup), *rest)
        found[run_id].append(attempted)
    return found


def read_checks(
    connection: Connection, *which: ColumnElement[bool]
) -> defaultdict[str, dict[int, Check]]:
    """The final checks that meet these conditions, by run and attempt."""
    columns = (
        PromotionRow.run_id,
        PromotionRow.attempt,
        PromotionRow.latency_ms,
        PromotionRow.speedup,
    )
    found: defaultdict[str, dict[int, Check]] = defaultdict(dict)
    for run_id, attempt, latency_ms, speedup in connection.execute(select(*columns).where(*which)):
        found[run_id][attempt] = Check(latency_ms, _read_speedup(speedup))
    return found


def _read_speedup(stored: dict[str, Any] | None) -> Speedup | None:
    return Speedup.model_validate(stored) if stored else None
