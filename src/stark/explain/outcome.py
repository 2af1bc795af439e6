"""What a run has achieved so far, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from stark.core.evaluation import Evaluation
from stark.core.node import Node
from stark.core.run import Ended
from stark.core.standing import Standing
from stark.explain.numbers import counted

Outcome = Literal["confirmed", "unconfirmed", "refuted", "nothing", "refused"]

_SENTENCES: dict[str, str] = {
    "confirmed": "Attempt {best} passed the final check.",
    "unconfirmed": "Attempt {best} leads by the search's own measurements; the final check is still to come.",
    "unchecked": "Attempt {best} leads by the search's own measurements; it had no final check.",
    "refuted": "None of the fastest kernels passed the final check.",
    "nothing": "No correct kernel yet, after {attempts}.",
    "refused": "The judge cannot use this problem.",
}


def outcome(standing: Standing, checks: Mapping[int, Evaluation], ended: Ended | None) -> Outcome:
    """How far the run's best kernel is established."""
    if ended is not None and ended.kind == "refused":
        return "refused"
    if standing.best is None:
        return "refuted" if checks else "nothing"
    return "confirmed" if standing.confirmed else "unconfirmed"


def outcome_text(found: Outcome, best: Node | None, attempts: int, over: bool = False) -> str:
    """The sentence; `over` if the run has ended."""
    name = "unchecked" if over and found == "unconfirmed" else found
    return _SENTENCES[name].format(best=best and best.id, attempts=counted(attempts, "attempt"))
