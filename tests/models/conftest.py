from __future__ import annotations

from collections.abc import Iterator

import pytest
from chat_server import ChatServer

from stark.models.catalog import CATALOG


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    server = ChatServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def no_keys_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in CATALOG.values():
        for variable in provider.key_variables:
            monkeypatch.delenv(variable, raising=False)
