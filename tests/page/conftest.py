"""The shipped recordings as a store, and a browser for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from page_samples import Browser, chromium

from stark.store import Store
from support.recordings import fill


@pytest.fixture(scope="package")
def recorded_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store with the shipped recordings and a bench of them."""
    address = f"sqlite:///{tmp_path_factory.mktemp('page')}/stark.db"
    with Store.open(address) as store, ThreadPoolExecutor(1) as apart:
        apart.submit(fill, store).result()  # Playwright keeps an event loop in this thread
    return address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found
