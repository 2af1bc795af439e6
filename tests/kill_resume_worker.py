"""A process to kill: `kill_resume_worker.py URL PARALLEL ATTEMPTS` begins or resumes the one run of a store.

It prints a line when it is about to open the store, and one before each question to a model and
for each finished attempt. Questions and judgements take a few milliseconds, so that a kill finds
some of each in flight.
"""

from __future__ import annotations

import asyncio
import sys

from stark.optimize import optimize

import loop_samples as samples
from stark.core.call import Message, Reply
from stark.core.evaluation import Evaluation
from stark.core.node import Node
from stark.store import Store
from stark.strategies import strategy
from stark.testing.executor import FakeExecutor

REPLY_S = 0.004
JUDGE_S = 0.006


class PaidReplies:
    """Scripted replies, each on the bill as soon as it is asked for."""

    def __init__(self) -> None:
        self._replies, _ = samples.scripted()

    async def reply(
        self, attempt: int, turn: int, role: str, messages: tuple[Message, ...]
    ) -> Reply:
        say(f"asked {attempt} {turn}")
        await asyncio.sleep(REPLY_S)
        return await self._replies.reply(attempt, turn, role, messages)


class Telling(samples.Notes):
    def finished(self, node: Node) -> None:
        say(f"finished {node.id}")

    def promoting(self, node: Node) -> None:
        """The final check is not what is killed here."""

    def promoted(self, node: Node, evaluation: Evaluation) -> None:
        """Nor its end."""


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(url: str, parallel: str, attempts: str) -> None:
    run = samples.run(attempts=int(attempts), parallel=int(parallel))
    say("opening")
    with Store.open(url) as store:
        if not store.summaries():
            store.create_run(run)
        executor = FakeExecutor(delay_s=JUDGE_S)
        work = optimize(
            store.run(run.id),
            strategy(run.config.strategy),
            store,
            executor,
            PaidReplies(),
            Telling(),
        )
        asyncio.run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
