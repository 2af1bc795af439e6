"""Divides the limits of a whole search among the regions, which are searched one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SHARED = ("tokens", "dollars", "minutes")
"""The limits that all regions share; `attempts` counts for each region."""


def part_of_next(
    limits: Mapping[str, float], used: Mapping[str, float], savings: Sequence[float]
) -> dict[str, float] | None:
    """The limits of the next run: of what is left, its share by possible saving.

    What a run leaves over goes to those after it, and the last one gets everything that is left.

    Args:
        limits: Limits of the whole search, by name; those that are absent do not apply.
        used: What the earlier runs used, by name.
        savings: Possible savings of the next region and of those after it.

    Returns:
        The next run's limits, or None if a limit is reached already.
    """
    share = savings[0] / sum(savings)
    left = {name: limit - used.get(name, 0.0) for name, limit in limits.items()}
    part = {name: rest * share for name, rest in left.items()}
    if "tokens" in part:
        part["tokens"] = int(part["tokens"])
    return part if all(rest > 0 for rest in part.values()) else None
