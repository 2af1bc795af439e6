"""Provides named locks that end with the process that holds them, so `kill -9` leaves no stale lock."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import quote

from sqlalchemy import BigInteger, Engine, func, literal, select
from sqlalchemy.exc import SQLAlchemyError

from stark.core.errors import Held, StoreError
from stark.store.boundary import boundary


class Locks(Protocol):
    """Named locks of one database."""

    def hold(self, name: str, refusal: str | None = None) -> AbstractContextManager[None]:
        """Hold the lock `name`. If it is taken, wait, or raise Held(refusal) if `refusal` is given."""


class NoLocks:
    """For a database in memory, which only this process can use."""

    def hold(self, name: str, refusal: str | None = None) -> AbstractContextManager[None]:
        """Return at once."""
        return nullcontext()


class FileLocks:
    """One file per name in a folder. Files are never removed, because that would race with the next holder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, name: str, refusal: str | None = None) -> Iterator[None]:
        """Lock the file; the kernel releases the lock when the process ends or closes the file."""
        path = self._folder / quote(name, safe=" ", errors="backslashreplace")
        with _lock_file(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
            except BlockingIOError:
                raise Held(refusal) from None
            except OSError as error:
                raise StoreError(
                    f"{path} cannot be locked ({error.strerror}); put the store on a file system that supports locks"
                ) from error
            yield


class AdvisoryLocks:
    """PostgreSQL's session locks. Each occupies a connection and ends with it."""

    def __init__(self, engine: Engine) -> None:
        # Autocommit: a transaction open for hours would keep the server from vacuuming its tables.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def hold(self, name: str, refusal: str | None = None) -> Iterator[None]:
        """Lock a number derived from the name."""
        number = hashlib.sha256(f"stark {name}".encode()).digest()[:8]
        key = literal(int.from_bytes(number, signed=True), BigInteger)
        with boundary(f"locking '{name}'"), self._engine.connect() as connection:
            if refusal is None:
                connection.execute(select(func.pg_advisory_lock(key)))
            elif not connection.scalar(select(func.pg_try_advisory_lock(key))):
                raise Held(refusal)
            try:
                yield
            finally:
                with suppress(SQLAlchemyError):  # the lock ends with the connection anyway
                    connection.execute(select(func.pg_advisory_unlock(key)))


def _lock_file(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}); choose a store in a writable folder"
        ) from error
