"""Many writers of one event loop, one commit: what all that are ready now write is put on disk together.

A commit waits for the disk, and while it does nothing else happens in the process. With many runs at
work, a commit for each write would leave models and judges waiting for it. Here each write is a
savepoint of an open transaction, which ends when the loop has come round: the busier the loop, the more
writes share a commit. A writer that must not go on before its own is on disk waits for `settled`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from stark.core.errors import StoreError
from stark.store.boundary import boundary


class Group:
    """The transaction that is open in this turn of the loop, if there is one."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """`connect` gives a connection whose transactions are for writing."""
        self._connect = connect
        self._failure: StoreError | None = None
        self._commit: asyncio.Task[None] | None = None
        self.connection: Connection | None = None
        """Sees what is written and not committed yet; None while nothing is."""

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """All of the block's changes, or none; on disk when the loop has come round."""
        connection = self.connection or self._begin()
        with connection.begin_nested():
            yield connection

    async def settled(self) -> None:
        """Return when all that was written so far is on disk. Raises StoreError when it could not be."""
        if self._commit is not None:
            await asyncio.shield(self._commit)
        self._raise_failure()

    def close(self) -> None:
        """Commit what is open."""
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
        await asyncio.sleep(0)  # whoever is ready writes first
        self._finish()

    def _finish(self) -> None:
        """Commit. A failure is kept for whoever comes next, since nobody may be waiting for this."""
        connection, self.connection, self._commit = self.connection, None, None
        if connection is None:
            return
        try:
            with boundary("storing what several runs wrote"), connection:
                try:
                    connection.commit()
                except BaseException:
                    connection.rollback()  # or it would go back to the pool as it is
                    raise
        except StoreError as error:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
