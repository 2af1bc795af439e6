"""Opening a database: made where it is missing, or refused with a reason."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import store_samples as samples
from sqlalchemy import create_engine, inspect, text

from stark.core.errors import StoreError
from stark.store import Store, without_password
from stark.store.schema import SCHEMA, Base


def test_the_folder_and_the_database_are_made(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/100% new/folder/stark.db").close()
    assert (tmp_path / "100% new/folder/stark.db").is_file()


def test_opening_again_changes_nothing(shared_url: str) -> None:
    def tables() -> set[str]:
        engine = create_engine(shared_url)
        names = set(inspect(engine).get_table_names())
        engine.dispose()
        return names

    Store.open(shared_url).close()
    first = tables()
    Store.open(shared_url).close()
    assert first == tables()
    assert set(Base.metadata.tables) <= first


def test_a_store_of_another_schema_is_refused_and_left_alone(shared_url: str) -> None:
    def rewrite(schema: int) -> None:
        engine = create_engine(shared_url)
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE stark_schema SET version = {schema}"))
        engine.dispose()

    Store.open(shared_url).close()
    rewrite(SCHEMA + 1)
    with pytest.raises(StoreError) as refused:
        Store.open(shared_url)
    assert (
        f"the store {without_password(shared_url)} was written by another version of STARK (schema {SCHEMA + 1}, "
        f"this version reads {SCHEMA}); use that version, or choose another store"
    ) == str(refused.value)
    rewrite(SCHEMA)
    Store.open(shared_url).close()


def test_a_store_that_cannot_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "published"
    url = f"sqlite:///{folder}/100% mine?.db"
    with Store.open(url) as store:
        store.create_run(samples.run())
    (file,) = (each for each in folder.iterdir() if each.is_file())
    file.chmod(0o444)
    folder.chmod(0o555)
    before = {path.name for path in folder.iterdir()}
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and may(path, mode))

    with Store.open(url, create=False) as store:
        assert [samples.run()] == [store.run("last")]
        with pytest.raises(StoreError, match=r"storing run relu failed .*readonly database"):
            store.create_run(samples.run("relu"))
    folder.chmod(0o755)
    assert before == {path.name for path in folder.iterdir()}


def test_opening_to_read_leaves_nothing_behind(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/.stark/stark.db", create=False) as store:
        assert [] == store.summaries()
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and longer than a header of one hundred bytes\n" * 9)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"opening the store .*notes.txt failed.*not a database"):
        Store.open(f"sqlite:///{path}")
    assert before == path.read_bytes()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written \(Not a directory\)"):
        Store.open(f"sqlite:///{tmp_path}/file/below/stark.db")


def test_a_store_that_stays_locked_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stark.store.database.BUSY_TIMEOUT_S", 0.01)
    with Store.open(f"sqlite:///{tmp_path}/stark.db") as store:
        with closing(sqlite3.connect(tmp_path / "stark.db", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=r"storing run relu failed .database is locked.;"):
                store.create_run(samples.run("relu"))
        store.create_run(samples.run("relu"))


@pytest.mark.parametrize(
    "url", ["stark.db", "sqlite:/stark.db", "", "postgresql://me:secret@host:port/name"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="is not a store address; use sqlite:///") as caught:
        Store.open(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("backend", ["mysql", "oracle9"])
def test_other_databases_are_refused(backend: str) -> None:
    with pytest.raises(StoreError, match=f"{backend} is not supported for a store; use sqlite"):
        Store.open(f"{backend}://host/name")


def test_a_missing_driver_is_named_and_the_password_is_not() -> None:
    with pytest.raises(StoreError, match="needs the Python package asyncpg; install it") as caught:
        Store.open("postgresql+asyncpg://me:secret@host/name")
    assert "secret" not in str(caught.value)


def test_an_address_is_shown_without_its_password() -> None:
    assert "postgresql+psycopg://me@host/name?password=hidden&sslmode=require" == without_password(
        "postgresql+psycopg://me@host/name?password=secret&sslmode=require"
    )
    assert "postgresql+psycopg://me:***@host/name" == without_password(
        "postgresql+psycopg://me:secret@host/name"
    )
    assert "sqlite:///.stark/stark.db" == without_password("sqlite:///.stark/stark.db")


def test_a_run_writes_while_a_report_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stark.store.database.BUSY_TIMEOUT_S", 0.01)
    with (
        Store.open(f"sqlite:///{tmp_path}/stark.db") as store,
        closing(sqlite3.connect(tmp_path / "stark.db", isolation_level=None)) as reader,
    ):
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM runs").fetchone()
        store.create_run(samples.run())
        assert before == reader.execute("SELECT count(*) FROM runs").fetchone()
        assert len(store.summaries()) == 1
