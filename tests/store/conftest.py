"""The databases that the store's contract holds on."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import pytest
from sqlalchemy import create_engine

from stark.store import Store
from stark.store.locks import file_lock
from stark.store.schema import Base


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    with _empty(request.param, tmp_path) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind that several processes can open."""
    with _empty(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as store:
        yield store


@contextmanager
def _empty(kind: str, folder: Path) -> Iterator[str]:
    if kind == "postgresql":
        # Tests in other workers would empty the same database.
        with file_lock(Path(gettempdir()) / "stark-tests-postgresql.lock", refusal=None):
            yield _empty_postgresql()
    else:
        yield "sqlite://" if kind == "memory" else f"sqlite:///{folder}/stark.db"


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
