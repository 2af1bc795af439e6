"""The problems of a bench: levels of the user's KernelBench checkout, or folders of problem files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stark.benches.results import ALL_LEVELS
from stark.core.errors import UsageError
from stark.core.problem import Problem
from stark.problems import load_all, load_level


class Member(NamedTuple):
    """A problem and its level. Reports summarize the problems of a level together."""

    level: str
    problem: Problem


class Suite(NamedTuple):
    """The problems, in the order in which a bench works on them."""

    name: str
    members: tuple[Member, ...]

    def with_backward(self) -> Suite:
        """The same problems with their gradients."""
        members = (Member(each.level, each.problem.with_backward()) for each in self.members)
        return self._replace(members=tuple(members))


def kernelbench(path: Path | None, levels: Sequence[int], numbers: Sequence[int] | None) -> Suite:
    """The problems of these levels in the KernelBench checkout at `path`.

    If `numbers` is given, only the problems with these numbers are taken from each level.
    """
    members = [
        Member(level, problem)
        for level in (f"level{number}" for number in levels)
        for problem in load_level(level, path, numbers)
    ]
    return _suite("kernelbench", members)


def folders(paths: Sequence[Path]) -> Suite:
    """The problems in these folders and files; a problem's level is the name of its folder."""
    members = []
    for path in paths:
        folder = path.resolve() if path.is_dir() else path.resolve().parent
        members += [Member(folder.name, problem) for problem in load_all(str(path))]
    return _suite("-".join(dict.fromkeys(member.level for member in members)), members)


def _suite(name: str, members: list[Member]) -> Suite:
    """The suite of these problems. Raises UsageError if reports or runs could not tell two of them apart."""
    if not members:
        raise UsageError("a bench needs at least one problem")
    counts = Counter((level, problem.name) for level, problem in members)
    (level, problem), times = counts.most_common(1)[0]
    if times > 1:
        raise UsageError(f"{problem} of {level} is listed {times} times; list each problem once")
    same = Counter((problem.name, problem.source) for _, problem in members)
    (name_of_it, _), times = same.most_common(1)[0]
    if times > 1:  # runs are named by their content, which does not include the level
        raise UsageError(
            f"{name_of_it} has the same content in {times} folders; list only one of these files"
        )
    if ALL_LEVELS in {level for level, _ in members}:
        raise UsageError(
            f"a folder of problems cannot be called {ALL_LEVELS!r}, since reports use that name for all levels together; "
            "rename that folder"
        )
    return Suite(name, tuple(members))
