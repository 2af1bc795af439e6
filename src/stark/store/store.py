"""The store of runs: what was begun, asked, answered, evaluated and spent.

Every method that stores something is one transaction: once it has returned, `kill -9` does not undo it (with
`grouped` writes, once `settled` has returned), and if it is interrupted, nothing of it is stored. Stored rows are never
removed; only a run's configuration, reference, active time and end change, the outcome of a question, and a bench's
budget. Knows no search: a tree is rebuilt from `nodes` in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Literal, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute

from stark.core.bench import Bench
from stark.core.call import Call, Lost
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
from stark.store.schema import (
    ArtifactRow,
    AttemptRow,
    BenchRow,
    CallRow,
    MessageRow,
    NodeRow,
    PromotionRow,
    RunRow,
    encode,
)
from stark.store.summary import RunSummary, read_summaries

T = TypeVar("T")


class Store:
    """Runs in one database. Methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, create: bool = True) -> Store:
        """The store at a SQLAlchemy URL, such as `sqlite:///path/to/stark.db`.

        One that does not exist is created; without `create`, an empty store in memory takes its place, so that reading
        leaves nothing behind. Raises StoreError for one that cannot be opened or that another version wrote.
        """
        return cls(Database(url if create or exists(url) else "sqlite://"))

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def grouped(self) -> AbstractContextManager[None]:
        """While the block lasts, writes of one event loop share commits: for work on many runs at once.

        What was written is then on disk after `settled`, and in any case when the loop has come
        round or the block has ended.
        """
        return self._database.grouped()

    async def settled(self) -> None:
        """Return when all that was written is on disk: at once, unless writes are `grouped`."""
        await self._database.settled()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs

    def create_run(self, run: Run) -> None:
        """Store a new run. Raises StoreError when its id is taken."""
        with self._database.writing(f"storing run {run.id}") as connection:
            _insert_run(connection, run)

    def run(self, run_id: str) -> Run:
        """The run of that id, of the only id that begins so, or the newest for `last`.

        Raises UsageError, naming what could be meant, when there is none or more than one.
        """
        query = select(RunRow.body, ArtifactRow.text).join_from(RunRow, ArtifactRow)
        with self._database.reading("reading a run") as connection:
            ids = connection.scalars(select(RunRow.id).order_by(RunRow.number)).all()
            found = resolve(run_id, list(ids), "run")
            body, source = connection.execute(query.where(RunRow.id == found)).one()
        return codec.read_run(body, source)

    def holds(self, run_id: str) -> bool:
        """Whether there is a run of this exact id."""
        return self._of_run(run_id, RunRow.id) is not None

    def summaries(self) -> list[RunSummary]:
        """Every run in short, the newest first."""
        with self._database.reading("reading the runs") as connection:
            return read_summaries(connection)

    def set_reference(self, run_id: str, reference: Reference) -> None:
        """Store what the judge found out about the run's problem, in place of what was there."""
        self._change_run(run_id, reference=reference.model_dump(mode="json"))

    def reference(self, run_id: str) -> Reference | None:
        """What the judge found out about the run's problem, if it was asked already."""
        found = self._of_run(run_id, RunRow.reference)
        return Reference.model_validate(found) if found else None

    def reconfigure(self, run: Run) -> None:
        """Store the run's changed configuration. With another executor, its reference will be measured anew."""
        values: dict[str, Any] = {"body": codec.run_body(run)}
        if run.config.executor != self.run(run.id).config.executor:
            values["reference"] = None
        self._change_run(run.id, **values)

    def end_run(self, run_id: str, ended: Ended) -> None:
        """Note that the run has ended, and why."""
        self._change_run(run_id, ended=ended.model_dump())

    def reopen_run(self, run_id: str) -> None:
        """Note that the run goes on, and that calls that were in flight when its process was killed are lost."""
        self._change_run(run_id, ended=None)
        self.lose_calls(run_id)

    def lose_calls(self, run_id: str) -> None:
        """Note that the run's calls in flight are lost; for whoever works on it alone (`exclusive`)."""
        in_flight = update(CallRow).where(CallRow.run_id == run_id, CallRow.outcome.is_(None))
        with self._database.writing(f"settling the calls of run {run_id}") as connection:
            connection.execute(in_flight.values(outcome="lost"))

    def in_flight(self) -> set[str]:
        """The ids of the runs with calls in flight, or whose process was killed while there were some."""
        query = select(CallRow.run_id).where(CallRow.outcome.is_(None)).distinct()
        with self._database.reading("reading the calls in flight") as connection:
            return set(connection.scalars(query))

    def ended(self, run_id: str) -> Ended | None:
        """Why the run ended; None while it goes on or waits to be resumed."""
        found = self._of_run(run_id, RunRow.ended)
        return Ended.model_validate(found) if found else None

    def note_elapsed(self, run_id: str, elapsed_s: float) -> None:
        """Store the active time of the run so far, in all."""
        self._change_run(run_id, elapsed_s=elapsed_s)

    def elapsed_s(self, run_id: str) -> float:
        """The active time of the run as it was last noted."""
        return self._of_run(run_id, RunRow.elapsed_s) or 0.0

    def exclusive(self, run_id: str) -> AbstractContextManager[None]:
        """Work on the run alone, as long as the block or this process lasts.

        Raises Held on entering when another process does.
        """
        refusal = f"run {run_id} is being worked on by another process; wait for it or stop it"
        return self._database.lock(f"run {run_id}", refusal)

    # Benches

    def create_bench(self, bench: Bench, runs: Iterable[Run]) -> None:
        """Store a new bench and those of its runs that are not there yet. Raises StoreError when its name is taken."""
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
        """The bench of that name, of the only name that begins so, or the newest for `last`.

        Raises UsageError, naming what could be meant, when there is none or more than one.
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
        """What came of the first `attempts` attempts of a run of this exact id."""
        with self._database.reading(f"reading run {run_id}") as connection:
            return read_outcome(connection, run_id, attempts)

    # Attempts

    def begin_attempt(self, run_id: str, attempt: int, selection: Selection) -> None:
        """Store what was selected for an attempt, before anything is paid for it."""
        row = {"run_id": run_id, "attempt": attempt, **selection.model_dump()}
        with self._database.writing(f"storing attempt {attempt} of run {run_id}") as connection:
            connection.execute(insert(AttemptRow), row)

    def selections(self, run_id: str) -> dict[int, Selection]:
        """Every attempt begun and what was selected for it."""
        return self._selections(AttemptRow.run_id == run_id)

    def begun(self) -> set[str]:
        """The ids of the runs of which an attempt has begun, whether or not one has finished."""
        with self._database.reading("reading the runs") as connection:
            return set(connection.scalars(select(AttemptRow.run_id).distinct()))

    def unfinished(self, run_id: str) -> dict[int, Selection]:
        """The attempts that were begun and have no node yet: a resumed run takes them up first."""
        finished = select(NodeRow.attempt).where(NodeRow.run_id == run_id)
        return self._selections(AttemptRow.run_id == run_id, AttemptRow.attempt.not_in(finished))

    # Calls

    def begin_call(self, run_id: str, attempt: int, role: str, model: str, reserved: Cost) -> int:
        """Store that a question is about to be sent, and what is reserved for it; returns its number."""
        values = {
            "run_id": run_id,
            "attempt": attempt,
            "role": role,
            "model": model,
            **Lost(role=role, model=model, reserved=reserved).spent.model_dump(),
        }
        query = insert(CallRow).returning(CallRow.number)
        with self._database.writing(f"storing a question of run {run_id}") as connection:
            return connection.scalars(query, values).one()

    def settle_call(self, asked: int, outcome: Literal["refused", "lost"]) -> None:
        """Note that a question got no reply: `refused` costs nothing, `lost` what was reserved."""
        question = update(CallRow).where(CallRow.number == asked)
        with self._database.writing("storing the outcome of a question") as connection:
            connection.execute(question.values(outcome=outcome))

    def add_call(self, run_id: str, call: Call, asked: int, elapsed_s: float) -> None:
        """Store the reply to a question, and the run's active time so far. Raises StoreError when that turn is stored."""
        doing = f"storing turn {call.turn} of attempt {call.attempt} of run {run_id}"
        question = update(CallRow).where(CallRow.number == asked)
        with self._database.writing(doing) as connection:
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
        """The calls whose reply never arrived because the process was killed."""
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

    def calls(self, run_id: str, attempt: int | None = None) -> list[Call]:
        """The calls of a run, or of one attempt, by attempt and turn."""
        of_attempt = () if attempt is None else (CallRow.attempt == attempt,)
        with self._database.reading(f"reading the calls of run {run_id}") as connection:
            return read_calls(connection, CallRow.run_id == run_id, *of_attempt)

    def spent(self, run_id: str | None = None) -> dict[str, Roles]:
        """What the calls of every run cost, or of one, by run and role; a run without calls is not there."""
        which = () if run_id is None else (CallRow.run_id == run_id,)
        with self._database.reading("reading what the runs cost") as connection:
            return read_spent(connection, *which)

    # Nodes

    def add_node(self, run_id: str, node: Node, elapsed_s: float) -> None:
        """Store a finished attempt; `elapsed_s` is the run's active time so far, in all.

        Raises StoreError when it is stored already, was not begun, or began with another selection.
        """
        doing = f"storing the node of attempt {node.id} of run {run_id}"
        begun = select(AttemptRow.parent, AttemptRow.action).where(
            AttemptRow.run_id == run_id, AttemptRow.attempt == node.id
        )
        with self._database.writing(doing) as connection:
            if connection.execute(begun).one_or_none() != (node.parent, node.action):
                raise StoreError(
                    f"{doing} failed: no attempt {node.id} was begun to {node.action} {node.parent}"
                )
            source = None
            if node.candidate is not None:
                (source,) = _keep(connection, node.candidate.source)
            own = {"run_id": run_id, "source": source, "elapsed_s": elapsed_s}
            connection.execute(insert(NodeRow), own | codec.node_values(node))
            _note_elapsed(connection, run_id, elapsed_s)

    def nodes(self, run_id: str) -> list[Node]:
        """The finished attempts, in the order in which they were finished."""
        query = (
            select(NodeRow.body, NodeRow.evaluation, ArtifactRow.text)
            .outerjoin_from(NodeRow, ArtifactRow)
            .where(NodeRow.run_id == run_id)
            .order_by(NodeRow.position)
        )
        with self._database.reading(f"reading the nodes of run {run_id}") as connection:
            return [codec.read_node(*row) for row in connection.execute(query)]

    # Final checks

    def add_promotion(self, run_id: str, attempt: int, evaluation: Evaluation) -> None:
        """Store what the final check of a finished attempt found. Raises StoreError if one is stored already."""
        row = {"run_id": run_id, "attempt": attempt, **codec.evaluation_values(evaluation)}
        doing = f"storing the final check of {attempt} of run {run_id}"
        with self._database.writing(doing) as connection:
            connection.execute(insert(PromotionRow), row)

    def promotions(self, run_id: str) -> dict[int, Evaluation]:
        """What the final check of each attempt that had one found, by attempt."""
        columns = (PromotionRow.attempt, PromotionRow.evaluation)
        query = select(*columns).where(PromotionRow.run_id == run_id)
        with self._database.reading(f"reading the final checks of run {run_id}") as connection:
            return {
                attempt: evaluation_adapter.validate_python(found)
                for attempt, found in connection.execute(query)
            }

    def _change_run(self, run_id: str, **values: Any) -> None:
        with self._database.writing(f"changing run {run_id}") as connection:
            changed = connection.execute(update(RunRow).where(RunRow.id == run_id).values(**values))
            if changed.rowcount == 0:
                raise StoreError(f"there is no run {run_id}; `stark runs` lists those there are")

    def _of_run(self, run_id: str, column: InstrumentedAttribute[T]) -> T | None:
        """A column of a run; None if there is no run of this exact id."""
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
    insert_into = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    # Every writer uses the same order, so two writers of the same texts cannot deadlock.
    connection.execute(
        insert_into(ArtifactRow).on_conflict_do_nothing(),
        [{"digest": name, "text": text} for name, text in sorted(zip(digests, texts, strict=True))],
    )
    return digests
