"""The clock of a device: marks in the program, and the time between two of them.

On a GPU, marks are events in the current stream and are read after the run, so nothing waits in between. The time
between two events contains the gaps in which the device waits for the host, as in the user's own run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


class HostClock:
    """A CPU works while the program waits, so the host's clock suffices."""

    def mark(self) -> Any:
        """The present moment."""
        return time.perf_counter()

    def between(self, begin: Any, end: Any) -> float:
        """Seconds between two marks, after `wait`."""
        return float(end - begin)

    def wait(self) -> None:
        """Wait until the device has finished what was launched."""


class DeviceClock(HostClock):
    """Events in the current stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> Any:
        """An event that is recorded now."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def between(self, begin: Any, end: Any) -> float:
        """Seconds between two events, after `wait`."""
        return float(begin.elapsed_time(end)) / 1e3

    def wait(self) -> None:
        """Synchronize the device."""
        torch.cuda.synchronize(self._device)


def clock_of(device: torch.device) -> HostClock:
    """The clock of a CPU or of a CUDA device."""
    return DeviceClock(device) if device.type == "cuda" else HostClock()


def wall_s(run: Callable[[], object], clock: HostClock) -> float:
    """Seconds that a run takes, from an idle device until its work is done."""
    clock.wait()
    begin = time.perf_counter()
    run()
    clock.wait()
    return time.perf_counter() - begin
