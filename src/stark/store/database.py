"""Opens, creates, reads and writes the store's database, either SQLite or PostgreSQL.

Other databases are refused, because two features are implemented only for SQLite and PostgreSQL: inserting a text only
once, and locks that end with the process.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    PoolProxiedConnection,
    QueuePool,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError

from stark.core.errors import StoreError
from stark.store.boundary import boundary
from stark.store.group import Group
from stark.store.locks import advisory_lock, file_lock
from stark.store.schema import SCHEMA, Base, SchemaRow

DEFAULT = "sqlite:///.stark/stark.db"
"""The default store: a file in the working folder."""

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another process's transaction. STARK's own transactions take milliseconds."""


class Database:
    """Transactions on the store's tables, and its locks."""

    def __init__(self, url: str, writes: bool = True, busy_s: float | None = None) -> None:
        """Open the database. Its tables are created if it has none and `writes` is true; otherwise it is only read.

        `busy_s` limits the wait for other processes; by default it is BUSY_TIMEOUT_S.
        """
        self._url, self._name = _parse(url), without_password(url)
        wait_s = BUSY_TIMEOUT_S if busy_s is None else busy_s
        self._engine = self._reader = _engine(self._url, writes, wait_s)
        if self._engine.dialect.name == "postgresql":
            # A whole transaction sees one consistent state, as it always does in SQLite.
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._group: Group | None = None
        self._watching: PoolProxiedConnection | None = None
        found = self._schema() if exists(url) else None
        if found is None:
            if not writes:
                self.close()
                raise StoreError(f"{self._name} is not a store of STARK; choose another store")
            self._create()
        elif found != SCHEMA:
            self.close()
            raise StoreError(
                f"the store {self._name} was written by another version of STARK (schema {found}, this version "
                f"reads {SCHEMA}); use that version, or choose another store"
            )

    def close(self) -> None:
        """Close every connection."""
        if self._watching is not None:
            self._watching.close()
        self._engine.dispose()

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """A connection that sees one consistent state for the whole block."""
        with boundary(doing):
            if self._group is not None and self._group.connection is not None:
                yield self._group.connection
                return
            with self._reader.begin() as connection:
                yield connection

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """Apply all of the block's changes or none. They are committed when the block ends, or later if `grouped`."""
        with boundary(doing):
            if self._group is not None:
                with self._group.writing() as connection:
                    yield connection
                return
            with self._writer() as connection, connection.begin():
                yield connection

    @contextmanager
    def grouped(self) -> Iterator[None]:
        """Let writes in the block share commits (see `Group`). All these writes must come from one thread with a
        running event loop.
        """
        group = self._group = Group(self._writer)
        try:
            yield
        finally:
            self._group = None
            group.close()

    async def settled(self) -> None:
        """Wait until all grouped writes are on disk. Writes outside a group are on disk already."""
        if self._group is not None:
            await self._group.settled()

    def stamp(self) -> object | None:
        """A value that changes with every commit of another connection. None for PostgreSQL, which has no such value."""
        if self._engine.dialect.name != "sqlite":
            return None
        with boundary(f"watching the store {self._name}"):
            if self._watching is None:
                self._watching = self._engine.raw_connection()
            cursor = self._watching.cursor()
            try:
                cursor.execute("PRAGMA data_version")
                return cursor.fetchall()
            finally:
                cursor.close()

    def lock(self, name: str, refusal: str | None = None) -> AbstractContextManager[None]:
        """Hold the lock of this name within the block; see the module `locks`."""
        if self._engine.dialect.name == "postgresql":
            return advisory_lock(self._engine, name, refusal)
        if _in_memory(self._url):
            return nullcontext()  # no other process can use it
        return file_lock(Path(f"{self._url.database}-locks", quote(name, safe=" ")), refusal)

    def _writer(self) -> Connection:
        """A connection whose transactions take the write lock at their start; see `_begin_sqlite`."""
        return self._engine.connect().execution_options(stark_writes=True)

    def _schema(self) -> int | None:
        """The schema version of the database; None if it has no tables of STARK."""
        with self.reading(f"opening the store {self._name}") as connection:
            if not inspect(connection).has_table(SchemaRow.__tablename__):
                return None
            return connection.scalar(select(SchemaRow.version))

    def _create(self) -> None:
        """Create the tables, unless another process has just done so."""
        with self.lock("schema"):
            if self._schema() is not None:
                return
            with self.writing(f"creating the store {self._name}") as connection:
                Base.metadata.create_all(connection)
                connection.execute(insert(SchemaRow).values(version=SCHEMA))


def exists(url: str) -> bool:
    """Whether there is a store at this address. Only SQLite files are checked; others are assumed to exist."""
    parsed = _parse(url)
    on_server = parsed.get_backend_name() != "sqlite"
    return on_server or _in_memory(parsed) or Path(str(parsed.database)).exists()


def without_password(url: str) -> str:
    """A store's address for display. Both the password in `user:password@host` and any password in the URL's options are hidden."""
    parsed = _parse(url)
    secret = {name: "hidden" for name in parsed.query if name.endswith("password")}
    return parsed.update_query_dict(secret).render_as_string(hide_password=True)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        shown = url.rpartition("@")[2].partition("?")[0]  # without a password
        raise StoreError(
            f"'{shown}' is not a store address; use sqlite:///path/to/stark.db or "
            "postgresql+psycopg://user@host/database"
        ) from None
    if backend not in ("sqlite", "postgresql"):
        raise StoreError(
            f"{backend} is not supported for a store; use sqlite:///… or postgresql+psycopg://…"
        )
    return parsed


def _engine(url: URL, writes: bool, busy_s: float) -> Engine:
    try:
        if url.get_backend_name() == "postgresql":
            # A run may wait minutes for a model; `pool_pre_ping` replaces connections lost meanwhile.
            # Each run in flight needs a connection for its lock, so only the server limits the connections.
            return create_engine(url, pool_pre_ping=True, max_overflow=-1)
        return _sqlite_engine(url, writes, busy_s)
    except ArgumentError as error:
        raise StoreError(f"the store {url.render_as_string()} cannot be opened: {error}") from error
    except ImportError as error:
        raise StoreError(
            f"the store {url.render_as_string()} needs the Python package {error.name}; install it with pip"
        ) from error


def _sqlite_engine(url: URL, writes: bool, busy_s: float) -> Engine:
    file = Path(str(url.database))
    if _in_memory(url):
        # A database in memory exists only within its one connection, which all threads share.
        only = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
        engine = create_engine(url, connect_args={"check_same_thread": False}, **only)
    elif file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        # Even to read, SQLite writes files beside the database, unless the database is opened as immutable.
        address = f"file:{quote(str(file))}?immutable=1"
        return create_engine(url, creator=lambda: sqlite3.connect(address, uri=True))
    else:
        engine = create_engine(url, connect_args={"timeout": busy_s})
    event.listen(engine, "connect", _prepare_sqlite if writes else _prepare_reader)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Configure a new connection of the SQLite driver.

    WAL lets reports read while a run writes. synchronous=FULL keeps paid replies even if the machine loses power,
    and costs a few milliseconds per model call.
    """
    connection.isolation_level = None  # `_begin_sqlite` begins transactions; the driver must not
    for pragma in ("foreign_keys=ON", "journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _prepare_reader(connection: Any, _record: object) -> None:
    """Configure a new connection that only reads."""
    connection.isolation_level = None
    connection.execute("PRAGMA query_only=ON")
    connection.execute("PRAGMA cache_size=-512")  # KiB: a reader goes over most pages once


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at the start of a writing transaction.

    Otherwise, a transaction that reads first and writes later fails at once if another process has written in between.
    """
    writes = connection.get_execution_options().get("stark_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:")
