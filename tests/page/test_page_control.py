"""Jobs that are started from the page."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_samples import make_app

from stark.page.control import Control, Resume, Start

starlette = pytest.importorskip("starlette.testclient")

COMMAND = """#!/bin/sh
trap 'echo stopped; exit 130' INT
echo "$@"
sleep 30 >/dev/null 2>&1 &
wait
"""

Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Asks a server whose jobs only wait to be stopped."""
    # Where the shell of these tests has it ignored, no job could be stopped before its 30 s are over.
    handled = signal.signal(signal.SIGINT, signal.default_int_handler)
    command = tmp_path / "python"
    command.write_text(COMMAND)
    command.chmod(0o755)
    control = Control("sqlite:///runs.db")
    app = make_app(f"sqlite:///{tmp_path}/stark.db", control)
    with starlette.TestClient(app, base_url="http://localhost:8765") as client:
        monkeypatch.setattr(sys, "executable", str(command))

        def asked(path: str, body: Any = None, token: str = control.token) -> Any:
            headers = {"authorization": f"Bearer {token}"}
            if body is None:
                return client.get(f"/api/control{path}", headers=headers)
            return client.post(f"/api/control{path}", json=body, headers=headers)

        yield asked
    signal.signal(signal.SIGINT, handled)


def first_job(ask: Ask, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first job, once it is as expected."""
    for _ in range(200):
        [job] = ask("").json()["jobs"]
        if done(job):
            return dict(job)
        time.sleep(0.02)
    raise AssertionError(job)


def test_a_run_is_started_and_stopped(ask: Ask) -> None:
    assert 200 == ask("/start", {"problem": "--evil", "model": "exec:a", "dollars": 2}).status_code
    job = first_job(ask, lambda job: bool(job["lines"]))
    expected = "-m stark optimize --store=sqlite:///runs.db --model=exec:a --dollars=2.0 -- --evil"
    assert (None, [expected]) == (job["code"], job["lines"])

    assert 200 == ask("/stop/0", {}).status_code
    assert "stopped" == first_job(ask, lambda job: job["code"] == 130)["lines"][-1]


def test_a_run_is_resumed(ask: Ask) -> None:
    ask("/resume", {"run": "softmax-12ab"})

    job = first_job(ask, lambda job: bool(job["lines"]))
    assert "softmax-12ab" == job["run"]
    assert ["resume", "--", "softmax-12ab"] == Resume(run="softmax-12ab").arguments


@pytest.mark.parametrize("path", ["", "/start", "/resume", "/stop/0"])
@pytest.mark.parametrize("token", ["", "guessed"])
def test_nothing_happens_without_the_token(ask: Ask, path: str, token: str) -> None:
    body = None if path == "" else {"problem": "p.py"}

    assert 401 == ask(path, body, token=token).status_code
    assert [] == ask("").json()["jobs"]


def test_what_makes_no_sense_is_refused(ask: Ask) -> None:
    assert 422 == ask("/start", {"problem": "p.py", "shell": "rm"}).status_code
    assert 404 == ask("/stop/7", {}).status_code
    with pytest.raises(ValueError):
        Start(problem="p.py", dollars=-1)


def test_a_page_without_control_has_none(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/stark.db")
    with starlette.TestClient(app, base_url="http://localhost:8765") as client:
        assert 404 == client.get("/api/control").status_code
