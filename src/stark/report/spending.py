"""Model usage by role, and what was cut from prompts.

A number of tokens that no model reported is an estimate, marked by `~`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from stark.core.call import Fit, Kept
from stark.core.usage import BYTES_PER_TOKEN, Spent
from stark.explain.numbers import counted, duration
from stark.explain.run import dollars, token_count
from stark.report.tables import columns
from stark.report.view import RunView

ESTIMATED = (
    f"~ is an estimate, at {BYTES_PER_TOKEN} bytes per token, for models that report no tokens"
)

PREPARED = "the command replied in under 1 s, sooner than a model writes: its replies were prepared before the run, such as in files"

_LEFT: dict[Kept, str] = {
    "outcome": "the source of",
    "line": "all but one line of",
    "nothing": "all of",
}


class Row(NamedTuple):
    """What one role cost, as texts."""

    role: str
    calls: str
    tokens_in: str
    tokens_out: str
    price: str
    waiting: str


def spending_rows(roles: Mapping[str, Spent]) -> Iterator[Row]:
    """One row per role, and a total if there are several roles."""
    total = sum(roles.values(), Spent())
    for role, spent in ({**roles, "all": total} if len(roles) > 1 else roles).items():
        yield Row(
            role,
            f"{spent.calls:,}",
            token_count(spent.input_tokens, spent),
            token_count(spent.output_tokens, spent),
            dollars(spent),
            waited(spent.seconds),
        )


def waited(seconds: float) -> str:
    """How long calls took; a recorded or prepared reply comes at once."""
    return "under 1 s" if seconds < 1 else duration(seconds)


def spending_notes(roles: Mapping[str, Spent]) -> Iterator[str]:
    """The meaning of the rows' marks, and calls of unknown cost."""
    total = sum(roles.values(), Spent())
    if total.estimated_calls:
        yield ESTIMATED
    if total.lost_calls:
        lost = f"{counted(total.lost_calls, 'call')} in flight when the process was killed"
        yield f"{lost}: cost unknown, so the reserved amount is charged"


def run_notes(view: RunView) -> Iterator[str]:
    """What else there is to know about a run's model calls. A view without calls does not know which prompts were cut."""
    if view.run.is_replay:
        yield f"{view.spent.calls} recorded replies; no model was called, and nothing was paid"
        return
    yield from spending_notes(view.roles)
    spent, models = view.spent, view.run.config.models.values()
    commands = all(each.model.startswith("exec") for each in models)
    if commands and spent.calls > spent.lost_calls and spent.seconds < 1:
        yield PREPARED
    waiting = [counted(view.in_flight, "call") + " in flight"] if view.in_flight else []
    failed = [counted(view.failed, "call") + " failed"] if view.failed else []
    if waiting or failed or not view.roles:
        yield ", ".join([*waiting, *failed]) or "no model was called"
    if cut := sum(call.fit is not None and bool(call.fit.cuts) for call in view.calls):
        limit = f"{view.run.config.window_tokens:,} tokens"
        yield f"{cut} of {len(view.calls)} prompts were cut to fit {limit}; each attempt lists its cuts"


def spending(rows: Sequence[Row], notes: Iterable[str]) -> Iterator[RenderableType]:
    """A table with a line per role and a total, and the notes."""
    if rows:
        table = columns("role", numbers=("calls", "tokens in", "tokens out", "price", "waiting"))
        for row in rows:
            table.add_row(*row)
        yield table
    yield from (Text(note, "dim" if rows else "") for note in notes)


def thousands(spent: Spent) -> str:
    """A number of tokens for a narrow column, such as `~312k`."""
    count = spent.tokens
    short = f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
    return f"{'~' if spent.estimated_calls else ''}{short if count >= 1000 else count}"


def fit_line(fit: Fit) -> str | None:
    """What was cut from a prompt, in one line; None if the prompt fits uncut."""
    cut = [
        f"{words} {', '.join(attempts)}"
        for kept, words in _LEFT.items()
        if (attempts := [str(each.attempt) for each in fit.cuts if each.kept == kept])
    ]
    left_out = f"; left out: {'; '.join(cut)}" if cut else ""
    if fit.over:
        limit = f"over the limit of {fit.limit_tokens:,}, and nothing more could be cut"
        return f"about {fit.tokens:,} tokens, {limit}{left_out}"
    limit = f"(limit {fit.limit_tokens:,})"
    return f"cut to about {fit.tokens:,} tokens {limit}{left_out}" if cut else None
