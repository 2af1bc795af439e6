"""Finds the run or bench that a user means: by its id or name, by a unique prefix of its id or name, or by `last`."""

from __future__ import annotations

import difflib
from typing import Literal

from stark.core.errors import UsageError

_WORDS = {
    "run": ("runs", "id", "stark optimize PROBLEM", "stark runs"),
    "bench": ("benches", "name", "stark bench run PATH", "stark bench list"),
}


def resolve(asked: str, names: list[str], kind: Literal["run", "bench"]) -> str:
    """The one of `names` (oldest first) that the user means by `asked`. Raises UsageError if there is not exactly one."""
    plural, name, maker, lister = _WORDS[kind]
    if asked in names:
        return asked
    if not names:
        raise UsageError(f"there are no {plural} yet; `{maker}` makes one")
    if asked == "last":
        return names[-1]
    matching = [each for each in names if each.startswith(asked)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(f"{kind} '{asked}' could be {_named(matching)}; write more of its {name}")
    close = difflib.get_close_matches(asked, names)
    hint = f"did you mean {_named(close)}?" if close else f"`{lister}` lists all that exist"
    raise UsageError(f"there is no {kind} '{asked}'; {hint}")


def _named(names: list[str], most: int = 5) -> str:
    rest = f" or {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
