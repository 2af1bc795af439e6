"""The store of runs: their attempts, model calls, evaluations and costs.

Every write is one transaction: a write that is interrupted stores nothing. Once a method has returned, `kill -9` does
not undo its writes; for writes within `retried`, this holds once `retried` has returned. Rows are never removed.
Only these values change: a run's configuration, references, active time and end; a model call's outcome, with its reply
and cost; and a bench's budget. The store does not depend on the search, which rebuilds its tree from `nodes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, ParamSpec, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, LargeBinary, delete, func, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import InstrumentedAttribute

from stark.core.bench import Bench
from stark.core.call import Call, Lost
from stark.core.elsewhere import Elsewhere
from stark.core.errors import StoreError
from stark.core.evaluation import Evaluation, evaluation_adapter
from stark.core.node import Node, Selection
from stark.core.reference import Reference
from stark.core.run import Ended, Run
from stark.core.usage import Cost
from stark.store import codec
from stark.store.calls import Roles, read_calls, read_spent
from stark.store.database import Database, exists
from stark.store.names import resolve
from stark.store.outcome import Outcome, read_outcome
from stark.store.progress import Progress, read_progress, read_steps
from stark.store.schema import (
    ArtifactRow,
    AttemptRow,
    BenchRow,
    CallRow,
    ElsewhereRow,
    MessageRow,
    NodeRow,
    PromotionRow,
    RunRow,
    encode,
)
from stark.store.summary import RunSummary, read_summaries

P = ParamSpec("P")
T = TypeVar("T")


class Store:
    """Runs in one database. Methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, create: bool = True) -> Store:
        """The store at a SQLAlchemy URL, such as `sqlite:///path/to/stark.db`.

        A store that does not exist is created or, if `create` is false, replaced by an empty one in memory, so that
        reading leaves no file behind. Raises StoreError if the store cannot be opened or has another version's
        schema.
        """
        return cls(Database(url if create or exists(url) else "sqlite://"))

    @classmethod
    def open_existing(cls, url: str, busy_s: float) -> Store | None:
        """The store at a URL, to be read; None if there is none. It is never created.

        A read that has to wait for another process for longer than `busy_s` fails. Raises StoreError as `open` does.
        """
        return cls(Database(url, writes=False, busy_s=busy_s)) if exists(url) else None

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    async def retried(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work`, which reads or writes this store, and wait until its writes are on disk.

        If the connection to the database's server is lost, waits for the server and calls `work` again, unless its
        writes turn out to be stored. So `work` must change nothing but the store. It must not await anything, and all
        callers must share an event loop. Concurrent writes share a commit. Raises StoreError if the server stays away.
        """
        return await self._database.retried(work, *args, **kwargs)

    def on_wait(self, say: Callable[[str], None]) -> None:
        """Have `say` called when `retried` begins to wait for a server, and with an empty text when it goes on."""
        self._database.retrying.on_wait = say

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs

    def create_run(self, run: Run) -> None:
        """Store a new run. Raises StoreError if its id is taken."""
        with self._writing(f"storing run {run.id}", run.id) as connection:
            _insert_run(connection, run)

    def run(self, run_id: str) -> Run:
        """The run whose id is `run_id`, or the only run whose id begins with `run_id`; `last` is the newest run.

        Raises UsageError if no run or more than one matches; the message says which runs could be meant.
        """
        query = select(RunRow.body, ArtifactRow.text).join_from(RunRow, ArtifactRow)
        with self._database.reading("reading a run") as connection:
            ids = connection.scalars(select(RunRow.id).order_by(RunRow.number)).all()
            found = resolve(run_id, list(ids), "run")
            body, source = connection.execute(query.where(RunRow.id == found)).one()
        return codec.read_run(body, source)

    def holds(self, run_id: str) -> bool:
        """Whether there is a run with this exact id."""
        return self._of_run(run_id, RunRow.id) is not None

    def summaries(self) -> list[RunSummary]:
        """Every run in short, the newest first."""
        with self._database.reading("reading the runs") as connection:
            return read_summaries(connection)

    def stamp(self) -> object | None:
        """A value that changes with every commit of another connection; it costs microseconds. None if it is unknown."""
        return self._database.stamp()

    def progress(self) -> dict[str, Progress]:
        """How far every run has come, in the order of creation."""
        with self._database.reading("reading the progress of the runs") as connection:
            return read_progress(connection)

    def set_reference(
        self, run_id: str, reference: Reference, elsewhere: Mapping[str, Reference] | None = None
    ) -> None:
        """Store the judge's description of the problem's reference, replacing an earlier one.

        `elsewhere` has those of other kinds of machines, by kind.
        """
        others = {kind: each.model_dump(mode="json") for kind, each in (elsewhere or {}).items()}
        own = reference.model_dump(mode="json")
        self._change_run(run_id, reference=own, elsewhere=others or None)

    def reference(self, run_id: str) -> Reference | None:
        """The judge's description of the problem's reference; None if there is none yet."""
        found = self._of_run(run_id, RunRow.reference)
        return Reference.model_validate(found) if found else None

    def reconfigure(self, run: Run) -> None:
        """Store the run's changed configuration. If the executor changed, the stored references are dropped, to be
        measured again.
        """
        values: dict[str, Any] = {"body": codec.run_body(run)}
        if run.config.executor != self.run(run.id).config.executor:
            values |= {"reference": None, "elsewhere": None}
        self._change_run(run.id, **values)

    def end_run(self, run_id: str, ended: Ended) -> None:
        """Store that the run has ended, and why."""
        self._change_run(run_id, ended=ended.model_dump())

    def reopen_run(self, run_id: str) -> None:
        """Mark the run as not ended, and its calls in flight as lost, since the process that made them was killed."""
        self._change_run(run_id, ended=None)
        self.lose_calls(run_id)

    def lose_calls(self, run_id: str) -> None:
        """Mark the run's calls in flight as lost. The caller must hold the run's lock (`exclusive`)."""
        in_flight = update(CallRow).where(CallRow.run_id == run_id, CallRow.outcome.is_(None))
        with self._writing(f"settling the calls of run {run_id}", run_id) as connection:
            connection.execute(in_flight.values(outcome="lost"))

    def in_flight(self) -> set[str]:
        """The ids of the runs with calls in flight, including calls that a killed process left in flight."""
        query = select(CallRow.run_id).where(CallRow.outcome.is_(None)).distinct()
        with self._database.reading("reading the calls in flight") as connection:
            return set(connection.scalars(query))

    def ended(self, run_id: str) -> Ended | None:
        """Why the run ended; None while it goes on or waits to be resumed."""
        found = self._of_run(run_id, RunRow.ended)
        return Ended.model_validate(found) if found else None

    def note_elapsed(self, run_id: str, elapsed_s: float) -> None:
        """Store the total active time of the run so far."""
        self._change_run(run_id, elapsed_s=elapsed_s)

    def elapsed_s(self, run_id: str) -> float:
        """The total active time of the run, as last stored."""
        return self._of_run(run_id, RunRow.elapsed_s) or 0.0

    def exclusive(self, run_id: str) -> AbstractContextManager[None]:
        """Hold the run's lock, until the block or this process ends.

        Entering the block raises Held if another process holds the lock. On PostgreSQL the lock is a lease, which ends
        when its holder stands still for LEASE_S. If another process has taken the run over meanwhile, the writes of the
        former holder raise Held, too.
        """
        return self._database.lock(f"run {run_id}")

    def worked_on(self, run_id: str) -> bool:
        """Whether a process works on the run, or it cannot be known."""
        return self._database.is_locked(f"run {run_id}")

    # Benches

    def create_bench(self, bench: Bench, runs: Iterable[Run]) -> None:
        """Store a new bench and those of its runs that are not stored yet. Raises StoreError if the name is taken."""
        with self._database.writing(f"storing bench {bench.name}") as connection:
            there = set(connection.scalars(select(RunRow.id)))
            for run in runs:
                if run.id not in there:
                    _insert_run(connection, run)
            row = {"name": bench.name, "body": bench.model_dump(mode="json")}
            connection.execute(insert(BenchRow), row)

    def benches(self) -> list[str]:
        """The names of all benches, the oldest first."""
        with self._database.reading("reading the benches") as connection:
            return list(connection.scalars(select(BenchRow.name).order_by(BenchRow.number)))

    def bench(self, name: str) -> Bench:
        """The bench called `name`, or the only bench whose name begins with `name`; `last` is the newest bench.

        Raises UsageError if no bench or more than one matches; the message says which benches could be meant.
        """
        found = resolve(name, self.benches(), "bench")
        query = select(BenchRow.body).where(BenchRow.name == found)
        with self._database.reading("reading a bench") as connection:
            return Bench.model_validate(connection.scalars(query).one())

    def change_bench(self, bench: Bench) -> None:
        """Store the bench with its changed budget."""
        stored = update(BenchRow).where(BenchRow.name == bench.name)
        with self._database.writing(f"changing bench {bench.name}") as connection:
            connection.execute(stored.values(body=bench.model_dump(mode="json")))

    def outcome(self, run_id: str, attempts: int) -> Outcome:
        """The outcome of the first `attempts` attempts of the run with this exact id."""
        with self._database.reading(f"reading run {run_id}") as connection:
            return read_outcome(connection, run_id, attempts)

    # Attempts

    def begin_attempt(self, run_id: str, attempt: int, selection: Selection) -> None:
        """Store that an attempt begins, with its selection, before its first model call."""
        row = {"run_id": run_id, "attempt": attempt, **selection.model_dump()}
        with self._writing(f"storing attempt {attempt} of run {run_id}", run_id) as connection:
            connection.execute(insert(AttemptRow), row)

    def selections(self, run_id: str) -> dict[int, Selection]:
        """The selection of every attempt that has begun, by attempt."""
        return self._selections(AttemptRow.run_id == run_id)

    def attempts(self, run_id: str) -> int:
        """How many attempts have begun, of those that count towards the budget."""
        return sum(selection.counts for selection in self.selections(run_id).values())

    def begun(self) -> set[str]:
        """The ids of the runs in which at least one attempt has begun."""
        with self._database.reading("reading the runs") as connection:
            return set(connection.scalars(select(AttemptRow.run_id).distinct()))

    def unfinished(self, run_id: str) -> dict[int, Selection]:
        """The selections of attempts that have begun but not finished. A resumed run continues these attempts first."""
        finished = select(NodeRow.attempt).where(NodeRow.run_id == run_id)
        return self._selections(AttemptRow.run_id == run_id, AttemptRow.attempt.not_in(finished))

    def steps(self, run_id: str) -> dict[int, str]:
        """The step of every unfinished attempt: a role whose call is in flight, `waiting` or `judge`."""
        with self._database.reading(f"reading the attempts of run {run_id}") as connection:
            return read_steps(connection, run_id)

    # Calls

    def begin_call(self, run_id: str, attempt: int, role: str, model: str, reserved: Cost) -> int:
        """Store a model call that is about to be sent, with the cost reserved for it. Returns the call's number."""
        values = {
            "run_id": run_id,
            "attempt": attempt,
            "role": role,
            "model": model,
            **Lost(role=role, model=model, reserved=reserved).spent.model_dump(),
        }
        query = insert(CallRow).returning(CallRow.number)
        with self._writing(f"storing a model call of run {run_id}", run_id) as connection:
            return connection.scalars(query, values).one()

    def settle_call(self, run_id: str, asked: int, outcome: Literal["refused", "lost"]) -> None:
        """Store that a call got no reply. A `refused` call costs nothing, a `lost` call the amount reserved for it."""
        question = update(CallRow).where(CallRow.number == asked)
        doing = f"storing the outcome of a model call of run {run_id}"
        with self._writing(doing, run_id) as connection:
            connection.execute(question.values(outcome=outcome))

    def add_call(self, run_id: str, call: Call, asked: int, elapsed_s: float) -> None:
        """Store the reply to the call with number `asked`, and the run's total active time so far.

        Raises StoreError if the attempt has a call with this turn already.
        """
        doing = f"storing turn {call.turn} of attempt {call.attempt} of run {run_id}"
        question = update(CallRow).where(CallRow.number == asked)
        with self._writing(doing, run_id) as connection:
            reply, *texts = _keep(
                connection, call.reply.text, *(message.text for message in call.messages)
            )
            connection.execute(question.values(reply=reply, **codec.call_values(call)))
            messages = [
                {"call": asked, "position": position, "speaker": message.speaker, "text": text}
                for position, (message, text) in enumerate(zip(call.messages, texts, strict=True))
            ]
            if messages:
                connection.execute(insert(MessageRow), messages)
            _note_elapsed(connection, run_id, elapsed_s)

    def lost_calls(self, run_id: str) -> list[Lost]:
        """The calls whose reply never arrived, because the process was killed or the call was cancelled."""
        query = (
            select(CallRow.role, CallRow.model, CallRow.input_tokens, CallRow.dollars)
            .where(CallRow.run_id == run_id, CallRow.outcome == "lost")
            .order_by(CallRow.number)
        )
        with self._database.reading(f"reading the calls of run {run_id}") as connection:
            return [
                Lost(role=role, model=model, reserved=Cost(tokens=tokens, dollars=dollars))
                for role, model, tokens, dollars in connection.execute(query)
            ]

    def unanswered(self, run_id: str) -> dict[str, int]:
        """The number of the run's calls that are in flight (`in_flight`) or failed without a reply (`refused`)."""
        outcome = func.coalesce(CallRow.outcome, "in_flight")
        query = (
            select(outcome, func.count())
            .where(CallRow.run_id == run_id, outcome.in_(["in_flight", "refused"]))
            .group_by(outcome)
        )
        with self._database.reading(f"reading the calls of run {run_id}") as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def calls(self, run_id: str, attempt: int | None = None) -> list[Call]:
        """The answered calls of a run, or of one of its attempts, ordered by attempt and turn."""
        of_attempt = () if attempt is None else (CallRow.attempt == attempt,)
        with self._database.reading(f"reading the calls of run {run_id}") as connection:
            return read_calls(connection, CallRow.run_id == run_id, *of_attempt)

    def first_words(self, run_id: str, attempts: Collection[int]) -> dict[int, str]:
        """The beginning of the last reply of each of these attempts."""
        words = func.substr(ArtifactRow.text, 1, 600, type_=LargeBinary)
        query = (
            select(CallRow.attempt, words)
            .join(ArtifactRow, CallRow.reply == ArtifactRow.digest)
            .where(CallRow.run_id == run_id, CallRow.attempt.in_(attempts))
            .order_by(CallRow.turn)
        )
        with self._database.reading(f"reading the replies of run {run_id}") as connection:
            return {
                attempt: bytes(found).decode("utf-8", "ignore")
                for attempt, found in connection.execute(query)
            }

    def spent(self, run_id: str | None = None) -> dict[str, Roles]:
        """What the model calls cost, by run and role, in all runs or in one. Runs without calls are left out."""
        which = () if run_id is None else (CallRow.run_id == run_id,)
        with self._database.reading("reading what the runs cost") as connection:
            return read_spent(connection, *which)

    # Nodes

    def add_node(self, run_id: str, node: Node, elapsed_s: float) -> None:
        """Store a finished attempt; `elapsed_s` is the run's total active time so far.

        Raises StoreError if the attempt is stored already, was not begun, or was begun with another selection.
        """
        doing = f"storing the node of attempt {node.id} of run {run_id}"
        begun = select(AttemptRow.parent, AttemptRow.action).where(
            AttemptRow.run_id == run_id, AttemptRow.attempt == node.id
        )
        with self._writing(doing, run_id) as connection:
            if connection.execute(begun).one_or_none() != (node.parent, node.action):
                raise StoreError(
                    f"{doing} failed: the store has no attempt {node.id} that was begun as "
                    f"`{node.action}` of attempt {node.parent}"
                )
            source = None
            if node.candidate is not None:
                (source,) = _keep(connection, node.candidate.source)
            own = {"run_id": run_id, "source": source, "elapsed_s": elapsed_s}
            connection.execute(insert(NodeRow), own | codec.node_values(node))
            _note_elapsed(connection, run_id, elapsed_s)

    def replace_evaluation(self, run_id: str, attempt: int, evaluation: Evaluation) -> None:
        """Store another evaluation of a finished attempt in place of its own. Raises StoreError if there is no such attempt."""
        which = NodeRow.run_id == run_id, NodeRow.attempt == attempt
        doing = f"replacing the evaluation of attempt {attempt} of run {run_id}"
        with self._writing(doing, run_id) as connection:
            values = codec.evaluation_values(evaluation)
            changed = connection.execute(update(NodeRow).where(*which).values(**values))
            if changed.rowcount == 0:
                raise StoreError(f"{doing} failed: the store has no such attempt")

    def nodes(self, run_id: str) -> list[Node]:
        """The finished attempts, in the order in which they finished."""
        return list(self.each_node(run_id))

    def each_node(self, run_id: str, among: Collection[int] | None = None) -> Iterator[Node]:
        """As `nodes`, one by one, so that not all need to fit into memory; of all attempts, or only those `among` these."""
        which = () if among is None else (NodeRow.attempt.in_(among),)
        query = (
            select(NodeRow.body, NodeRow.evaluation, ArtifactRow.text)
            .outerjoin_from(NodeRow, ArtifactRow)
            .where(NodeRow.run_id == run_id, *which)
            .order_by(NodeRow.position)
        )
        with self._database.reading(f"reading the nodes of run {run_id}") as connection:
            rows = connection.execute(query, execution_options={"yield_per": 20})
            yield from (codec.read_node(*row) for row in rows)

    def node(self, run_id: str, attempt: int) -> Node | None:
        """One finished attempt; None if there is none with this number."""
        query = (
            select(NodeRow.body, NodeRow.evaluation, ArtifactRow.text)
            .outerjoin_from(NodeRow, ArtifactRow)
            .where(NodeRow.run_id == run_id, NodeRow.attempt == attempt)
        )
        with self._database.reading(f"reading attempt {attempt} of run {run_id}") as connection:
            row = connection.execute(query).one_or_none()
            return None if row is None else codec.read_node(*row)

    def children(self, run_id: str, attempt: int) -> list[int]:
        """The finished attempts that started from this one, in the order in which they finished."""
        query = (
            select(NodeRow.attempt)
            .join_from(NodeRow, AttemptRow)
            .where(AttemptRow.run_id == run_id, AttemptRow.parent == attempt)
            .order_by(NodeRow.position)
        )
        with self._database.reading(f"reading the attempts of run {run_id}") as connection:
            return list(connection.scalars(query))

    def finished_s(self, run_id: str) -> dict[int, float]:
        """The run's active time when each attempt finished, by attempt, in that order."""
        columns = (NodeRow.attempt, NodeRow.elapsed_s)
        query = select(*columns).where(NodeRow.run_id == run_id).order_by(NodeRow.position)
        with self._database.reading(f"reading the nodes of run {run_id}") as connection:
            return {row.attempt: row.elapsed_s for row in connection.execute(query)}

    # Final checks

    def add_promotion(
        self, run_id: str, attempt: int, evaluation: Evaluation, *, anew: bool = False
    ) -> None:
        """Store the final check's evaluation of a finished attempt, with `anew` in place of an earlier one.

        Raises StoreError if the attempt has one otherwise.
        """
        row = {"run_id": run_id, "attempt": attempt, **codec.evaluation_values(evaluation)}
        doing = f"storing the final check of attempt {attempt} of run {run_id}"
        which = PromotionRow.run_id == run_id, PromotionRow.attempt == attempt
        with self._writing(doing, run_id) as connection:
            if anew:
                connection.execute(delete(PromotionRow).where(*which))
            connection.execute(insert(PromotionRow), row)

    def promotion(self, run_id: str, attempt: int) -> Evaluation | None:
        """The final check of one attempt; None if there was none."""
        which = PromotionRow.run_id == run_id, PromotionRow.attempt == attempt
        with self._database.reading(f"reading a final check of run {run_id}") as connection:
            found = connection.scalar(select(PromotionRow.evaluation).where(*which))
        return None if found is None else evaluation_adapter.validate_python(found)

    def promotions(self, run_id: str) -> dict[int, Evaluation]:
        """The final check's evaluations, by attempt."""
        columns = (PromotionRow.attempt, PromotionRow.evaluation)
        query = select(*columns).where(PromotionRow.run_id == run_id)
        with self._database.reading(f"reading the final checks of run {run_id}") as connection:
            return {
                attempt: evaluation_adapter.validate_python(found)
                for attempt, found in connection.execute(query)
            }

    def add_elsewhere(
        self, run_id: str, attempt: int, device_class: str, evaluation: Evaluation
    ) -> None:
        """Store the final check of a finished attempt on another kind of machine. Raises StoreError if it has one there."""
        which = {"run_id": run_id, "attempt": attempt, "device_class": device_class}
        doing = f"storing the final check of attempt {attempt} of run {run_id} on {device_class}"
        with self._writing(doing, run_id) as connection:
            connection.execute(insert(ElsewhereRow), which | codec.evaluation_values(evaluation))

    def elsewhere(self, run_id: str) -> dict[str, Elsewhere]:
        """The run's references and final checks on other kinds of machines, by kind."""
        references = self._of_run(run_id, RunRow.elsewhere) or {}
        columns = ElsewhereRow.device_class, ElsewhereRow.attempt, ElsewhereRow.evaluation
        query = select(*columns).where(ElsewhereRow.run_id == run_id)
        checks: dict[str, dict[int, Any]] = {kind: {} for kind in references}
        with self._database.reading(f"reading the final checks of run {run_id}") as connection:
            for kind, attempt, found in connection.execute(query.order_by(ElsewhereRow.attempt)):
                checks.setdefault(kind, {})[attempt] = found
        return {
            kind: Elsewhere.model_validate({"reference": reference, "checks": checks[kind]})
            for kind, reference in references.items()
        }

    def _writing(self, doing: str, run_id: str) -> AbstractContextManager[Connection]:
        """A transaction on a run, whose lock no other process must have taken over."""
        return self._database.writing(doing, f"run {run_id}")

    def _change_run(self, run_id: str, **values: Any) -> None:
        with self._writing(f"changing run {run_id}", run_id) as connection:
            changed = connection.execute(update(RunRow).where(RunRow.id == run_id).values(**values))
            if changed.rowcount == 0:
                raise StoreError(f"there is no run {run_id}; `stark runs` lists all runs")

    def _of_run(self, run_id: str, column: InstrumentedAttribute[T]) -> T | None:
        """A run's value in this column; None if there is no run with this exact id."""
        with self._database.reading(f"reading run {run_id}") as connection:
            return connection.scalar(select(column).where(RunRow.id == run_id))

    def _selections(self, *which: ColumnElement[bool]) -> dict[int, Selection]:
        columns = (AttemptRow.attempt, AttemptRow.parent, AttemptRow.action)
        query = select(*columns).where(*which).order_by(AttemptRow.attempt)
        with self._database.reading("reading the attempts of a run") as connection:
            return {
                attempt: Selection.model_validate({"parent": parent, "action": action})
                for attempt, parent, action in connection.execute(query)
            }


def _insert_run(connection: Connection, run: Run) -> None:
    (source,) = _keep(connection, run.problem.source)
    row = {"id": run.id, "source": source, "elapsed_s": 0.0, "body": codec.run_body(run)}
    connection.execute(insert(RunRow), row)


def _note_elapsed(connection: Connection, run_id: str, elapsed_s: float) -> None:
    connection.execute(update(RunRow).where(RunRow.id == run_id).values(elapsed_s=elapsed_s))


def _keep(connection: Connection, *texts: str) -> list[str]:
    """Store the texts that are new, each once; returns the digests of all, in the given order."""
    digests = [hashlib.sha256(encode(text)).hexdigest() for text in texts]
    insert_into: Any = sqlite.insert
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # 2 MB that only this dialect needs

        insert_into = postgresql.insert
    # Every writer uses the same order, so two writers of the same texts cannot deadlock.
    connection.execute(
        insert_into(ArtifactRow).on_conflict_do_nothing(),
        [{"digest": name, "text": text} for name, text in sorted(zip(digests, texts, strict=True))],
    )
    return digests
