"""An evaluation as plain data: its status, its evidence and the figures that follow from it.

Derived figures (latency, speedup, share of the roofline) are included, each also as text. An unknown number is null.
"""

from __future__ import annotations

from pydantic import Field

from stark.core.base import Frozen
from stark.core.declared import Objective
from stark.core.evaluation import Accuracy, Correct, Evaluation
from stark.core.measurement import Speedup
from stark.core.reference import Reference
from stark.explain.evaluation import (
    eager_beside,
    explain,
    precision_met,
    reason,
    roofline_share,
    roofline_text,
    speedup_text,
)
from stark.explain.numbers import milliseconds
from stark.explain.profile import bottleneck_text
from stark.report.one_roofline import on_one_roofline

LONGEST_REASON, LONGEST_EVIDENCE = 400, 20_000
"""Characters that are kept of what a program may have written. `NodeDocument.node` has all of it."""


class BottleneckDocument(Frozen):
    """What limits a kernel: the kind for programs, the text for people."""

    kind: str
    text: str


class Figures(Frozen):
    """The figures of a correct candidate as texts, as every table shows them."""

    latency: str
    speedups: dict[str, str]
    """By reference, such as `2.00x [1.98, 2.02]`."""

    eager: str = ""
    """Eager mode's time as measured beside this candidate, which the speedup is of; empty if it was not measured."""

    eager_beside: str = ""
    """Eager mode's time as measured beside this candidate, such as `eager 71.4 ms`; empty if the run's reference took about as long."""

    roofline: str
    """The share of the roofline, or `unknown`."""

    roofline_why: str = ""
    """Why the roofline is unknown; empty if it is known."""

    error: str
    meets: str
    """The strictest precision class that the error meets."""


class EvaluationDocument(Frozen):
    """Status, evidence and derived figures. Only a correct candidate has figures."""

    status: str
    evidence: str
    reason: str
    """Why the candidate failed, in one line; empty if it is correct."""

    case: str | None = None
    """The case in which the candidate failed; null if it is correct, or if the problem has no cases."""

    latency_ms: float | None = None
    speedups: dict[str, Speedup] = Field(default={})
    """By reference: `eager`, `compile` and others that were measured."""

    references_ms: dict[str, float] = Field(default={})
    """The references' times, measured beside the candidate."""

    roofline_fraction: float | None = None
    """The share of the roofline of the run's reference; null if it is unknown."""

    accuracy: Accuracy | None = None
    bottleneck: BottleneckDocument | None = None
    """With several cases, that of the main case."""

    figures: Figures | None = None
    objective: Objective | None = None
    """How the cases' speedups become one; null if the problem has no cases. Then `cases` is empty."""

    main_case: str | None = None
    weight: float | None = None
    """The weight of this case; null unless this is one of several cases."""

    cases: dict[str, EvaluationDocument] = Field(default={})


def evaluation_document(
    evaluation: Evaluation, reference: Reference | None = None, weight: float | None = None
) -> EvaluationDocument:
    """The document of an evaluation; `weight` is that of its case, if it belongs to one of several cases.

    With the run's reference, shares of the roofline are of that reference's roofline.
    """
    own, evaluation = evaluation, on_one_roofline(evaluation, reference)
    if not isinstance(evaluation, Correct) or not isinstance(own, Correct):
        return EvaluationDocument(
            status=evaluation.status,
            evidence=_cut(explain(evaluation), LONGEST_EVIDENCE),
            reason=_cut(reason(evaluation), LONGEST_REASON),
            case=evaluation.case,
        )
    profiled, weighing = own.profiled, own.weighing  # the diagnosis stays that of the judge
    speedups = {name: evaluation.speedup_vs(name) for name in evaluation.references}
    return EvaluationDocument(
        status=own.status,
        evidence=_cut(explain(own, on_roofline=evaluation), LONGEST_EVIDENCE),
        reason="",
        latency_ms=evaluation.latency_ms,
        speedups=speedups,
        references_ms={name: evaluation.reference_ms(name) for name in evaluation.references},
        roofline_fraction=evaluation.roofline_fraction,
        accuracy=evaluation.accuracy,
        bottleneck=profiled
        and BottleneckDocument(kind=profiled.bottleneck.kind, text=bottleneck_text(profiled)),
        figures=Figures(
            latency=milliseconds(evaluation.latency_ms),
            speedups={name: speedup_text(each, named=False) for name, each in speedups.items()},
            eager=milliseconds(evaluation.reference_ms("eager"))
            if "eager" in evaluation.references
            else "",
            eager_beside=eager_beside(
                evaluation, None if reference is None else reference.latency_ms
            ).strip(" ()"),
            roofline=roofline_share(evaluation),
            roofline_why="" if evaluation.roofline_fraction else roofline_text(evaluation),
            error=f"{evaluation.accuracy.relative_rms:.2g}",
            meets=precision_met(evaluation),
        ),
        objective=weighing and weighing.objective,
        main_case=weighing and weighing.main,
        weight=weight,
        cases={}
        if weighing is None
        else {
            case: evaluation_document(
                each, reference and reference.cases.get(case), weighing.weights[case]
            )
            for case, each in own.cases.items()
        },
    )


def _cut(text: str, most: int) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
