"""What timing needs of a process that runs a program: to ask it, stop it, continue it and place its threads."""

from __future__ import annotations

from typing import Protocol

from stark.evaluator.candidate.wire import Message


class TimedProcess(Protocol):
    """A process that runs a program: a candidate's child or a running reference."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Send a request and return its answer."""

    def pause(self) -> float:
        """Stop the process while another is timed. Returns the time of the stop by `time.perf_counter`."""

    def stood_still(self) -> bool:
        """Whether it has not run since `pause`."""

    def resume(self) -> None:
        """Continue a stopped process. Raises if it ran since `pause`."""

    def go_on(self) -> None:
        """Continue a stopped process, whatever it did since `pause`."""

    def spread(self) -> None:
        """Pin each of its threads to one core, until `settle` or `loosen` is called."""

    def settle(self) -> None:
        """Pin the threads that have worked since `spread`, each to a core of its own.

        Unpins all other threads. Unpins every thread if there are too few cores.
        """

    def loosen(self) -> None:
        """Undo the pinning."""

    def waits_s(self) -> dict[str, float]:
        """Seconds that each of its threads has waited for a core so far."""

    def core(self) -> int | None:
        """The core that its main thread ran on last, if known."""
