"""What models took, by role, and what was left out of their prompts.

A number of tokens that no model told is an estimate and marked by `~`. Knows no single run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stark.core.call import Fit, Kept
from stark.core.usage import BYTES_PER_TOKEN, Spent
from stark.explain.numbers import counted, duration
from stark.explain.run import dollars, token_count

ESTIMATED = (
    f"~ is an estimate, at {BYTES_PER_TOKEN} bytes a token, where a model did not tell its tokens"
)
"""What the mark means."""

_LEFT: dict[Kept, str] = {"outcome": "no source of", "line": "one line of", "nothing": "nothing of"}


def spending(roles: Mapping[str, Spent]) -> Iterator[RenderableType]:
    """A table with a line for each role and one for all, and what its marks mean."""
    whole = sum(roles.values(), Spent())
    rows = {**roles, "all": whole} if len(roles) > 1 else roles
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("role", no_wrap=True)
    for name in ("calls", "input tokens", "output tokens", "price", "waiting"):
        table.add_column(name, no_wrap=True, justify="right")
    for role, spent in rows.items():
        table.add_row(
            role,
            f"{spent.calls:,}",
            token_count(spent.input_tokens, spent),
            token_count(spent.output_tokens, spent),
            dollars(spent),
            duration(spent.seconds),
        )
    yield table
    if whole.estimated_calls:
        yield Text(ESTIMATED, "dim")
    if whole.lost_calls:
        yield Text(
            f"{counted(whole.lost_calls, 'call')} in flight when the process was killed: cost unknown, charged as reserved",
            "dim",
        )


def thousands(spent: Spent) -> str:
    """A number of tokens for a narrow column, such as `~312k`."""
    count = spent.tokens
    short = f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
    return f"{'~' if spent.estimated_calls else ''}{short if count >= 1000 else count}"


def fit_line(fit: Fit) -> str | None:
    """What was left out of a prompt, in a line; None where nothing was and it fits."""
    said = [
        f"{words} {', '.join(attempts)}"
        for kept, words in _LEFT.items()
        if (attempts := [str(cut.attempt) for cut in fit.cuts if cut.kept == kept])
    ]
    left_out = f": {'; '.join(said)}" if said else ""
    if fit.over:
        return (
            f"about {fit.tokens:,} tokens, over its limit of {fit.limit_tokens:,} although nothing more could be "
            f"left out{left_out}"
        )
    return f"cut to about {fit.tokens:,} of {fit.limit_tokens:,} tokens{left_out}" if said else None
