"""Works on the runs of a bench concurrently until all have ended or a limit on the whole bench is reached.

Each run is worked on by `stark.loop`, so it is stored, resumed and shown like any other. Only the runs in flight are in
memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from stark.core.bench import Bench, Cell
from stark.core.errors import Held, ModelUnreachable, ProblemError
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import Ended
from stark.core.usage import roles_together
from stark.correspondence import LiveReplies, ModelPool
from stark.evaluator.executors import Executor
from stark.events import AttemptFinished, Event
from stark.ledger import Ledger
from stark.loop import work_on
from stark.store import Attempted, Store


@dataclass(frozen=True)
class Opened:
    """A session of a bench begins."""

    bench: Bench
    ended: int
    """Runs that had ended before."""

    progress: Progress


@dataclass(frozen=True)
class InRun:
    """Something happened in a run."""

    cell: Cell
    event: Event


@dataclass(frozen=True)
class Left:
    """A run is worked on no more: it has ended, or was set aside to be resumed."""

    cell: Cell
    reason: str
    ended: bool


BenchEvent = Opened | InRun | Left
OnBenchEvent = Callable[[BenchEvent], None]


@dataclass
class Progress:
    """What all runs of a bench did and spent so far; updated during work."""

    ledger: Ledger
    finished: int = 0
    """Attempts that are stored."""

    correct: int = 0
    """Those of them that are correct."""


def unfinished(store: Store, bench: Bench) -> list[Cell]:
    """The cells whose runs have not ended. A run whose problem was refused counts as ended."""
    ended = {one.id for one in store.summaries() if one.ended is not None}
    return [cell for cell in bench.cells if cell.run_id not in ended]


def to_do(store: Store, bench: Bench) -> list[Cell]:
    """The cells that a session works on: the unfinished, and again those whose problems were refused.

    The machine may have been repaired since, and nearly all refusals come before a model is asked.
    """
    done = {one.id for one in store.summaries() if one.ended and one.ended.kind != "refused"}
    return [cell for cell in bench.cells if cell.run_id not in done]


class BenchSession:
    """One process's work on one bench."""

    def __init__(
        self,
        bench: Bench,
        store: Store,
        executor: Executor,
        models: ModelPool,
        emit: OnBenchEvent,
        parallel: int,
    ) -> None:
        """`parallel` runs are worked on at once."""
        self._bench, self._store, self._models, self._emit = bench, store, models, emit
        self._executor = _SharedExecutor(executor)
        self._parallel = parallel
        self._begun = store.begun()
        self._progress = _progress(store, bench)
        self._waiting: Iterator[Cell] = iter(())
        self._unreachable = 0
        """Consecutive runs that no model answered."""

    async def work(self) -> Ended | None:
        """Work until every run has ended; returns the limit on the whole bench that is reached, if any.

        A run whose models are unreachable, or that another process works on, is set aside.
        Raises errors that would stop every run: a model that refuses, models that are unreachable for all, no judge, no store.
        """
        waiting = to_do(self._store, self._bench)
        ended = len(self._bench.cells) - len(waiting)
        self._emit(Opened(self._bench, ended, self._progress))
        self._waiting = iter(waiting)
        try:
            with self._store.grouped():
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(self._parallel, len(waiting))):
                        group.create_task(self._work_through())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            await self._executor.close()
        return self._progress.ledger.own_limit()

    async def _work_through(self) -> None:
        """Take the next waiting run until there is none.

        Once a limit on the whole bench is reached, take only runs begun in an earlier session; they may need just their
        final check.
        """
        while (cell := next(self._waiting, None)) is not None:
            if self._progress.ledger.own_limit() is None or cell.run_id in self._begun:
                await self._fill(cell)

    async def _fill(self, cell: Cell) -> None:
        """Work on one run. A problem that cannot be used ends it; unreachable models or another process set it aside."""
        try:
            stopped = await self._work_on(cell)
        except ProblemError as error:
            stopped = Ended(kind="refused", detail=str(error))
            self._store.end_run(cell.run_id, stopped)
        except Held as error:
            self._emit(Left(cell, str(error), ended=False))
            return
        except ModelUnreachable as error:
            self._unreachable += 1
            if self._unreachable >= self._parallel:
                raise
            self._emit(Left(cell, str(error), ended=False))
            return
        self._unreachable = 0
        ended = self._store.ended(cell.run_id)
        self._emit(Left(cell, (ended or stopped).detail, ended is not None))

    async def _work_on(self, cell: Cell) -> Ended:
        run = self._store.run(cell.run_id)

        def emit(event: Event) -> None:
            if isinstance(event, AttemptFinished):
                self._progress.finished += 1
                self._progress.correct += event.node.works
            self._emit(InRun(cell, event))

        return await work_on(
            run,
            self._store,
            self._executor,
            LiveReplies(run.config.models, self._models),
            emit,
            self._progress.ledger,
        )


class _SharedExecutor:
    """Measures each reference once per session, so that all runs of a problem start from the same time.

    The executor itself decides how many candidates are judged at once, since it knows its devices.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.evaluate, self.compiled = executor.evaluate, executor.compiled
        self._described: dict[str, asyncio.Task[Reference]] = {}

    async def describe(self, problem: Problem) -> Reference:
        """Measure the reference once; concurrent callers wait for the same measurement."""
        task = self._described.get(problem.digest)
        if task is None:
            task = asyncio.create_task(self._executor.describe(problem))
            self._described[problem.digest] = task
        # Shielded: others may be waiting for it when this run is cancelled.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Stop measurements in flight; the executor's owner closes it."""
        for task in self._described.values():
            task.cancel()
        await asyncio.gather(*self._described.values(), return_exceptions=True)


def _progress(store: Store, bench: Bench) -> Progress:
    """The progress of earlier sessions; minutes start at zero, since they are per session."""
    in_flight = store.in_flight()
    for run_id in (cell.run_id for cell in bench.cells if cell.run_id in in_flight):
        with suppress(Held), store.exclusive(run_id):  # Held: another process is working on it
            store.lose_calls(run_id)
    begun, attempts = store.begun(), 0
    finished: list[Attempted] = []
    roles = []
    for run_id in (cell.run_id for cell in bench.cells if cell.run_id in begun):
        outcome = store.outcome(run_id, bench.attempts)
        attempts += sum(attempt <= bench.attempts for attempt in store.selections(run_id))
        finished += outcome.attempts
        roles.append(outcome.roles)
    ledger = Ledger(bench.budget, attempts=attempts, spent=roles_together(roles))
    return Progress(ledger, len(finished), sum(attempt.works for attempt in finished))
