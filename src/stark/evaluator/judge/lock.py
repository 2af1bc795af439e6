"""Holds a device for one piece of work at a time, over all judges of this machine."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from types import TracebackType


class DeviceLock:
    """A lock between the threads of this judge and between the judges that share `folder`.

    Two searches on one machine would otherwise time their candidates at the same moment. The
    lock is the kernel's own on a file, so it ends with the process that holds it.
    """

    def __init__(self, folder: Path, device_name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{device_name}.lock").open("w")
        self._threads = threading.Lock()

    def __enter__(self) -> None:
        self._threads.acquire()
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._threads.release()
