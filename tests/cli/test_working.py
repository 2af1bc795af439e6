from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import Stark


@pytest.fixture(autouse=True)
def queue(workplace: Path) -> Path:
    (workplace / "queue" / "requests").mkdir(parents=True)
    return workplace / "queue"


class Judges:
    """Judges that are started and closed."""

    ready = 1

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def start(self) -> None:
        self.seen.append("started")

    async def close(self) -> None:
        self.seen.append("closed")


def test_a_worker_without_work_ends(stark: Stark, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges()
    monkeypatch.setattr("stark.cli.working.open_judges", lambda _: judges)

    ended = stark("worker", "queue", "--once")

    assert 0 == ended.code
    assert "answered 0 requests; no request is waiting" in ended.out
    assert ["started", "closed"] == judges.seen


def test_a_worker_whose_judge_cannot_start_says_so_even_without_work(stark: Stark) -> None:
    ended = stark("worker", "queue", "--once", "--executor", "command:sh -c 'echo no device'")

    assert 2 == ended.code
    assert "does not start" in ended.err
    assert "no device" in ended.err


def test_a_worker_has_judges_of_its_own(stark: Stark) -> None:
    ended = stark("worker", "queue", "--executor", "folder:elsewhere")

    assert 2 == ended.code
    assert "use local, local:DEVICES, command:LINE" in ended.err
