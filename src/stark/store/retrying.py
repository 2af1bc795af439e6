"""Waits for a database server that went away, and finds out what became of the transaction that it cut off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sqlalchemy import Engine, func, select

from stark.core.errors import StoreError, TryAgain
from stark.store.boundary import boundary

SERVER_TIMEOUT_S = 600.0
"""How long a run waits for a server that went away: enough for a restart, an upgrade or a failover."""

PAUSE_S = 0.25
"""The time between two tries to reach the server."""


class Retrying:
    """Waits for the server of one store. The event loop goes on meanwhile, so replies of models still arrive."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._waiting: asyncio.Task[None] | None = None
        self._gave_up = False
        self.on_wait: Callable[[str], None] = lambda text: None
        """Called with the reason when a wait begins, and with an empty text when it ends."""

    async def committed(self, failure: TryAgain) -> bool:
        """Wait until the server answers; returns whether the transaction of this failure was committed after all.

        Raises StoreError after SERVER_TIMEOUT_S.
        """
        while True:
            if self._waiting is None or self._waiting.done():
                self._waiting = asyncio.create_task(self._wait())
            await asyncio.shield(self._waiting)
            if failure.transaction is None:
                return False
            try:
                state = await asyncio.to_thread(self._state, failure.transaction)
            except TryAgain:
                continue
            if state != "in progress":  # the server has yet to notice that the connection is gone
                return state == "committed"
            await asyncio.sleep(PAUSE_S)

    async def _wait(self) -> None:
        until, said = time.monotonic() + SERVER_TIMEOUT_S, False
        while True:
            try:
                await asyncio.to_thread(self._state, None)
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

    def _state(self, transaction: int | None) -> str | None:
        """What became of a transaction. Raises TryAgain if the server does not answer."""
        with boundary("reaching the database"), self._engine.connect() as connection:
            return connection.scalar(select(func.txid_status(transaction)))
