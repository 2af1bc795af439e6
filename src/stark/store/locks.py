"""Locks that die with the process that holds them: nothing is left to clean up after `kill -9`.

Knows no run and no table, only names.
"""

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
        """Hold the lock `name`; when it is taken, wait, or raise Held(refusal) if there is one."""


class NoLocks:
    """For a database that only this process can see."""

    def hold(self, name: str, refusal: str | None = None) -> AbstractContextManager[None]:
        """Nothing to wait for."""
        return nullcontext()


class FileLocks:
    """One file per name in a folder. The files stay: removing one would race with its next holder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, name: str, refusal: str | None = None) -> Iterator[None]:
        """Lock the file; the kernel lets go when it is closed, however that comes about."""
        path = self._folder / quote(name, safe=" ", errors="backslashreplace")
        with _lock_file(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
            except BlockingIOError:
                raise Held(refusal) from None
            except OSError as error:
                raise StoreError(
                    f"{path} cannot be locked ({error.strerror}); keep the store on a file system with locks"
                ) from error
            yield


class AdvisoryLocks:
    """PostgreSQL's session locks: each holds a connection, and ends with it."""

    def __init__(self, engine: Engine) -> None:
        # Autocommit: an open transaction for hours would keep the server from tidying its tables.
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def hold(self, name: str, refusal: str | None = None) -> Iterator[None]:
        """Lock a number made from the name."""
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
                with suppress(SQLAlchemyError):  # with the connection the lock ends anyway
                    connection.execute(select(func.pg_advisory_unlock(key)))


def _lock_file(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}); choose a store in a folder of your own"
        ) from error
