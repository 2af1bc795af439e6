"""The store behind the page, opened when it can be. A page outlives a store that is missing, locked or replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stark.core.errors import StoreError
from stark.store import Store, without_password

BUSY_S = 1.0
"""How long a reader waits for a store that another process has locked. STARK's own transactions never lock out readers."""


class Source:
    """A store at an address, where it may appear later."""

    def __init__(self, url: str) -> None:
        self.name = without_password(url)
        self._url = url
        self._lock = threading.Lock()
        self._store: Store | None = None

    @contextmanager
    def reading(self) -> Iterator[Store]:
        """The store. Raises StoreError with a sentence for the page if it cannot be read."""
        try:
            yield self._opened()
        except StoreError:
            self.close()  # it may have been replaced; the next reader opens it again
            raise

    def close(self) -> None:
        """Close the store, if it is open."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _opened(self) -> Store:
        with self._lock:
            if self._store is None:
                self._store = Store.open_existing(self._url, BUSY_S)
            if self._store is None:
                raise StoreError(
                    f"there is no store at {self.name} yet; `stark optimize PROBLEM` makes one, and this page will show it"
                )
            return self._store
