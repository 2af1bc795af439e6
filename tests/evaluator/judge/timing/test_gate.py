"""The order in which the judge's stream works around a program's calls, with a driver that notes what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.queued import DONE, GATE
from stark.evaluator.judge.timing import gate as gates
from stark.evaluator.judge.timing.gate import Gate, GateStuck, Work

JUDGES, BESIDE = 1, 2
"""Streams."""


class Device:
    """Notes what is queued on which stream. Events end at once unless `stuck`."""

    def __init__(self, arena: Any) -> None:
        self.log: list[object] = []
        self.stuck = False
        self._arena = arena.data_ptr()

    def wait_until(self, stream: int, address: int, value: int) -> None:
        self.log.append(("wait", self._name(address), value))

    def write(self, stream: int, address: int, value: int) -> None:
        if stream == BESIDE and self._name(address) == "host":
            self.seen[0] = value
            return
        self.log.append(("write" if stream == JUDGES else "rescue", self._name(address), value))

    def load(self) -> None:
        self.log.append("load")

    def event(self, **_: object) -> Any:
        number = len([one for one in self.log if one == "event"])
        return SimpleNamespace(
            record=lambda: self.log.append("event"),
            query=lambda: not self.stuck,
            elapsed_time=lambda end: float(number + 1),
        )

    def word(self) -> Any:
        self.seen = torch.zeros(1, dtype=torch.int32)
        return self.seen

    def _name(self, address: int) -> str:
        return {self._arena + GATE: "gate", self._arena + DONE: "done"}.get(address, "host")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    arena = torch.ones(1024, dtype=torch.uint8)
    device = Device(arena)
    monkeypatch.setattr(gates, "Driver", lambda: device)
    monkeypatch.setattr(gates, "_host_word", device.word)
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    gates.stream_beside.cache_clear()
    monkeypatch.setattr(torch.cuda, "Stream", lambda: SimpleNamespace(cuda_stream=BESIDE))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=JUDGES))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    device.gate = Gate(arena)  # type: ignore[attr-defined]
    device.log.clear()
    yield device
    gates.stream_beside.cache_clear()


def works(device: Device, count: int) -> list[Work]:
    def noting(what: str) -> Callable[[], object]:
        return lambda: device.log.append(what)

    return [Work(noting("inputs"), noting("results"), noting("look")) for _ in range(count)]


def test_all_that_depends_on_a_calls_inputs_lies_between_two_events_of_the_judge(
    device: Any,
) -> None:
    taken = device.gate.time(
        works(device, 2), device.load, lambda: device.log.append("finish"), 1.0
    )

    def call(number: int) -> list[object]:
        gate = [("write", "gate", number), ("wait", "done", number)]
        return ["event", "inputs", *gate, "results", "event", "look"]

    assert [("wait", "host", 1), "load", *call(1), *call(2), "event", "finish"] == device.log
    assert 2 == len(taken)


def test_calls_are_numbered_on_over_several_series_and_untimed_ones(device: Any) -> None:
    device.gate.time(works(device, 3), device.load, lambda: None, 1.0)
    device.gate.open(2)
    device.log.clear()

    device.gate.time(works(device, 1), device.load, lambda: None, 1.0)

    assert ("write", "gate", 6) in device.log


def test_the_judges_stream_goes_on_when_a_program_fails(device: Any) -> None:
    def fail() -> None:
        raise ValueError("it crashed")

    with pytest.raises(ValueError, match="it crashed"):
        device.gate.time(works(device, 2), device.load, fail, 1.0)

    assert device.log[-1] == ("rescue", "done", 2)


def test_a_program_that_lies_about_its_end_is_not_waited_for(device: Any) -> None:
    device.stuck = True
    write = device.write

    def rescued(stream: int, address: int, value: int) -> None:
        device.stuck &= stream != BESIDE
        write(stream, address, value)

    device.write = rescued

    with pytest.raises(GateStuck, match=r"did not end within 0\.01 s"):
        device.gate.time(works(device, 1), device.load, lambda: None, 0.01)

    assert device.log[-1] == ("rescue", "done", 1)


def test_a_program_that_keeps_the_judges_stream_waiting_ends_the_judge(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.stuck = True
    monkeypatch.setattr(gates, "RESCUE_S", 0.02)

    with pytest.raises(RuntimeError, match="keeps the judge's stream waiting"):
        device.gate.time(works(device, 1), device.load, lambda: None, 0.01)


def test_a_stream_that_waits_for_the_held_one_is_not_used(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = SimpleNamespace(cuda_stream=JUDGES)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: blocked)
    monkeypatch.setattr(gates, "BESIDE_S", 0.001)

    gates.stream_beside.cache_clear()

    with pytest.raises(RuntimeError, match="no stream of device 0 works beside"):
        gates.stream_beside(0)


def test_words_that_another_program_left_count_for_nothing(device: Any) -> None:
    device.gate.time(works(device, 3), device.load, lambda: None, 1.0)
    device.log.clear()

    device.gate.reset()

    assert [("write", "gate", 3), ("write", "done", 3)] == device.log
