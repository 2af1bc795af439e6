"""Works on the runs of a bench concurrently until all have ended or a limit on the whole bench is reached.

`stark.loop` works on each run, so the run is stored, resumed and shown like any other run. Only the runs in flight are
in memory. A session is the work of one process on a bench, until the process stops or is killed.
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
    """Number of runs that this session does not work on, since they have ended. Runs whose problems were refused are
    tried again, so they are not counted here."""

    progress: Progress


@dataclass(frozen=True)
class InRun:
    """An event of one run."""

    cell: Cell
    event: Event


@dataclass(frozen=True)
class Left:
    """The session stops working on a run: the run has ended, or is set aside for a later session."""

    cell: Cell
    reason: str
    ended: bool


BenchEvent = Opened | InRun | Left
OnBenchEvent = Callable[[BenchEvent], None]


@dataclass
class Progress:
    """What all runs of a bench have done and spent so far; updated while the session works."""

    ledger: Ledger
    finished: int = 0
    """Number of finished attempts."""

    correct: int = 0
    """How many of the finished attempts are correct."""


def unfinished(store: Store, bench: Bench) -> list[Cell]:
    """The cells of the grid whose runs have not ended. A run whose problem was refused counts as ended."""
    ended = {one.id for one in store.summaries() if one.ended is not None}
    return [cell for cell in bench.cells if cell.run_id not in ended]


def to_do(store: Store, bench: Bench) -> list[Cell]:
    """The cells that a session works on: those whose runs have not ended, and those whose problems were refused.

    A refused problem is tried again, because the machine may have been repaired since. This costs little, because
    nearly all refusals come before the first model call.
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
        """`parallel` is the maximum number of concurrent runs."""
        self._bench, self._store, self._models, self._emit = bench, store, models, emit
        self._executor = _SharedExecutor(executor)
        self._parallel = parallel
        self._begun = store.begun()
        self._progress = _progress(store, bench)
        self._waiting: Iterator[Cell] = iter(())
        self._unreachable = 0
        """Number of consecutive runs whose models were unreachable."""

    async def work(self) -> Ended | None:
        """Work until every run has ended or is set aside, or until a limit on the whole bench is reached.

        A run whose models are unreachable, or that another process works on, is set aside. Returns the limit that was
        reached, if any. Raises errors that would stop every run: a model rejects every prompt, models are unreachable
        in `parallel` consecutive runs, or the judge or the store is unavailable.
        """
        waiting = to_do(self._store, self._bench)
        ended = len(self._bench.cells) - len(waiting)
        self._emit(Opened(self._bench, ended, self._progress))
        self._waiting = iter(waiting)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._parallel, len(waiting))):
                    group.create_task(self._work_through())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        finally:
            await self._executor.close()
        return self._progress.ledger.own_limit()

    async def _work_through(self) -> None:
        """Work on the waiting runs, one after the other, until none is left.

        Once a limit on the whole bench is reached, skip the runs that had not begun before this session. The runs
        that had begun are not skipped, since they may need only their final check.
        """
        while (cell := next(self._waiting, None)) is not None:
            if self._progress.ledger.own_limit() is None or cell.run_id in self._begun:
                await self._fill(cell)

    async def _fill(self, cell: Cell) -> None:
        """Work on one run. End the run if its problem cannot be used. Set the run aside if its models are unreachable
        or another process works on it.
        """
        try:
            stopped = await self._work_on(cell)
        except ProblemError as error:
            stopped = Ended(kind="refused", detail=str(error))
            await self._store.retried(self._store.end_run, cell.run_id, stopped)
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
        ended = await self._store.retried(self._store.ended, cell.run_id)
        self._emit(Left(cell, (ended or stopped).detail, ended is not None))

    async def _work_on(self, cell: Cell) -> Ended:
        run = await self._store.retried(self._store.run, cell.run_id)

        def emit(event: Event) -> None:
            if isinstance(event, AttemptFinished):
                self._progress.finished += event.node.counts
                self._progress.correct += event.node.counts and event.node.works
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
    """An executor that measures the reference of a problem once per session, for all runs of that problem.

    The wrapped executor decides how many candidates are judged at once, since it knows its devices.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.evaluate = executor.evaluate
        self._described: dict[str, asyncio.Task[Reference]] = {}
        self._views: dict[str, _SharedExecutor] = {}
        """By device class."""

    def on(self, device_class: str) -> _SharedExecutor:
        """See `Executor.on`."""
        if device_class not in self._views:
            self._views[device_class] = _SharedExecutor(self._executor.on(device_class))
        return self._views[device_class]

    async def describe(self, problem: Problem) -> Reference:
        """Measure the reference once; concurrent callers wait for the same measurement."""
        task = self._described.get(problem.digest)
        if task is None:
            task = asyncio.create_task(self._executor.describe(problem))
            self._described[problem.digest] = task
        # Shielded: if this run is cancelled, others may still wait for the measurement.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel measurements in flight. The wrapped executor stays open, for its owner to close."""
        for view in self._views.values():
            await view.close()
        for task in self._described.values():
            task.cancel()
        await asyncio.gather(*self._described.values(), return_exceptions=True)


def _progress(store: Store, bench: Bench) -> Progress:
    """The progress of earlier sessions. Minutes start at zero, since the limit on minutes applies to each session."""
    in_flight = store.in_flight()
    for run_id in (cell.run_id for cell in bench.cells if cell.run_id in in_flight):
        with suppress(Held), store.exclusive(run_id):  # Held: another process is working on it
            store.lose_calls(run_id)
    begun, attempts = store.begun(), 0
    finished: list[Attempted] = []
    roles = []
    for run_id in (cell.run_id for cell in bench.cells if cell.run_id in begun):
        outcome = store.outcome(run_id, bench.attempts)
        attempts += min(bench.attempts, store.attempts(run_id))
        finished += outcome.attempts
        roles.append(outcome.roles)
    ledger = Ledger(bench.budget, attempts=attempts, spent=roles_together(roles))
    return Progress(ledger, len(finished), sum(attempt.works for attempt in finished))
