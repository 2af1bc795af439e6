"""Locks that end with the process that holds them, so `kill -9` leaves no stale lock.

There are two kinds: locks on files and locks in PostgreSQL. Both wait for a lock that is taken; if `refusal` is given,
they raise Held(refusal) instead.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import BigInteger, Engine, func, literal, select
from sqlalchemy.exc import SQLAlchemyError

from stark.core.errors import Held, StoreError
from stark.store.boundary import boundary


@contextmanager
def file_lock(path: Path, refusal: str | None) -> Iterator[None]:
    """Hold a lock on a file. The file is never removed, because removing it would race with the next holder."""
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


@contextmanager
def advisory_lock(engine: Engine, name: str, refusal: str | None) -> Iterator[None]:
    """Hold a PostgreSQL advisory lock on a number derived from the name. The lock needs its own connection and ends
    with that connection.
    """
    number = hashlib.sha256(f"stark {name}".encode()).digest()[:8]
    key = literal(int.from_bytes(number, signed=True), BigInteger)
    # Autocommit: a transaction open for hours would keep the server from vacuuming its tables.
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with boundary(f"locking '{name}'"), autocommit.connect() as connection:
        if refusal is None:
            connection.execute(select(func.pg_advisory_lock(key)))
        elif not connection.scalar(select(func.pg_try_advisory_lock(key))):
            raise Held(refusal)
        try:
            yield
        finally:
            with suppress(SQLAlchemyError):  # the lock ends with the connection anyway
                connection.execute(select(func.pg_advisory_unlock(key)))
