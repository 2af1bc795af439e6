"""Groups the writes of concurrent tasks into one commit.

A commit waits for the disk and blocks the event loop meanwhile, so with many runs one commit per write would be
slow. Here each write is a savepoint in an open transaction, which is committed in one of the event loop's next
iterations. A task that needs its writes on disk before it continues awaits `settled`.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from stark.core.errors import StoreError, TryAgain
from stark.store.boundary import boundary

_THREAD = threading.local()
"""Has the `group` whose transaction is open in this thread, if there is one."""


class Transaction:
    """An open transaction that may write."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        finish_open()
        self.connection = connect()
        self.token = uuid.uuid4().hex
        self.leases: dict[str, int] = {}
        """The names and numbers of the leases that this transaction has marked with its token."""

        try:
            self.connection.begin()
        except BaseException:
            self.connection.close()
            raise

    def commit(self) -> None:
        """Commit. If the connection is lost meanwhile, raises TryAgain that names the unconfirmed transaction."""
        sent = not self.connection.invalidated
        try:
            with boundary("committing writes"), self.connection:
                try:
                    self.connection.commit()
                except BaseException:
                    self.connection.rollback()  # otherwise the connection returns to the pool with an open transaction
                    raise
        except TryAgain as failure:
            if sent and self.leases:
                failure.unconfirmed = (tuple(self.leases.values()), self.token)
            raise


def finish_open() -> None:
    """Commit the transaction that a group, perhaps another store's, has open in this thread.

    This thread would wait for its locks in vain.
    """
    group: Group | None = getattr(_THREAD, "group", None)
    if group is not None:
        group.finish()


class Group:
    """The transaction that the tasks of one event loop share."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """`connect` returns a connection whose transactions may write."""
        self._connect = connect
        self._thread: int | None = None
        self._joining = False
        self._open: Transaction | None = None
        self._committed: asyncio.Future[None] | None = None
        self.unconfirmed: TryAgain | None = None
        """The failure of a commit that perhaps succeeded. Until that is known, new transactions would cover its traces."""

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Let the block's writes share the open transaction. The block must not await anything.

        If it raises TryAgain, the whole transaction is undone, and `settled` raises the same for the earlier blocks.
        """
        self._thread, self._joining = threading.get_ident(), True
        try:
            yield
        except TryAgain as failure:
            self._end(lambda opened: opened.connection.close(), failure)
            raise
        finally:
            self._joining = False

    @property
    def is_joined(self) -> bool:
        """Whether writes of this thread share the open transaction now."""
        return self._joining and self._thread == threading.get_ident()

    @property
    def connection(self) -> Connection | None:
        """The connection on which this thread can read its uncommitted writes; None if it has none."""
        if self._open is None or self._thread != threading.get_ident():
            return None
        return self._open.connection

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Apply all of the block's changes or none; they are committed soon."""
        if self.unconfirmed is not None:
            raise TryAgain(str(self.unconfirmed))
        if self._open is not None:
            marked = dict(self._open.leases)
            try:
                with self._open.connection.begin_nested():
                    yield self._open
            except BaseException:
                if self._open is not None:
                    self._open.leases = marked  # marks of this write are undone, too
                raise
            return
        loop = asyncio.get_running_loop()
        self._open, self._committed = Transaction(self._connect), loop.create_future()
        _THREAD.group = self
        # Tasks that are ready may write first.
        loop.call_soon(loop.call_soon, self.finish, self._committed)
        try:
            yield self._open  # the first write needs no savepoint, as there is nothing else to keep
        except BaseException:
            self._end(lambda opened: opened.connection.close())
            raise

    async def settled(self) -> None:
        """Wait until this thread's writes so far are on disk. Raises StoreError if the commit failed."""
        if self._committed is not None:
            await asyncio.shield(self._committed)

    def finish(self, only: asyncio.Future[None] | None = None) -> None:
        """Commit this thread's open transaction, if there is one (and if it is `only` this one).

        A failure is raised by `settled`.
        """
        if self.connection is not None and only in (None, self._committed):
            self._end(Transaction.commit)

    def _end(self, how: Callable[[Transaction], None], failure: StoreError | None = None) -> None:
        opened, committed = self._open, self._committed
        self._open = self._committed = None
        if opened is None or committed is None:
            return
        _THREAD.group = None
        try:
            how(opened)
        except StoreError as failed:
            failure = failed
        if failure is None:
            committed.set_result(None)
        else:
            if isinstance(failure, TryAgain) and failure.unconfirmed is not None:
                self.unconfirmed = failure
            committed.set_exception(failure)
            committed.exception()  # perhaps nobody waits for it
