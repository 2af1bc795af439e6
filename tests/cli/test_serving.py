"""`stark ui` up to the point where it serves."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from cli_samples import Stark

from stark.store import Store
from support.recordings import RESULTS, RMSNORM

uvicorn = pytest.importorskip("uvicorn")

RECORDING = next(RESULTS.rglob("level1-36-rmsnorm.json.gz"))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports that were served; each server ends at once."""
    ports: list[int] = []

    def run(_: object, sockets: list[socket.socket]) -> None:
        ports.extend(each.getsockname()[1] for each in sockets)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    return ports


def test_a_busy_port_is_replaced_by_the_next(stark: Stark, served: list[int]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        busy = other.getsockname()[1]
        ended = stark("ui", "--port", str(busy))

    assert 0 == ended.code
    assert served[0] > busy
    assert f"http://127.0.0.1:{served[0]}/" in ended.out
    assert f"port {busy} is busy, so the page is on port {served[0]}" in ended.err


def test_control_prints_a_token(stark: Stark, served: list[int]) -> None:
    assert "#token=" not in stark("ui").out
    assert "/#token=" in stark("ui", "--control").out


def test_recordings_are_served_from_a_store_of_their_own(
    stark: Stark, served: list[int], monkeypatch: pytest.MonkeyPatch, workplace: Path
) -> None:
    stores: list[tuple[list[str], dict[str, str]]] = []

    def make_app(address: str, _: object, files: dict[str, str]) -> None:
        with Store.open(address) as store:
            stores.append(([each.id for each in store.summaries()], files))

    monkeypatch.setattr("stark.page.server.make_app", make_app)
    assert 0 == stark("ui", str(RECORDING), str(RECORDING)).code
    assert [([RMSNORM], {RMSNORM: RECORDING.name})] == stores
    assert not (workplace / ".stark").exists()


def test_what_is_not_installed_is_named(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ended = stark("ui")

    assert 2 == ended.code
    assert (
        'the page needs the Python package uvicorn: pip install "stark-kernels[web]"' in ended.err
    )


@pytest.mark.slow
def test_a_recording_is_written_as_a_page_and_as_a_comment(stark: Stark, workplace: Path) -> None:
    page, comment = workplace / "run.html", workplace / "new" / "run.md"
    ended = stark("show", str(RECORDING), "--html", str(page), "--markdown", str(comment))

    assert 0 == ended.code and "run.html" in ended.out
    assert page.read_text().startswith("<!doctype html>")
    assert "3.00x vs eager" in comment.read_text().replace("\\", "")
