"""Follows a store: one poller for all open pages, and what has changed since a page last heard of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from stark.core.errors import StoreError
from stark.page.source import Source
from stark.store import Progress

POLL_S = 0.2


@dataclass(frozen=True)
class News:
    """What has changed."""

    id: str
    """Names the state; a page that reconnects sends the last one that it got."""

    runs: tuple[str, ...] | None
    """The runs that changed; None if everything may have changed."""

    trouble: str | None
    """Why the store cannot be read, in one sentence; None if it can."""


class Watch:
    """What changed in a store, and when."""

    def __init__(self, source: Source, reader: Executor) -> None:
        """The store is read in the thread of `reader`."""
        self._source, self._reader = source, reader
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._changed: dict[str, int] = {}
        self._progress: dict[str, Progress] = {}
        self._stamp: object | None = None
        self._trouble: str | None = None
        self._news = asyncio.Condition()

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[None]:
        """Follow the store while the block lasts."""
        task = asyncio.create_task(self._poll_forever())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def news(self, last: str | None) -> AsyncIterator[News]:
        """What changed since the state called `last`, and from then on."""
        known = self._known(last)
        if known is None:
            known = self._number
            yield News(self._id, None, self._trouble)
        while True:
            async with self._news:
                while self._number <= known:
                    await self._news.wait()
                runs = tuple(id for id, number in self._changed.items() if number > known)
                known = self._number
                found = News(self._id, runs, self._trouble)
            yield found

    @property
    def _id(self) -> str:
        return f"{self._epoch}-{self._number}"

    def _known(self, last: str | None) -> int | None:
        epoch, _, number = (last or "").partition("-")
        return int(number) if epoch == self._epoch and number.isdigit() else None

    async def _poll_forever(self) -> None:
        while True:
            await self._poll()
            await asyncio.sleep(POLL_S)

    async def _poll(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            changed = await loop.run_in_executor(self._reader, self._look)
            trouble = None
        except StoreError as error:
            changed, trouble = {}, str(error)
        if not changed and trouble == self._trouble:
            return
        async with self._news:
            self._number += 1
            self._progress |= changed
            self._changed |= dict.fromkeys(changed, self._number)
            self._trouble = trouble
            self._news.notify_all()

    def _look(self) -> dict[str, Progress]:
        """The runs whose progress differs from what is known."""
        with self._source.reading() as store:
            stamp = store.stamp()
            if stamp is not None and (id(store), stamp) == self._stamp and self._trouble is None:
                return {}
            progress = store.progress()
            self._stamp = (id(store), stamp)
        return {id: now for id, now in progress.items() if self._progress.get(id) != now}
