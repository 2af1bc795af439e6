"""The databases that the store's contract holds on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stark.store import Store


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    return _empty(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind that several processes can open."""
    return _empty(request, tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as store:
        yield store


def _empty(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres").url())
    return "sqlite://" if request.param == "memory" else f"sqlite:///{folder}/stark.db"
