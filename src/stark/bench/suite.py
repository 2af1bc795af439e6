"""Which problems a bench is about: levels of a KernelBench checkout, or folders of files.

Knows no strategy and no run. KernelBench's problems are read from the user's own checkout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stark.bench.results import ALL_LEVELS
from stark.core.errors import UsageError
from stark.core.problem import Problem
from stark.problems import load_all, load_level


class Member(NamedTuple):
    """A problem of a suite and the level that its numbers are summed up with."""

    level: str
    problem: Problem


class Suite(NamedTuple):
    """Problems in the order in which they are worked on."""

    name: str
    members: tuple[Member, ...]


def kernelbench(path: Path | None, levels: Sequence[int], numbers: Sequence[int] | None) -> Suite:
    """Levels of the KernelBench checkout at `path`, or of each level the problems of these numbers."""
    members = [
        Member(level, problem)
        for level in (f"level{number}" for number in levels)
        for problem in load_level(level, path, numbers)
    ]
    return _suite("kernelbench", members)


def folders(paths: Sequence[Path]) -> Suite:
    """The problem files of these folders, or single files; each is of the level of its folder's name."""
    members = []
    for path in paths:
        folder = path.resolve() if path.is_dir() else path.resolve().parent
        members += [Member(folder.name, problem) for problem in load_all(str(path))]
    return _suite("-".join(dict.fromkeys(member.level for member in members)), members)


def _suite(name: str, members: list[Member]) -> Suite:
    """A problem's level and name are how a report knows it, so they name one problem."""
    counts = Counter((level, problem.name) for level, problem in members)
    (level, problem), times = counts.most_common(1)[0]
    if times > 1:
        raise UsageError(f"{problem} of {level} is named {times} times; name each problem once")
    same = Counter((problem.name, problem.source) for _, problem in members)
    (name_of_it, _), times = same.most_common(1)[0]
    if times > 1:  # a run is known by what it is about, and not by its level
        raise UsageError(f"{name_of_it} is the same in {times} folders; name it once")
    if ALL_LEVELS in {level for level, _ in members}:
        raise UsageError(f"a report calls all folders together {ALL_LEVELS}; rename that folder")
    return Suite(name, tuple(members))
