"""Processes to stop: each line `URL PARALLEL ATTEMPTS REPLY_S` on stdin starts one that works on the run of a store.

On PostgreSQL, their leases last LEASE_S.

They are forked one after the other, since importing everything anew would take a second each. A process prints `pid N`,
`asked ATTEMPT TURN` before each question to a model, `finished ATTEMPT`, and `draining` when it waits for replies; then
follows `ended STATUS`, negative for a signal. Questions and judgements take a few milliseconds, so that a kill finds some
of each in flight.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import loop_samples as samples
from stark.core.errors import Held
from stark.events import AttemptFinished, Draining, Event
from stark.loop import work_on
from stark.store import Store, leases
from support.executor import FakeExecutor

JUDGE_S = 0.006
LEASE_S = 2.0
LIMIT_S = 60
"""After which a process that hangs is stopped."""


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def work(url: str, parallel: int, attempts: int, reply_s: float) -> None:
    """Begin or resume the run; its replies are paid by the token, as soon as they are asked for."""

    async def before(attempt: int, turn: int) -> None:
        say(f"asked {attempt} {turn}")

    def tell(event: Event) -> None:
        if isinstance(event, AttemptFinished):
            say(f"finished {event.node.id}")
        elif isinstance(event, Draining):
            say("draining")

    run = samples.run("team-only" if parallel > 4 else "stark", attempts, parallel=parallel)
    replies = samples.Arranged(before, dollars=None, price=samples.PRICE, delay_s=reply_s)
    with Store.open(url) as store:
        asyncio.run(work_on(run, store, FakeExecutor(delay_s=JUDGE_S), replies, tell))


def child(url: str, parallel: str, attempts: str, reply_s: str) -> int:
    """Work until the run ends; returns the exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    signal.alarm(LIMIT_S)
    say(f"pid {os.getpid()}")
    try:
        work(url, int(parallel), int(attempts), float(reply_s))
    except KeyboardInterrupt:
        return 130
    except Held as held:
        say(f"held {held}")
        return held.exit_code
    return 0


def main() -> None:
    leases.LEASE_S = LEASE_S
    with Store.open("sqlite://") as store:  # what is set up once is not set up by each child
        asyncio.run(samples.work(store, samples.run(attempts=2)))
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = child(*line.split())
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        say(f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
