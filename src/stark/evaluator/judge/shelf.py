"""Keeps prepared problems for their next candidates: an LRU cache limited by memory and count.

Searches take turns on a device. Preparing a problem again at each turn would take longer than judging one
of its candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from stark.core.errors import ProblemError
from stark.core.problem import Problem

MOST_KEPT = 8
"""Largest number of prepared problems to keep, limited because each keeps a process running for its reference."""


class Keepable(Protocol):
    """A prepared problem."""

    @property
    def held_bytes(self) -> float:
        """Approximate bytes of memory held between candidates."""

    @property
    def room_bytes(self) -> float:
        """Limit in bytes of what all kept problems hold together. A problem over this limit is kept alone."""

    @property
    def short_of_memory(self) -> bool:
        """Whether checks were omitted because memory was short."""

    def close(self) -> None:
        """Free all resources."""


Kept = TypeVar("Kept", bound=Keepable)


class Shelf(Generic[Kept]):
    """LRU cache of prepared problems. For all methods but `has`, the caller must hold the device lock."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[str, Kept] = {}
        """Prepared problems by digest, the least recently used first."""

    def has(self, problem: Problem) -> bool:
        """Whether a problem is prepared. Any thread may ask; the answer may be outdated at once."""
        return problem.digest in self._kept

    def take(self, problem: Problem, prepare: Callable[[], Kept]) -> Kept:
        """Return the prepared problem, calling `prepare` if needed.

        Evict other problems if all together hold too much. Raises what `prepare` raises.
        """
        ready = self._kept.pop(problem.digest, None)
        if ready is None:
            ready = self._prepared(prepare)
        self._kept[problem.digest] = ready
        self._make_room(ready.room_bytes)
        return ready

    def _prepared(self, prepare: Callable[[], Kept]) -> Kept:
        """Prepare a problem; if memory was short, evict all others and try again."""
        try:
            ready = prepare()
        except ProblemError as error:
            # Imported here, because it needs torch, without which a judge that is only played starts at once.
            from stark.evaluator.judge.problem.twin import is_out_of_memory

            if not self._kept or not is_out_of_memory(error):
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
            or sum(each.held_bytes for each in self._kept.values()) > room_bytes
        ):
            self._drop(1)

    def _drop(self, count: int) -> None:
        """Close the `count` least recently used problems."""
        for name in list(self._kept)[:count]:
            self._kept.pop(name).close()
