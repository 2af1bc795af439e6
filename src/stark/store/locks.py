"""Locks on files. They end with the process that holds them, so `kill -9` leaves no stale lock."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stark.core.errors import Held, StoreError


@contextmanager
def file_lock(path: Path, refusal: str | None) -> Iterator[None]:
    """Hold a lock on a file. If it is taken, raises Held(refusal), or waits for it if `refusal` is None.

    The file is never removed, because removing it would race with the next holder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("ab")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}); choose a store in a writable folder"
        ) from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            raise Held(refusal) from None
        except OSError as error:
            raise StoreError(
                f"{path} cannot be locked ({error.strerror}); put the store on a file system that supports locks"
            ) from error
        yield
