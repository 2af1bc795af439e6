"""Groups the writes of concurrent tasks into one commit.

A commit waits for the disk and blocks the event loop meanwhile, so with many runs one commit per write would be
slow. Here each write is a savepoint in an open transaction. The transaction is committed in the event loop's
next iteration. A task that needs its writes on disk before it continues awaits `settled`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from stark.core.errors import StoreError
from stark.store.boundary import boundary


class Group:
    """The transaction that the tasks of one event loop share."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """`connect` returns a connection whose transactions may write."""
        self._connect = connect
        self._failure: StoreError | None = None
        self._commit: asyncio.Task[None] | None = None
        self.connection: Connection | None = None
        """The open transaction's connection, which can read the uncommitted writes; None if no transaction is open."""

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Apply all of the block's changes or none; the changes are committed in the event loop's next iteration."""
        connection = self.connection or self._begin()
        with connection.begin_nested():
            yield connection

    async def settled(self) -> None:
        """Wait until all writes so far are on disk. Raises StoreError if the commit failed."""
        if self._commit is not None:
            await asyncio.shield(self._commit)
        self._raise_failure()

    def close(self) -> None:
        """Commit the open transaction, if any."""
        self._finish()
        self._raise_failure()

    def _begin(self) -> Connection:
        self._raise_failure()
        connection = self._connect()
        try:
            connection.begin()
        except BaseException:
            connection.close()
            raise
        self.connection = connection
        self._commit = asyncio.get_running_loop().create_task(self._commit_soon())
        return connection

    async def _commit_soon(self) -> None:
        await asyncio.sleep(0)  # let tasks that are ready write first
        self._finish()

    def _finish(self) -> None:
        """Commit. A failure is raised by the group's later calls, since perhaps no task waits for this commit."""
        connection, self.connection, self._commit = self.connection, None, None
        if connection is None:
            return
        try:
            with boundary("committing writes"), connection:
                try:
                    connection.commit()
                except BaseException:
                    connection.rollback()  # otherwise the connection returns to the pool with an open transaction
                    raise
        except StoreError as error:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
