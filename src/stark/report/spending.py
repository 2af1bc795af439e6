"""Model usage by role, and what was cut from prompts.

A number of tokens that no model reported is an estimate, marked by `~`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stark.core.call import Call, Fit, Kept
from stark.core.usage import BYTES_PER_TOKEN, RoleUsage, Tokens, by_role, role_usage
from stark.explain.numbers import duration
from stark.report.tables import columns

ESTIMATED = (
    f"~ is an estimate, at {BYTES_PER_TOKEN} bytes a token, for models that report no tokens"
)

_LEFT: dict[Kept, str] = {"outcome": "no source of", "line": "one line of", "nothing": "nothing of"}


def roles_of(calls: Iterable[Call]) -> tuple[RoleUsage, ...]:
    """The usage of these calls, by role."""
    return by_role(
        role_usage(call.role, call.reply.usage, call.asked_bytes, call.answered_bytes)
        for call in calls
    )


def in_all(roles: Sequence[RoleUsage]) -> RoleUsage | None:
    """The sum over all roles; None if there are none."""
    whole = by_role(role.model_copy(update={"role": "all"}) for role in roles)
    return whole[0] if whole else None


def spending(roles: Sequence[RoleUsage]) -> Iterator[RenderableType]:
    """A table with a line per role and a total, and the meaning of its marks."""
    yield _table(roles)
    if any(role.input.estimated or role.output.estimated for role in roles):
        yield Text(ESTIMATED, "dim")


def _table(roles: Sequence[RoleUsage]) -> Table:
    table = columns("role", numbers=("calls", "tokens in", "tokens out", "price", "waiting"))
    whole = in_all(roles)
    for each in (*roles, whole) if whole and len(roles) > 1 else roles:
        tokens = str(each.input), str(each.output)
        table.add_row(each.role, f"{each.calls:,}", *tokens, dollars(each), duration(each.seconds))
    return table


def dollars(usage: RoleUsage) -> str:
    """The price, or `unknown` if a part of it is."""
    return "unknown" if usage.dollars is None else f"${usage.dollars:.2f}"


def thousands(tokens: Tokens) -> str:
    """A number of tokens for a narrow column, such as `~312k`."""
    count = tokens.told + tokens.estimated
    short = f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
    return f"{'~' if tokens.estimated else ''}{short if count >= 1000 else count}"


def fit_line(fit: Fit) -> str | None:
    """What was cut from a prompt, in one line; None if it fits uncut."""
    cut = [
        f"{words} {', '.join(attempts)}"
        for kept, words in _LEFT.items()
        if (attempts := [str(each.attempt) for each in fit.cuts if each.kept == kept])
    ]
    left_out = f": {'; '.join(cut)}" if cut else ""
    if fit.over:
        limit = f"over its limit of {fit.limit_tokens:,} although nothing more could be cut"
        return f"about {fit.tokens:,} tokens, {limit}{left_out}"
    return f"cut to about {fit.tokens:,} of {fit.limit_tokens:,} tokens{left_out}" if cut else None
