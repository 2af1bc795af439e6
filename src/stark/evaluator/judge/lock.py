"""Locks that all processes of all judges on a machine share. Linux releases those of a process that dies."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ANNOUNCED_AFTER_S = 2.0
"""Seconds that a judge waits for another judge before it announces the wait. Most waits are shorter."""

POLL_S = 0.05
"""Seconds between two looks for a free slot."""


class DeviceLock:
    """Lets one thread at a time use a device, so that no two programs are ever timed at the same moment."""

    def __init__(
        self, folder: Path, device_name: str, judge: int, on_wait: Callable[[bool], None]
    ) -> None:
        """`judge` is a number that the processes of one judge have in common.

        `on_wait` is called with True when a wait for another judge becomes long, and with False when it ends.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._held, self._next = (folder / f"{device_name}.{kind}" for kind in ("lock", "next"))
        self._judge, self._on_wait = str(judge), on_wait
        self._thread = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the device in the `with` block.

        Only the process whose turn is next waits for the device itself. So a process that has had its turn cannot take
        the next one before those that wait.
        """
        with self._thread, self._held.open("a") as held:
            with self._next.open("w") as next_, self._announced():
                fcntl.flock(next_, fcntl.LOCK_EX)
                fcntl.flock(held, fcntl.LOCK_EX)
            held.truncate(0)
            held.write(self._judge)
            held.flush()
            yield

    @contextmanager
    def _announced(self) -> Iterator[None]:
        """Announce a long wait in the `with` block, unless it is for another process of this judge."""
        announced = threading.Event()

        def announce() -> None:
            if self._held.read_text() != self._judge:
                announced.set()
                self._on_wait(True)

        timer = threading.Timer(ANNOUNCED_AFTER_S, announce)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            if announced.is_set():
                self._on_wait(False)


class Slots:
    """A number of places of which each process or thread takes one at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._files = [folder / f"slot-{number}" for number in range(count)]

    def __len__(self) -> int:
        return len(self._files)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold one of the places in the `with` block."""
        while True:
            for path in self._files:
                with path.open("w") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        continue
                    yield
                    return
            time.sleep(POLL_S)
