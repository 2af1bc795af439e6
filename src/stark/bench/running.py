"""Works on many runs at once until all have ended or a limit of the whole is reached.

Each run is worked on by `optimize`, so it is stored, resumed and shown like any other. Only the
runs in flight are in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from stark.bench.account import Account
from stark.bench.shared import ModelDoor, SharedExecutor
from stark.core.bench import Bench, Cell
from stark.core.errors import Held, ModelUnreachable, ProblemError
from stark.core.evaluation import Evaluation
from stark.core.node import Node, Selection
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.usage import Usage
from stark.evaluator.executors import Executor
from stark.optimize import optimize
from stark.search.tree import Tree
from stark.store import Store


class BenchWatch(Protocol):
    """Sees a bench happen; the live display is one."""

    def opened(self, bench: Bench, ended: int, account: Account) -> None:
        """So many runs had ended before; the account goes on counting by itself."""

    def began(self, cell: Cell, tree: Tree) -> None:
        """A run is worked on from here; the tree grows by itself."""

    def stepped(self, cell: Cell, attempt: int, step: str) -> None:
        """An attempt is now with this role, or with the judge (`judge`)."""

    def attempted(self, cell: Cell, node: Node) -> None:
        """An attempt became a node."""

    def checked(self, cell: Cell, node: Node, evaluation: Evaluation) -> None:
        """A leader went through the final check of its run."""

    def left(self, cell: Cell, reason: str, ended: bool) -> None:
        """A run is worked on no more: it has ended, or was set aside to be resumed."""


def unfinished(store: Store, bench: Bench) -> list[Cell]:
    """The places whose runs have not ended. One whose problem was refused has."""
    ended = {s.id for s in store.summaries() if s.ended_reason is not None}
    return [cell for cell in bench.cells if cell.run_id not in ended]


def _to_do(store: Store, bench: Bench) -> list[Cell]:
    """The places that a session works on: the unfinished, and once more those whose problems were refused.

    The machine may have been mended since, and nearly all refusals come before a model is asked.
    """
    done = {s.id for s in store.summaries() if s.ended_reason is not None and not s.refused}
    return [cell for cell in bench.cells if cell.run_id not in done]


class BenchSession:
    """One process's work on one bench."""

    def __init__(
        self,
        bench: Bench,
        store: Store,
        executor: Executor,
        models: ModelDoor,
        watch: BenchWatch,
        parallel: int,
    ) -> None:
        """`parallel` runs are worked on at once."""
        self._bench, self._store, self._models, self._watch = bench, store, models, watch
        self._executor = SharedExecutor(executor)
        self._parallel = parallel
        self._account = Account.of_store(store, bench)
        self._waiting: Iterator[Cell] = iter(())
        self._begun = store.begun()
        self._ended_before = {s.id: s.ended_reason for s in store.summaries()}
        self._unreachable = 0
        """Runs in a row that no model answered."""

    async def work(self) -> str | None:
        """Work until every run has ended, on refused ones once more; returns the limit of the whole that is reached, if one is.

        A run whose models were out of reach stays unfinished, and so does one that another process works on. Raises what a session cannot go on
        with: a model that refuses, or none that answers; no judge; no store.
        """
        waiting = _to_do(self._store, self._bench)
        self._watch.opened(self._bench, len(self._bench.cells) - len(waiting), self._account)
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
        return self._account.limit()

    async def _work_through(self) -> None:
        """Take the next run that waits, until none does.

        When a limit of the whole is reached, only those that an earlier session began: they may lack
        no more than their final check.
        """
        while (cell := next(self._waiting, None)) is not None:
            if self._ended_meanwhile(cell):
                self._watch.left(cell, "another session has ended it", ended=True)
            elif self._account.limit() is None or cell.run_id in self._begun:
                await self._fill(cell)

    def _ended_meanwhile(self, cell: Cell) -> bool:
        """Whether another session that works on this bench has ended the run since this one began."""
        reason = self._store.ended_reason(cell.run_id)
        return reason is not None and reason != self._ended_before.get(cell.run_id)

    async def _fill(self, cell: Cell) -> None:
        """Work on one run. What is wrong with its problem ends it; a model out of reach, or another process, sets it aside."""
        try:
            reason = await self._optimize(cell)
        except ProblemError as error:
            self._store.refuse_run(cell.run_id, reason := str(error))
        except Held as error:
            self._watch.left(cell, str(error), ended=False)
            return
        except ModelUnreachable as error:
            self._unreachable += 1
            if self._unreachable >= self._parallel:
                raise
            self._watch.left(cell, str(error), ended=False)
            return
        self._unreachable = 0
        ended = self._store.ended_reason(cell.run_id)
        self._watch.left(cell, ended or reason, ended is not None)

    async def _optimize(self, cell: Cell) -> str:
        run = self._store.run(cell.run_id)
        watch = _CellWatch(cell, self._watch, self._account)
        try:
            _, reason = await optimize(
                run,
                self._store,
                self._executor,
                self._models.replies(run.config.models, self._account),
                watch,
                self._account.limit,
            )
        finally:
            self._account.set_aside(watch.in_flight)
        return reason


class _CellWatch:
    """What one run tells, passed on with its place in the grid and counted."""

    def __init__(self, cell: Cell, watch: BenchWatch, account: Account) -> None:
        self._cell, self._watch, self._account = cell, watch, account
        self.in_flight = 0
        """Attempts that set out and are no nodes yet."""

    def started(self, run: Run, reference: Reference, tree: Tree, usage: Usage) -> None:
        self._watch.began(self._cell, tree)

    def began(self, attempt: int, selection: Selection) -> None:
        self.in_flight += 1
        self._account.begin()

    def stepped(self, attempt: int, step: str) -> None:
        self._watch.stepped(self._cell, attempt, step)

    def paid(self, usage: Usage) -> None:
        """The account was told by the replies."""

    def promoting(self, node: Node) -> None:
        self._watch.stepped(self._cell, node.id, "check")

    def promoted(self, node: Node, evaluation: Evaluation) -> None:
        self._watch.checked(self._cell, node, evaluation)

    def finished(self, node: Node) -> None:
        self.in_flight -= 1
        self._account.finish(node.works)
        self._watch.attempted(self._cell, node)
