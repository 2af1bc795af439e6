"""Locks that all processes of all judges on a machine share. Linux releases those of a process that dies."""

from __future__ import annotations

import fcntl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ANNOUNCED_AFTER_S = 2.0
"""Seconds that a judge waits for another judge before it announces the wait. Most waits are shorter."""

LOCKS = Path("/proc/locks")

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
        self._held, self._next = (folder / f"{device_name}.{kind}" for kind in ("lock", "next"))
        self._judge, self._on_wait = str(judge), on_wait
        self._thread = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the device in the `with` block. A process that has had its turn gets no other before those that wait: only
        the one whose turn is next waits for the device itself.
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


class Queue(NamedTuple):
    """A device of this machine that is in use."""

    device: str
    """`cpu-` and the machine's name, or a GPU's UUID."""

    judge: str
    """The process of the judge whose turn it is."""

    waiting: int
    """The number of processes that wait for a turn, each for one problem."""


def queues(folder: Path, locks: Path = LOCKS) -> Iterator[Queue]:
    """The devices in use, as the system lists their locks; nothing where it does not tell. Takes no lock itself."""
    try:
        listed = [line.split() for line in locks.read_text().splitlines()]
    except OSError:
        return
    held, waiting = set[str](), Counter[str]()
    for words in listed:
        if "FLOCK" in words:
            inode = words[-3].rpartition(":")[2]
            waiting[inode] += "->" in words
            held.add(inode)
    for path in sorted(folder.glob("*.lock")):
        inode = str(path.stat().st_ino)
        if inode in held:
            turn = path.with_suffix(".next")
            queued = waiting[str(turn.stat().st_ino)] if turn.exists() else 0
            yield Queue(path.stem, path.read_text(), waiting[inode] + queued)


class Slots:
    """A number of places on a device's host, of which each process or thread takes one at a time."""

    def __init__(self, folder: Path, device_name: str, count: int) -> None:
        self._folder = folder
        self._files = [folder / f"{device_name}.slot-{number}" for number in range(count)]
        for path in self._files:
            path.touch()

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

    @contextmanager
    def none(self) -> Iterator[None]:
        """Wait until nobody holds a place of any device in this folder, and let nobody take one in the `with` block."""
        with ExitStack() as held:
            for path in sorted(self._folder.glob("*.slot-*")):
                fcntl.flock(held.enter_context(path.open()), fcntl.LOCK_SH)
            yield
