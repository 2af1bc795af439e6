"""Opens, creates, reads and writes the store's database, either SQLite or PostgreSQL.

Other databases are refused, because two features are implemented only for SQLite and PostgreSQL: inserting a text only
once, and locks that end after their process: on files beside SQLite's file, and leases in PostgreSQL (`leases`).
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    PoolProxiedConnection,
    QueuePool,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from stark.core.errors import StoreError, TryAgain
from stark.store.boundary import boundary
from stark.store.group import Group, Transaction, finish_open
from stark.store.leases import LEASES, Leases
from stark.store.locks import file_lock
from stark.store.retrying import MOST_TRIES, Retrying
from stark.store.schema import SCHEMA, Base, SchemaRow

DEFAULT = "sqlite:///.stark/stark.db"
"""The default store: a file in the working folder."""

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another process's transaction. STARK's own transactions take milliseconds."""

CONNECTING = {
    "connect_timeout": "10",
    # A connection to a machine that vanished ends after about 25 s, not after hours.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""Connection parameters for PostgreSQL that a store's address may replace."""

FRESH_S = 5.0
"""After this time without use, a connection to a server may have been lost."""

CREATING = 7_827_590_145
"""The key of the advisory lock that the creator of the tables holds."""

IDLE_S = 60
"""After this time, the server ends a transaction whose process stands still. It could block a lease's next holder."""

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Transactions on the store's tables, and its locks."""

    def __init__(self, url: str, writes: bool = True, busy_s: float | None = None) -> None:
        """Open the database. Its tables are created if it has none and `writes` is true; otherwise it is only read.

        `busy_s` limits the wait for other processes; by default it is BUSY_TIMEOUT_S.
        """
        self._url, self._name = _parse(url), without_password(url)
        wait_s = BUSY_TIMEOUT_S if busy_s is None else busy_s
        self._engine = self._reader = _engine(self._url, writes, wait_s)
        self._on_server = self._engine.dialect.name == "postgresql"
        if self._on_server:
            # A whole transaction sees one consistent state, as it always does in SQLite.
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._leases = Leases(self._engine) if self._on_server else None
        self._group = Group(self._writer)
        self.retrying = Retrying(self._engine, self._name, self._group)
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
        self._group.finish()
        if self._watching is not None:
            self._watching.close()
        self._engine.dispose()

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """A connection that sees one consistent state for the whole block."""
        with boundary(doing):
            if self._group.connection is not None:
                yield self._group.connection
                return
            with self._reader.begin() as connection:
                yield connection

    @contextmanager
    def writing(self, doing: str, lock: str = "") -> Iterator[Connection]:
        """Apply all of the block's changes or none. They are committed when the block ends, or soon if `retried`.

        If this store holds the lock `lock` as a lease, the lease must not have been taken over: raises Held.
        """
        with boundary(doing):
            if self._group.is_joined:
                with self._group.writing() as transaction:
                    self._check(transaction, lock)
                    yield transaction.connection
                return
            transaction = Transaction(self._writer)
            with transaction.connection:
                self._check(transaction, lock)
                yield transaction.connection
                transaction.commit()

    async def retried(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` and wait until what it has written is on disk. Concurrent writes share a commit (see `Group`).

        If the server goes away, wait for it, and call `work` again unless its writes were committed.
        """
        for left in reversed(range(MOST_TRIES)):
            written: list[T] = []
            try:
                with self._group.joining():
                    written.append(work(*args, **kwargs))
                await self.settled()
                break
            except TryAgain as failure:
                if await self.retrying.committed(failure) and written:
                    break
                if not left:
                    raise
        return written[0]

    async def settled(self) -> None:
        """Wait until all writes are on disk."""
        await self._group.settled()

    def stamp(self) -> object | None:
        """A value that changes with every commit of another connection. None for PostgreSQL, which has no such value."""
        if self._on_server:
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

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the lock of this name within the block. Raises Held if another process holds it."""
        if self._leases is not None:
            return self._leased(self._leases, name)
        if _in_memory(self._url):
            return nullcontext()  # no other process can use it
        refusal = f"{name} is being worked on by another process; wait for it or stop it"
        return file_lock(self._lock_file(name), refusal)

    def is_locked(self, name: str) -> bool:
        """Whether a process holds the lock of this name, or it cannot be known."""
        try:
            if self._leases is not None:
                return self._leases.is_held(name)
            with self.lock(name):
                return False
        except StoreError:
            return True

    @contextmanager
    def _leased(self, leases: Leases, name: str) -> Iterator[None]:
        with leases.hold(name):
            try:
                yield
            finally:
                finish_open()  # it would keep the lease from being released

    def _check(self, transaction: Transaction, lock: str) -> None:
        if self._leases is not None:
            self._leases.check(transaction, lock)

    def _lock_file(self, name: str) -> Path:
        return Path(f"{self._url.database}-locks", quote(name, safe=" "))

    def _writer(self) -> Connection:
        """A connection whose transactions take the write lock at their start; see `_begin_sqlite`."""
        return self._engine.connect().execution_options(stark_writes=True)

    def _schema(self) -> int | None:
        """The schema version of the database; None if it has no tables of STARK."""
        with self.reading(f"opening the store {self._name}") as connection:
            return _schema_of(connection)

    def _create(self) -> None:
        """Create the tables, unless another process has just done so."""
        in_file = not self._on_server and not _in_memory(self._url)
        alone = file_lock(self._lock_file("schema"), None) if in_file else nullcontext()
        with alone, self.writing(f"creating the store {self._name}") as connection:
            if self._on_server:
                connection.execute(select(func.pg_advisory_xact_lock(CREATING)))
            if _schema_of(connection) is None:
                Base.metadata.create_all(connection)
                if self._on_server:
                    LEASES.metadata.create_all(connection)
                connection.execute(insert(SchemaRow).values(version=SCHEMA))


def _schema_of(connection: Connection) -> int | None:
    if not inspect(connection).has_table(SchemaRow.__tablename__):
        return None
    return connection.scalar(select(SchemaRow.version))


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
            ending = f"-c idle_in_transaction_session_timeout={IDLE_S}s"
            given = url.query.get("options", "")
            options = {**CONNECTING, **url.query, "options": f"{given} {ending}"}
            return _checking(create_engine(url.set(query=options)))
        return _sqlite_engine(url, writes, busy_s)
    except ArgumentError as error:
        raise StoreError(f"the store {url.render_as_string()} cannot be opened: {error}") from error
    except ImportError as error:
        raise StoreError(
            f"the store {url.render_as_string()} needs the Python package {error.name}; install it with pip"
        ) from error


def _checking(engine: Engine) -> Engine:
    """Let a connection that was not used for FRESH_S be checked, and replaced if it was lost meanwhile.

    A run may wait minutes for a model. To check before each use would cost a round trip each time.
    """

    def note_use(_: object, record: ConnectionPoolEntry) -> None:
        record.info["used_s"] = time.monotonic()

    def check(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        if time.monotonic() - record.info.get("used_s", math.inf) > FRESH_S:
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error

    event.listen(engine, "checkin", note_use)
    event.listen(engine, "checkout", check)
    return engine


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
