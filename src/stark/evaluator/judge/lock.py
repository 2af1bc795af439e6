"""Gives one piece of work at a time exclusive use of a device, across all judges of a machine.

Within one judge it also decides which waiting thread is next.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MOST_OVERTAKEN = 8
"""How many later threads may overtake a waiting one.

Overtaking saves preparing a problem again, which takes as long as judging a few of its candidates.
"""

ANNOUNCED_AFTER_S = 2.0
"""How long a judge waits for another one before it says so; most waits between two candidates are shorter."""


@dataclass(eq=False)
class _Waiting:
    """A thread that waits for the device."""

    problem: str | None
    overtaken: int = 0


class DeviceLock:
    """A lock between the threads of this judge and between all judges that share `folder`.

    Without it, two searches on one machine could time candidates at the same moment. It uses
    `flock`, so the operating system releases it when its process dies. Threads that wait for the
    problem that had the device last, and is therefore prepared, come first; otherwise the order of
    arrival decides.
    """

    def __init__(
        self, folder: Path, device_name: str, on_wait: Callable[[bool], None] = lambda _: None
    ) -> None:
        """`on_wait` is called with True once it waits for another judge, and then with False when the wait ends."""
        self._on_wait = on_wait
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{device_name}.lock").open("w")
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._held = False
        self._prepared: str | None = None

    @property
    def idle(self) -> bool:
        """Whether no thread of this judge holds the device or waits for it."""
        return not self._held and not self._waiting

    @contextmanager
    def turn(self, problem: str | None = None) -> Iterator[None]:
        """Hold the device for work on the problem with this digest, or on none."""
        self._wait(_Waiting(problem))
        try:
            self._lock_file()
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

    def _lock_file(self) -> None:
        """Take the lock that all judges of this machine share, and announce a long wait for it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            announced = threading.Event()

        def announce() -> None:
            announced.set()
            self._on_wait(True)

        timer = threading.Timer(ANNOUNCED_AFTER_S, announce)
        timer.daemon = True
        timer.start()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        finally:
            timer.cancel()
            timer.join()
            if announced.is_set():
                self._on_wait(False)

    def _wait(self, waiting: _Waiting) -> None:
        """Block until it is this thread's turn."""
        with self._changed:
            self._waiting.append(waiting)
            self._changed.wait_for(lambda: not self._held and self._next() is waiting)
            place = self._waiting.index(waiting)
            for earlier in self._waiting[:place]:
                earlier.overtaken += 1
            del self._waiting[place]
            self._held = True
            self._prepared = waiting.problem or self._prepared

    def _next(self) -> _Waiting:
        oldest = self._waiting[0]
        if oldest.overtaken >= MOST_OVERTAKEN:
            return oldest
        prepared = (each for each in self._waiting if each.problem == self._prepared)
        return next(prepared, oldest)
