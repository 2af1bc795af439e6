"""The databases that the store's contract holds on."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from stark.store import Store
from stark.store.schema import Base


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    match request.param:
        case "memory":
            return "sqlite://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/stark.db"
        case _:
            return _empty_postgresql()


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind that several processes can open."""
    if request.param == "postgresql":
        return _empty_postgresql()
    return f"sqlite:///{tmp_path}/stark.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as store:
        yield store


def _empty_postgresql() -> str:
    url = os.environ.get("STARK_TEST_POSTGRES_URL")
    if url is None:
        pytest.skip("STARK_TEST_POSTGRES_URL names no database to test on")
    if "+psycopg:" in url and importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    engine = create_engine(url)
    with engine.begin() as connection:
        Base.metadata.drop_all(connection)
    engine.dispose()
    return url
