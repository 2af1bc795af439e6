"""Cuts the tree of module calls into regions that do not overlap: which modules are worth a kernel each.

A region is a module that one kernel can replace: at most `MOST_OPERATORS` operators, and it saves more than the regions
inside it together. A container of repeated layers is not a region, since a kernel for one layer serves all of them. Calls
of one group (the same class, structure and form) are decided together, so that noise in one of them decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

MOST_OPERATORS = 60
"""A region with more operators is too much for one kernel file."""

MARGIN = 1.02
"""A module must save more than its regions by this factor, since times are noisy and smaller regions are easier."""

MOST_IN_REPEATS = 0.5
"""If layers of one group take more than this share of a module's time, the module is a container of repeated layers."""


@dataclass
class Call:
    """One call of a module during one run, with the calls inside it."""

    group: Hashable
    """The same for calls of modules of the same class, structure and form of call."""

    path: str
    time_s: float
    floor_s: float
    """The least time for its work on this device."""

    operators: int
    children: list[Call] = field(default_factory=list)
    weight: int = 1
    """How often a run makes this call."""

    has_parts: bool = False
    """Whether the module has submodules, called or not."""

    @property
    def saving_s(self) -> float:
        """What a kernel could save at most, in all calls that this one stands for."""
        return max(self.time_s - self.floor_s, 0.0) * self.weight

    @property
    def own_s(self) -> float:
        """The time outside of the modules that it calls: its functional work."""
        return max(self.time_s - sum(child.time_s for child in self.children), 0.0)


def walk(calls: Sequence[Call]) -> Iterator[Call]:
    """All calls, each before those inside it."""
    for call in calls:
        yield call
        yield from walk(call.children)


def cut(roots: Sequence[Call]) -> list[Call]:
    """The calls that are regions; none of them is inside another."""
    groups: dict[Hashable, list[Call]] = defaultdict(list)
    for call in walk(roots):
        groups[call.group].append(call)
    height = {group: max(map(_height, calls)) for group, calls in groups.items()}
    chosen: dict[Hashable, bool] = {}
    best: dict[int, float] = {}  # by id of a call: what the regions in it save
    for group in sorted(groups, key=lambda group: height[group]):
        calls = groups[group]
        inside = {id(call): sum(best.get(id(c), 0.0) for c in call.children) for call in calls}
        own_s = sum(call.saving_s for call in calls)
        chosen[group] = (
            all(_can_be_region(call) for call in calls)
            and own_s > 0
            and own_s > MARGIN * sum(inside.values())
        )
        for call in calls:
            best[id(call)] = call.saving_s if chosen[group] else inside[id(call)]
    return list(_topmost(roots, chosen))


def outside(roots: Sequence[Call], regions: Sequence[Call]) -> list[Call]:
    """The calls that are neither regions nor inside one."""
    chosen = {id(call) for call in regions}

    def left(calls: Sequence[Call]) -> Iterator[Call]:
        for call in calls:
            if id(call) not in chosen:
                yield call
                yield from left(call.children)

    return list(left(roots))


def _topmost(calls: Sequence[Call], chosen: dict[Hashable, bool]) -> Iterator[Call]:
    for call in calls:
        if chosen[call.group]:
            yield call
        else:
            yield from _topmost(call.children, chosen)


def _can_be_region(call: Call) -> bool:
    return 1 <= call.operators <= MOST_OPERATORS and not _is_container(call)


def _is_container(call: Call) -> bool:
    """Whether most of the time is that of equal layers, or of such a container.

    A module with one operator and without submodules, such as a linear layer, is no layer in this sense.
    """
    in_layers: dict[Hashable, list[float]] = defaultdict(list)
    for child in call.children:
        if child.operators > 1 or child.has_parts:
            in_layers[child.group].append(child.time_s)
    in_containers = (child.time_s for child in call.children if _is_container(child))
    repeated = (sum(times) for times in in_layers.values() if len(times) > 1)
    return any(time_s > MOST_IN_REPEATS * call.time_s for time_s in (*in_containers, *repeated))


def _height(call: Call) -> int:
    return 1 + max(map(_height, call.children), default=0)
