"""Lets one thread at a time use a device, across all judges on a machine.

Within one judge, the lock also decides which waiting thread is next.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MOST_OVERTAKEN = 8
"""Largest number of later threads that may overtake a waiting thread.

Overtaking saves preparing a problem again. Preparing takes as long as judging a few candidates.
"""

ANNOUNCED_AFTER_S = 2.0
"""Seconds that a judge waits for another judge before it announces the wait. Most waits are shorter."""


@dataclass(eq=False)
class _Waiting:
    """A thread that waits for the device."""

    problem: str | None
    overtaken: int = 0


class DeviceLock:
    """A lock that is shared by the threads of this judge and by all judges with the same `folder`.

    Without the lock, two searches on one machine could time candidates at the same moment. The lock
    uses `flock`, so the operating system releases it when the judge that holds it dies. Among the
    waiting threads of this judge, those with the same problem as the last holder come first, because
    that problem is still prepared; MOST_OVERTAKEN limits this. Otherwise the order of arrival decides.
    """

    def __init__(
        self, folder: Path, device_name: str, on_wait: Callable[[bool], None] = lambda _: None
    ) -> None:
        """`on_wait` is called with True when a wait for another judge becomes long, and with False when it ends."""
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
        """Hold the device in the `with` block. `problem` is the digest of the problem in use, if any."""
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
