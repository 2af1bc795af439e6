"""Waits for a database server that went away, and finds out what became of the transaction that it cut off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy import Engine, select

from stark.core.errors import StoreError, TryAgain
from stark.store.boundary import boundary
from stark.store.group import Group
from stark.store.leases import was_committed

SERVER_TIMEOUT_S = 600.0
"""How long a run waits for a server that went away: enough for a restart, an upgrade or a failover."""

MOST_TRIES = 20
"""How often a write is tried: one that makes the server crash would do so again and again."""

PAUSE_S = 0.25
"""The time between two tries to reach the server."""


class Retrying:
    """Waits for the server of one store. The event loop goes on meanwhile, so replies of models still arrive."""

    def __init__(self, engine: Engine, name: str, group: Group) -> None:
        self._engine, self._name, self._group = engine, name, group
        self._waiting: asyncio.Task[None] | None = None
        self._gave_up = False
        self.on_wait: Callable[[str], None] = lambda text: None
        """Called with the reason when a wait begins, and with an empty text when it ends."""

    async def committed(self, failure: TryAgain) -> bool:
        """Wait until the server answers; returns whether the transaction of this failure was committed after all.

        Raises StoreError after SERVER_TIMEOUT_S.
        """
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(self._wait())
        await asyncio.shield(self._waiting)
        return failure.committed

    async def _wait(self) -> None:
        until, said = time.monotonic() + SERVER_TIMEOUT_S, False
        while True:
            try:
                await asyncio.to_thread(self._ask)
                break
            except TryAgain as failure:
                if self._gave_up or time.monotonic() > until:
                    self._gave_up = True
                    raise StoreError(
                        f"the store {self._name} has been unreachable for {SERVER_TIMEOUT_S / 60:g} minutes; everything "
                        f"up to then is stored, so start its server and resume the run ({failure})"
                    ) from failure
                if not said:
                    self.on_wait(f"waiting for the store {self._name}, which does not answer")
                    said = True
                await asyncio.sleep(PAUSE_S)
        self._gave_up = False
        if said:
            self.on_wait("")

    def _ask(self) -> None:
        """Find out whether the unconfirmed transaction was committed. Raises TryAgain if the server does not answer."""
        unconfirmed = self._group.unconfirmed
        with boundary("reaching the database"), self._engine.begin() as connection:
            if unconfirmed is None or unconfirmed.unconfirmed is None:
                connection.execute(select(1))
                return
            unconfirmed.committed = was_committed(connection, *unconfirmed.unconfirmed)
        self._group.unconfirmed = None
