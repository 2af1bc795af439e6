"""A process to kill: `nodes URL RUN COUNT` works on attempts, `hold URL RUN LEASE_S` holds the run's lock.

It prints a line for everything that the store has told it is stored, as soon as it is.
"""

from __future__ import annotations

import sys

import store_samples as samples

from stark.core.errors import UsageError
from stark.store import Store, leases


def write_nodes(store: Store, run_id: str, count: int) -> None:
    """Go on with the run until it has `count` attempts."""
    try:
        store.run(run_id)
    except UsageError:
        store.create_run(samples.run(run_id))
    begun = store.selections(run_id)
    todo = [*store.unfinished(run_id), *range(len(begun) + 1, count + 1)]
    for attempt in todo:
        if attempt not in begun:
            store.begin_attempt(run_id, attempt, samples.IMPROVE_ROOT)
            say(f"begun {attempt}")
        for turn in range(len(store.calls(run_id, attempt)), 2):
            samples.answer(
                store, run_id, samples.call(attempt, turn, reply=f"reply {attempt}.{turn}")
            )
            say(f"call {attempt} {turn}")
        node = samples.node(
            attempt, samples.correct(1 / attempt), source=f"source {attempt}\n" * 99
        )
        store.add_node(run_id, node, elapsed_s=float(attempt))
        say(f"node {attempt}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hold(store: Store, run_id: str) -> None:
    """Hold the run's lock until standard input ends."""
    with store.exclusive(run_id):
        say("held")
        sys.stdin.read()


if __name__ == "__main__":
    what, url, run_id, *rest = sys.argv[1:]
    with Store.open(url) as opened:
        if what == "nodes":
            write_nodes(opened, run_id, int(rest[0]))
        else:
            leases.LEASE_S = float(rest[0])
            hold(opened, run_id)
