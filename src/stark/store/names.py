"""Which run or bench a user means by an id, a unique prefix of an id, or `last`."""

from __future__ import annotations

import difflib
from typing import Literal

from stark.core.errors import UsageError

_MAKERS = {"run": "stark optimize PROBLEM", "bench": "stark bench run PATH"}
_LISTERS = {"run": "stark runs", "bench": "stark bench list"}


def resolve(asked: str, names: list[str], kind: Literal["run", "bench"]) -> str:
    """The one name among `names` (oldest first) that a person means."""
    if asked in names:
        return asked
    if not names:
        plural = "benches" if kind == "bench" else "runs"
        raise UsageError(f"there are no {plural} yet; `{_MAKERS[kind]}` makes one")
    if asked == "last":
        return names[-1]
    matching = [name for name in names if name.startswith(asked)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UsageError(
            f"{kind} '{asked}' could be {_named(matching)}; write more of its "
            f"{'id' if kind == 'run' else 'name'}"
        )
    close = difflib.get_close_matches(asked, names)
    listing = f"`{_LISTERS[kind]}` lists those there are"
    raise UsageError(
        f"there is no {kind} '{asked}'; {f'did you mean {_named(close)}?' if close else listing}"
    )


def _named(names: list[str], most: int = 5) -> str:
    """Some names in words."""
    rest = f" or {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
