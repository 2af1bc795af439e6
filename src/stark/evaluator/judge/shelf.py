"""Problems kept ready for the next candidate: those used last, as far as together they hold no more than one alone may.

Searches take turns on a device, and preparing a problem takes longer than judging a candidate of it. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from stark.core.errors import ProblemError
from stark.core.problem import Problem

MOST_KEPT = 8
"""Each has a running reference, which is a process."""


class Keepable(Protocol):
    """A problem made ready."""

    @property
    def held_bytes(self) -> float:
        """About how much of the device's memory it holds between candidates."""

    @property
    def room_bytes(self) -> float:
        """How much all that are kept together may hold, where one alone may hold more."""

    @property
    def short_of_memory(self) -> bool:
        """Whether it would be judged otherwise if there had been more memory."""

    def close(self) -> None:
        """Give everything back."""


Kept = TypeVar("Kept", bound=Keepable)


class Shelf(Generic[Kept]):
    """Not for several threads: whoever asks holds the device."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[str, Kept] = {}
        """By the problem's digest, the least recently used first."""

    def has(self, problem: Problem) -> bool:
        """Whether it is ready; any thread may ask, and it may be gone the next moment."""
        return problem.digest in self._kept

    def take(self, problem: Problem, prepare: Callable[[], Kept]) -> Kept:
        """The problem made ready, with `prepare` if it is not. Others go where it needs their room.

        Raises what `prepare` raises.
        """
        ready = self._kept.pop(problem.digest, None)
        if ready is None:
            ready = self._prepared(prepare)
        self._kept[problem.digest] = ready
        self._make_room(ready.room_bytes)
        return ready

    def _prepared(self, prepare: Callable[[], Kept]) -> Kept:
        """Preparing takes more memory than keeping: where that was short, once more with nothing beside it."""
        try:
            ready = prepare()
        except ProblemError:
            if not self._kept:
                raise
        else:
            if not (ready.short_of_memory and self._kept):
                return ready
            ready.close()
        self._drop(len(self._kept))
        return prepare()

    def _make_room(self, room_bytes: float) -> None:
        while len(self._kept) > 1 and (
            len(self._kept) > self._most
            or sum(one.held_bytes for one in self._kept.values()) > room_bytes
        ):
            self._drop(1)

    def _drop(self, count: int) -> None:
        """Give up those that were not used for longest."""
        for name in list(self._kept)[:count]:
            self._kept.pop(name).close()
