from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from stark.evaluator.judge import lock
from stark.evaluator.judge.lock import MOST_OVERTAKEN, DeviceLock


class Queue:
    """Threads that wait for one device while it is held, and the order in which they got it."""

    def __init__(self, folder: Path) -> None:
        self.lock = DeviceLock(folder, "device")
        self.order: list[str] = []
        self.threads: list[threading.Thread] = []

    def add(self, name: str, problem: str | None) -> None:
        """Returns when it waits."""

        def work() -> None:
            with self.lock.turn(problem):
                self.order.append(name)

        self.threads.append(threading.Thread(target=work, daemon=True))
        self.threads[-1].start()
        deadline = time.monotonic() + 10
        while len(self.lock._waiting) < len(self.threads):
            assert time.monotonic() < deadline, f"{name} does not wait"
            time.sleep(0.001)

    def join(self) -> list[str]:
        for thread in self.threads:
            thread.join()
        return self.order


def test_the_problem_that_is_prepared_comes_first_and_each_in_its_order(tmp_path: Path) -> None:
    queue = Queue(tmp_path)

    with queue.lock.turn("a"):
        for name in ("b1", "a1", "c1", "b2", "a2"):
            queue.add(name, name[0])

    assert ["a1", "a2", "b1", "b2", "c1"] == queue.join()


def test_work_that_prepares_nothing_leaves_the_problem_prepared(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    with queue.lock.turn("a"):
        pass

    with queue.lock.turn():
        for name in ("b1", "a1"):
            queue.add(name, name[0])

    assert ["a1", "b1"] == queue.join()


def test_nobody_is_overtaken_for_ever(tmp_path: Path) -> None:
    queue = Queue(tmp_path)

    with queue.lock.turn("a"):
        queue.add("other", "b")
        for number in range(2 * MOST_OVERTAKEN):
            queue.add(str(number), "a")

    assert MOST_OVERTAKEN == queue.join().index("other")


def test_one_at_a_time_also_between_judges(tmp_path: Path) -> None:
    one, other = Queue(tmp_path), Queue(tmp_path)
    thread = threading.Thread(target=lambda: _hold(other))

    with one.lock.turn("a"):
        thread.start()
        time.sleep(0.05)
        waited = list(other.order)
    thread.join()

    assert [] == waited
    assert ["held"] == other.order


def _hold(queue: Queue) -> None:
    with queue.lock.turn("b"):
        queue.order.append("held")


def test_an_error_gives_the_device_back(tmp_path: Path) -> None:
    queue = Queue(tmp_path)

    with pytest.raises(ValueError, match="no"), queue.lock.turn("a"):
        raise ValueError("no")

    _hold(queue)
    assert ["held"] == queue.order


def test_a_long_wait_for_another_judge_is_announced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "ANNOUNCED_AFTER_S", 0.05)
    announced: list[bool] = []
    ours = DeviceLock(tmp_path, "device", announced.append)
    other = DeviceLock(tmp_path, "device")

    def wait() -> None:
        with ours.turn("a"):
            announced_at_last.extend(announced)

    announced_at_last: list[bool] = []
    thread = threading.Thread(target=wait)
    with other.turn("b"):
        thread.start()
        deadline = time.monotonic() + 10
        while not announced and time.monotonic() < deadline:
            time.sleep(0.005)
        assert [True] == announced
    thread.join()

    assert [True, False] == announced_at_last


def test_a_short_wait_is_not_announced(tmp_path: Path) -> None:
    announced: list[bool] = []
    ours, other = DeviceLock(tmp_path, "device", announced.append), Queue(tmp_path)
    thread = threading.Thread(target=lambda: _hold(other))

    with ours.turn("a"):
        thread.start()
    with ours.turn("a"):
        pass
    thread.join()

    assert [] == announced
