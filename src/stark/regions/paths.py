"""Writes many paths of submodules as one: `layers.0.mlp`, `layers.1.mlp`, … is `layers.0-1.mlp`."""

from __future__ import annotations

from collections.abc import Sequence


def joined(paths: Sequence[str]) -> str:
    """All paths in one line. Numbers that follow each other become a range, where the paths differ in one number."""
    parts = [tuple(path.split(".")) for path in dict.fromkeys(paths)]
    while (shorter := _one_merged(parts)) is not None:
        parts = shorter
    return ", ".join(".".join(part) or "the model itself" for part in parts)


def _one_merged(parts: list[tuple[str, ...]]) -> list[tuple[str, ...]] | None:
    """The paths with all that differ in the same place from the first of them merged; None if none can be merged."""
    for first, path in enumerate(parts):
        for place, name in enumerate(path):
            alike = [
                other
                for other in parts[first:]
                if len(other) == len(path)
                and other[:place] == path[:place]
                and other[place + 1 :] == path[place + 1 :]
                and other[place].isdigit()
            ]
            if name.isdigit() and len(alike) > 1:
                numbers = sorted({int(other[place]) for other in alike})
                merged = (*path[:place], _ranges(numbers), *path[place + 1 :])
                return [*parts[:first], merged, *(o for o in parts[first:] if o not in alike)]
    return None


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3`, or `0-3,7` where numbers are missing."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
