"""The first thing to read about a run: what was achieved, whether it is verified, against which references, at what cost."""

from __future__ import annotations

from collections.abc import Iterator

from stark.core.base import Frozen
from stark.core.evaluation import Correct
from stark.core.measurement import Speedup
from stark.core.node import Node
from stark.core.standing import Standing
from stark.explain.evaluation import (
    Meaning,
    accuracy_text,
    meaning,
    roofline_text,
    speedup_text,
    verdict,
)
from stark.explain.numbers import duration, milliseconds
from stark.explain.outcome import Outcome, outcome, outcome_text
from stark.explain.run import idea, price, tokens
from stark.report.one_roofline import on_one_roofline
from stark.report.view import RunView


class Claim(Frozen):
    """The best kernel against one reference."""

    reference: str
    speedup: Speedup
    factor: str
    """Such as `2.00x`."""

    meaning: Meaning
    text: str
    """The speedup with its interval and, for eager mode, what the interval means."""

    reference_latency: str


class Headline(Frozen):
    """The state of a run and its best kernel."""

    outcome: Outcome
    sentence: str
    over: bool
    """Whether nothing more is to come: the run has ended, or is a recording."""

    warnings: tuple[str, ...]
    """What a reader must know before the figures: of the reference, and of the best kernel."""

    attempt: int | None
    idea: str
    claims: tuple[Claim, ...]
    """Against eager first. Empty without a correct kernel."""

    latency: str | None
    roofline: str | None
    accuracy: str | None
    precision: str
    """The class that was asked for."""

    cost: str
    tokens: str
    calls: int
    time: str | None
    """The run's active time; null if it is unknown."""


def headline(
    view: RunView, standing: Standing, best: Node | None, attempts: int, reply: str = ""
) -> Headline:
    """The headline of a run in its current state. `best` has the evaluation that ranks it first.

    `reply` is the reply that wrote it.
    """
    found = outcome(standing, view.promotions, view.ended)
    kernel = best and on_one_roofline(best.evaluation, view.reference)
    correct = kernel if isinstance(kernel, Correct) else None
    over = view.ended is not None or view.elapsed_s is None
    return Headline(
        outcome=found,
        sentence=outcome_text(found, best, attempts, over),
        over=over,
        warnings=tuple(dict.fromkeys(_warnings(view, correct))),
        attempt=best and best.id,
        idea=idea(best, reply) if best else "",
        claims=() if correct is None else _claims(correct),
        latency=correct and milliseconds(correct.latency_ms),
        roofline=correct and roofline_text(correct),
        accuracy=correct and accuracy_text(correct.accuracy),
        precision=view.run.config.limits.precision,
        cost="nothing was paid" if view.run.is_replay else price(view.spent),
        tokens=tokens(view.spent),
        calls=view.spent.calls,
        time=None if view.elapsed_s is None else duration(view.elapsed_s),
    )


def _warnings(view: RunView, correct: Correct | None) -> Iterator[str]:
    """Of the reference, of the best kernel, and of a kernel that is faster than the roofline."""
    if view.reference is not None:
        yield from view.reference.warnings
    if correct is not None:
        beaten = correct.roofline_fraction is None
        # Its own warning has the roofline of its own window.
        yield from (each for each in correct.warnings if not (beaten and "the roofline" in each))
        if beaten:
            yield roofline_text(correct)


def _claims(correct: Correct) -> tuple[Claim, ...]:
    names = sorted(correct.references, key=lambda name: name != "eager")
    return tuple(
        Claim(
            reference=name,
            speedup=correct.speedup_vs(name),
            factor=speedup_text(correct.speedup_vs(name), named=False).split("x")[0] + "x",
            meaning=meaning(correct.speedup_vs(name)),
            text=verdict(correct, name),
            reference_latency=milliseconds(correct.reference_ms(name)),
        )
        for name in names
    )
