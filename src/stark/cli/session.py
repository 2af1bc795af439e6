"""One process's work on one run: new, replayed or resumed, from an open store to a printed result."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.cli.live import open_progress
from stark.cli.requests import kernel_path
from stark.core.errors import ModelRefused, StarkError, StoreError, UsageError
from stark.core.evaluation import Correct
from stark.core.run import Run
from stark.evaluator.executors import Executor
from stark.explain.evaluation import verdict
from stark.explain.numbers import counted
from stark.explain.run import is_replay, replay_line
from stark.optimize import optimize
from stark.replies import Replies
from stark.report.document import run_document
from stark.report.kernel import kernel_file
from stark.report.run import run_text
from stark.report.view import RunView
from stark.search.policies.base import Policy
from stark.store import Store


class Session:
    """A run about to be worked on."""

    def __init__(self, store: Store, store_url: str, as_json: bool) -> None:
        self._store, self._store_url, self._as_json = store, store_url, as_json
        self._results = consoles.results()

    def work(
        self,
        run: Run,
        policy: Policy | None,
        executor: Executor,
        replies: Replies,
        output: Path | None,
    ) -> int:
        """Work until a limit is reached, then say what came of it; returns the exit code."""
        with _told_how_to_go_on(self._store, run):
            run_interruptibly(self._optimize(run, policy, executor, replies))
        # With the models that were asked, which need not be those that the run began with.
        view = dataclasses.replace(RunView.of_store(self._store, run.id), run=run)
        path = self._write_kernel(view, output)
        if self._as_json:
            written = None if path is None else str(path)
            consoles.print_json(run_document(view) | {"kernel": written})
        else:
            self._tell(view, path)
        return 0 if path is not None else 1

    async def _optimize(
        self, run: Run, policy: Policy | None, executor: Executor, replies: Replies
    ) -> None:
        console = consoles.progress(self._as_json)
        earlier_s = self._store.elapsed_s(run.id)
        if is_replay(run):
            console.print(Text(f"In this run {replay_line(run)}."))
        try:
            async with open_progress(console, run, earlier_s) as watch:
                await optimize(run, self._store, executor, replies, watch, policy=policy)
        except asyncio.CancelledError:
            console.print("ending what is in flight; Ctrl-C once more ends at once")
            raise
        finally:
            await executor.close()

    def _write_kernel(self, view: RunView, output: Path | None) -> Path | None:
        best = view.winner
        if best is None or view.reference is None:
            return None
        path = output or kernel_path(self._store_url, view.run.id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(kernel_file(view.run, best, view.reference), "utf-8")
        except OSError as error:
            raise StoreError(
                f"the kernel cannot be written to {path}: {error.strerror}; it is stored, "
                f"and `stark show {view.run.id} {best.id} --source` prints it"
            ) from error
        return path

    def _tell(self, view: RunView, path: Path | None) -> None:
        say = self._results.print
        say(run_text(view, self._results.width))
        say()
        best = view.winner
        if best is None or path is None:
            found = "None of the fastest kernels held in the final check."
            lacking = "No correct kernel was found."
            say(Text(found if view.promotions else lacking, "bold red"))
            say(
                f"`stark show {view.run.id}` says why each attempt failed; "
                f"`stark resume {view.run.id} --attempts N` goes on with a larger budget."
            )
        else:
            assert isinstance(best.evaluation, Correct)
            say(Text(verdict(best.evaluation), "bold"))
            say(Text(f"kernel: {path}"), soft_wrap=True)
        if is_replay(view.run):
            say(Text(f"In this run {replay_line(view.run)}."))


@contextmanager
def _told_how_to_go_on(store: Store, run: Run) -> Iterator[None]:
    """Add to whatever ends the work early what is stored and how to resume it."""
    try:
        yield
    except StarkError as stop:
        if not isinstance(stop, UsageError):  # which no resuming mends
            stop.add_note(_how_to_go_on(store, run, stop))
        raise


def _how_to_go_on(store: Store, run: Run, stop: StarkError) -> str:
    if not store.holds(run.id):
        return "nothing was begun, so nothing is stored; give the same command again"
    nodes = store.nodes(run.id)
    correct = sum(node.works for node in nodes)
    replay = " --replay FILE" if is_replay(run) else ""
    refused = isinstance(stop, ModelRefused)
    mended = ", once that is mended or with another --model" if refused else ""
    return (
        f"{counted(len(nodes), 'attempt')} {'is' if len(nodes) == 1 else 'are'} stored ({correct} correct); "
        f"`stark resume {run.id}{replay}` goes on{mended}"
    )
