from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from stark.evaluator.judge import lock
from stark.evaluator.judge.lock import DeviceLock, Queue, Slots, queues

FORKED = multiprocessing.get_context("fork")


def nothing(_: bool) -> None: ...


def a_lock(folder: Path, judge: int = 1, on_wait: Callable[[bool], None] = nothing) -> DeviceLock:
    return DeviceLock(folder, "device", judge, on_wait)


def hold(folder: Path, judge: int, pipe: Connection) -> None:
    """When something comes through the pipe, hold the device until more comes."""
    pipe.recv()
    with a_lock(folder, judge).turn():
        pipe.send("held")
        pipe.poll(20)


class Other:
    """Another process, which holds the device in the `with` block."""

    def __init__(self, folder: Path, judge: int) -> None:
        self.pipe, theirs = FORKED.Pipe()
        self.process = FORKED.Process(target=hold, args=(folder, judge, theirs))
        self.process.start()  # before the device is held here: what is held is inherited

    def __enter__(self) -> Other:
        self.pipe.send("begin")
        assert self.pipe.poll(20)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):  # it was killed
            self.let_go()
        self.process.join(20)

    def let_go(self) -> None:
        self.pipe.send("enough")


def test_one_thread_at_a_time(tmp_path: Path) -> None:
    device, inside, most = a_lock(tmp_path), [0], [0]

    def work() -> None:
        with device.turn():
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [1] == most


def test_one_process_at_a_time_and_a_killed_one_gives_the_device_back(tmp_path: Path) -> None:
    with Other(tmp_path, 2) as other:
        threading.Timer(0.2, other.process.kill).start()
        begin = time.monotonic()
        with a_lock(tmp_path).turn():
            waited_s = time.monotonic() - begin

    assert waited_s > 0.1


def test_who_has_just_had_a_turn_lets_another_process_go_first(tmp_path: Path) -> None:
    ours, other = a_lock(tmp_path), Other(tmp_path, 1)

    with ours.turn():
        other.pipe.send("begin")
        other.let_go()
        time.sleep(0.5)  # it waits by now
        assert not other.pipe.poll()
    with ours.turn():
        assert other.pipe.poll()
    other.process.join()


def test_an_error_gives_the_device_back(tmp_path: Path) -> None:
    device = a_lock(tmp_path)

    with pytest.raises(ValueError, match="no"), device.turn():
        raise ValueError("no")

    with device.turn():
        pass


def waited_for(folder: Path, judge: int) -> list[bool]:
    """What is announced while another process, of this judge, holds the device for a while."""
    announced: list[bool] = []
    with Other(folder, judge) as other:
        threading.Timer(0.5, other.let_go).start()
        with a_lock(folder, judge=1, on_wait=announced.append).turn():
            pass
    return announced


def test_a_long_wait_for_another_judge_is_announced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "ANNOUNCED_AFTER_S", 0.1)

    assert [True, False] == waited_for(tmp_path, judge=2)


def test_a_wait_for_another_process_of_the_same_judge_is_not_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "ANNOUNCED_AFTER_S", 0.1)

    assert [] == waited_for(tmp_path, judge=1)


def test_a_short_wait_is_not_announced(tmp_path: Path) -> None:
    assert [] == waited_for(tmp_path, judge=2)


def test_slots_are_taken_by_no_more_than_there_are(tmp_path: Path) -> None:
    slots, taken = Slots(tmp_path, "device", 2), threading.Event()

    def third() -> None:
        with slots.one():
            taken.set()

    with slots.one():
        with slots.one():
            thread = threading.Thread(target=third)
            thread.start()
            assert not taken.wait(0.2)
        assert taken.wait(5)
    thread.join()


def test_slots_of_all_devices_are_free_while_none_may_be_taken(tmp_path: Path) -> None:
    ours, theirs = Slots(tmp_path, "device", 2), Slots(tmp_path, "other", 1)
    alone, let_go, taken = (threading.Event() for _ in range(3))

    def in_peace() -> None:
        with ours.none(), ours.none():
            alone.set()
            let_go.wait(5)

    def build() -> None:
        with theirs.one():
            taken.set()

    threads = [threading.Thread(target=each) for each in (in_peace, build)]
    with theirs.one():
        threads[0].start()
        assert not alone.wait(0.2), "another device's host work is not over"
    assert alone.wait(5)
    threads[1].start()
    assert not taken.wait(0.2)
    let_go.set()
    assert taken.wait(5)
    for thread in threads:
        thread.join()


def test_others_see_whose_turn_it_is_and_how_many_wait(tmp_path: Path) -> None:
    if not lock.LOCKS.exists():
        pytest.skip("the system does not list its locks")
    waiting = [Other(tmp_path, judge) for judge in (3, 4)]
    with Other(tmp_path, 2):
        for other in waiting:
            other.pipe.send("begin")
        end = time.monotonic() + 10
        while [Queue("device", "2", 2)] != (seen := list(queues(tmp_path))):
            assert time.monotonic() < end, seen
            time.sleep(0.02)
    for other in waiting:  # in whatever order they get it
        other.let_go()
    for other in waiting:
        other.process.join(20)

    assert [] == list(queues(tmp_path))
    assert [] == list(queues(tmp_path, tmp_path / "nothing"))
