"""The page's server without a browser: what it refuses, what it says of a store, and what it streams."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_samples import SHIPPED, make_app

from stark.page import source
from stark.report.attempt_document import NodeDocument
from stark.report.document import RunDocument, run_document
from stark.report.runs_document import RunsDocument
from stark.report.view import RunView
from stark.store import Store
from support.recordings import RMSNORM

starlette = pytest.importorskip("starlette.testclient")

HERE = "http://localhost:8765"


@pytest.fixture
def client(recorded_store: str) -> Iterator[starlette.TestClient]:
    with starlette.TestClient(make_app(recorded_store), base_url=HERE) as opened:
        yield opened


def said_about(store: str) -> str:
    with starlette.TestClient(make_app(store), base_url=HERE) as opened:
        answered = opened.get("/api/runs")
    assert 503 == answered.status_code
    return str(answered.json()["error"])


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "localhost.evil.example:8765"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/runs", "/static/app.js"])
def test_other_hosts_and_origins_are_refused(
    client: starlette.TestClient, headers: dict[str, str], path: str
) -> None:
    assert 403 == client.get(path, headers=headers).status_code


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "127.0.0.1"])
def test_this_machine_is_answered(client: starlette.TestClient, host: str) -> None:
    headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}

    assert 200 == client.get("/", headers=headers).status_code


def test_the_browser_may_load_nothing_from_elsewhere(client: starlette.TestClient) -> None:
    answered = client.get("/")

    policy = answered.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert "http" not in answered.text.replace("http-equiv", "")


@pytest.mark.parametrize("name", ["app.py", "..%2fserver.py", "%2e%2e/guard.py", "nothing.js"])
def test_only_files_of_the_page_are_served(client: starlette.TestClient, name: str) -> None:
    assert 404 == client.get(f"/static/{name}").status_code


def test_it_answers_with_the_documents(client: starlette.TestClient, recorded_store: str) -> None:
    with Store.open(recorded_store) as store:
        expected = run_document(RunView.of_store(store, RMSNORM))
    for _ in range(2):  # at first read, then kept
        run = RunDocument.model_validate(client.get(f"/api/runs/{RMSNORM}").json())
        assert expected == run
    rest = RunDocument.model_validate(client.get(f"/api/runs/{RMSNORM}?have=6").json())
    assert set(expected.finished[6:]) == {each.attempt for each in rest.attempts}
    attempt = client.get(f"/api/runs/{RMSNORM}/attempts/5").json()
    assert 2 == len(NodeDocument.model_validate(attempt).calls)
    runs = RunsDocument.model_validate(client.get("/api/runs").json()).runs
    [line] = [each for each in runs if each.id == RMSNORM]
    assert ("NVIDIA H200", "1.07x [1.07, 1.08]") == (line.device, line.compile_text)
    assert 4 == len(client.get("/api/devices").json()["devices"])


def test_a_recording_that_stops_early_says_so(client: starlette.TestClient) -> None:
    runs = client.get("/api/runs").json()["runs"]
    [early] = [each for each in runs if each["attempts"] < each["budget_attempts"]]

    run = client.get(f"/api/runs/{early['id']}").json()
    assert "recorded after 7 of 8 attempts" == run["ended"]["detail"]
    assert "it had no final check" in run["headline"]["sentence"]


def test_what_is_not_there_gets_a_sentence(client: starlette.TestClient) -> None:
    for path in ("runs/nothing", f"runs/{RMSNORM}/attempts/99", "benches/nothing"):
        answered = client.get(f"/api/{path}")
        assert 404 == answered.status_code and answered.json()["error"]


def test_a_missing_store_is_made_by_nobody(tmp_path: Path) -> None:
    said = said_about(f"sqlite:///{tmp_path}/stark.db")

    assert "there is no store at" in said and "stark optimize" in said
    assert [] == list(tmp_path.iterdir())


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/stark.db").close()
    with sqlite3.connect(tmp_path / "stark.db") as connection:
        connection.execute("UPDATE stark_schema SET version = 99")

    assert "another version of STARK" in said_about(f"sqlite:///{tmp_path}/stark.db")


def test_what_is_no_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "stark.db").write_bytes(b"")

    assert "is not a store" in said_about(f"sqlite:///{tmp_path}/stark.db")
    assert b"" == (tmp_path / "stark.db").read_bytes()


def test_a_locked_store_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BUSY_S", 0.1)
    Store.open(f"sqlite:///{tmp_path}/stark.db").close()
    connection = sqlite3.connect(tmp_path / "stark.db", isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")

    assert "locked" in said_about(f"sqlite:///{tmp_path}/stark.db")
    connection.close()


def test_a_read_only_store_is_read(recorded_store: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    shutil.copy(recorded_store.removeprefix("sqlite:///"), kept / "stark.db")
    (kept / "stark.db").chmod(0o444)
    kept.chmod(0o555)
    with starlette.TestClient(make_app(f"sqlite:///{kept}/stark.db"), base_url=HERE) as opened:
        assert len(SHIPPED) == len(opened.get("/api/runs").json()["runs"])
    kept.chmod(0o755)
