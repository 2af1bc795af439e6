"""What models took, by role, and what was left out of their prompts.

A number of tokens that no model told is an estimate and marked by `~`. Knows no single run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stark.core.call import Call, Fit, Kept
from stark.core.usage import BYTES_PER_TOKEN, RoleUsage, Tokens, by_role, role_usage
from stark.explain.numbers import duration

ESTIMATED = (
    f"~ is an estimate, at {BYTES_PER_TOKEN} bytes a token, where a model did not tell its tokens"
)
"""What the mark means."""

_LEFT: dict[Kept, str] = {"outcome": "no source of", "line": "one line of", "nothing": "nothing of"}


def roles_of(calls: Iterable[Call]) -> tuple[RoleUsage, ...]:
    """What these calls took, by role."""
    return by_role(
        role_usage(call.role, call.reply.usage, call.asked_bytes, call.answered_bytes)
        for call in calls
    )


def in_all(roles: Sequence[RoleUsage]) -> RoleUsage | None:
    """Every role together; None where there is none."""
    whole = by_role(role.model_copy(update={"role": "all"}) for role in roles)
    return whole[0] if whole else None


def spending(roles: Sequence[RoleUsage]) -> Iterator[RenderableType]:
    """A table with a line for each role and one for all, and what its marks mean."""
    yield _table(roles)
    if any(role.input.estimated or role.output.estimated for role in roles):
        yield Text(ESTIMATED, "dim")


def _table(roles: Sequence[RoleUsage]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("role", no_wrap=True)
    for name in ("calls", "input tokens", "output tokens", "price", "waiting"):
        table.add_column(name, no_wrap=True, justify="right")
    whole = in_all(roles)
    for each in (*roles, whole) if whole and len(roles) > 1 else roles:
        table.add_row(
            each.role,
            f"{each.calls:,}",
            str(each.input),
            str(each.output),
            dollars(each),
            duration(each.seconds),
        )
    return table


def dollars(usage: RoleUsage) -> str:
    """The price; one that is not known in full is said to be unknown."""
    return "unknown" if usage.dollars is None else f"${usage.dollars:.2f}"


def thousands(tokens: Tokens) -> str:
    """A number of tokens for a narrow column, such as `~312k`."""
    count = tokens.told + tokens.estimated
    short = f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
    return f"{'~' if tokens.estimated else ''}{short if count >= 1000 else count}"


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
