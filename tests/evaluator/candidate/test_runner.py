from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate import runner


class Event:
    """An event of a device that works, or does not."""

    fault: Exception | None = None

    def record(self) -> None:
        """There is nothing to record."""

    def synchronize(self) -> None:
        if self.fault is not None:
            raise self.fault


def test_a_device_that_works_in_the_closed_sandbox_gets_its_memory_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))

    runner._check_device(torch.device("cpu"))

    assert [True] == emptied


def test_a_device_that_the_sandbox_is_in_the_way_of_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)

    monkeypatch.setattr(Event, "fault", RuntimeError("CUDA error: OS call failed"))
    with pytest.raises(
        RuntimeError, match="before the sandbox was locked, but fails inside it: CUDA error"
    ):
        runner._check_device(torch.device("cpu"))

    monkeypatch.setattr(Event, "fault", torch.OutOfMemoryError("none left"))
    with pytest.raises(torch.OutOfMemoryError, match="none left"):
        runner._check_device(torch.device("cpu"))
