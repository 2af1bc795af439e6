"""What agents and scripts read of a problem, a check and an evaluation: short documents with a published schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from stark.core.base import Frozen
from stark.core.evaluation import Accuracy, Evaluation, Untimed
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluating import Checked, Judged
from stark.explain.device import device_text, reference_text, signature_text
from stark.explain.evaluation import accuracy_text, evidence
from stark.languages import LANGUAGES
from stark.report.evaluation_document import EvaluationDocument, evaluation_document


class ProblemDocument(Frozen):
    """A problem with its reference as measured on this device."""

    version: Literal[1] = 1
    problem: str
    summary: str
    """Inputs and outputs, reference time, roofline, error budget and device in English."""

    languages: tuple[str, ...]
    """The languages that candidates may be written in on this device, the preferred one first."""

    latency_ms: float
    roofline_ms: float | None
    """The least possible time; null if it is unknown. With several cases, that of the main case."""

    reference: Reference
    guide: str | None = None
    """How candidates in the asked language are written, with the techniques that may pay here; null if not asked for."""


class CheckedDocument(Frozen):
    """Whether one candidate builds and is correct. It was not timed."""

    file: str
    language: str | None
    status: str
    evidence: str
    accuracy: Accuracy | None
    warnings: tuple[str, ...]


class CheckDocument(Frozen):
    """What `stark check` prints."""

    version: Literal[1] = 1
    problem: str
    candidates: tuple[CheckedDocument, ...]


class JudgedDocument(EvaluationDocument):
    """One candidate of `stark evaluate`."""

    file: str
    language: str | None
    shortfall: str | None
    """How the candidate misses the demanded speedup; null if it does not."""

    run: str | None = None
    attempt: int | None = None
    """Where the evaluation is stored; null unless it was asked to be kept."""

    evaluation: Evaluation


class EvaluateDocument(Frozen):
    """What `stark evaluate` prints."""

    version: Literal[1] = 1
    problem: str
    reference: Reference
    candidates: tuple[JudgedDocument, ...]


def problem_document(
    problem: Problem, reference: Reference, language: str | None = None
) -> ProblemDocument:
    """The document of a problem; with the guide of `language`, if there is one."""
    roof = reference.roofline
    return ProblemDocument(
        problem=problem.name,
        summary=problem_text(reference),
        languages=runnable(reference),
        latency_ms=reference.latency_ms,
        roofline_ms=roof.floor_ms or None if roof.is_known(reference.eager.latency_ms) else None,
        reference=reference,
        guide=None if language is None else guide_text(reference, language),
    )


def problem_text(reference: Reference) -> str:
    """Everything measured about a problem, without the language's guide."""
    return "\n".join(
        [
            signature_text(reference),
            "",
            reference_text(reference),
            "",
            "Device:",
            device_text(reference.device),
            f"Languages: {', '.join(runnable(reference))}",
        ]
    )


def runnable(reference: Reference) -> tuple[str, ...]:
    """The languages that the reference's device can run, in order of preference."""
    kind = reference.device.kind
    return tuple(name for name, entry in LANGUAGES.items() if kind in entry.device_kinds)


def guide_text(reference: Reference, language: str) -> str:
    """The language's guide, with the techniques that may pay for this problem on this device."""
    return LANGUAGES[language].guidance(reference, reference.backward).to_write


def check_document(problem: Problem, checked: Sequence[Checked]) -> CheckDocument:
    """Build and correctness of every candidate."""
    return CheckDocument(problem=problem.name, candidates=tuple(map(checked_document, checked)))


def checked_document(checked: Checked) -> CheckedDocument:
    """Build and correctness of one candidate."""
    found = checked.evaluation
    accuracy = found.accuracy if isinstance(found, Untimed) else None
    return CheckedDocument(
        file=checked.file,
        language=checked.candidate and checked.candidate.language,
        status=found.status,
        evidence=evidence(found)
        if not isinstance(found, Untimed)
        else accuracy_text(found.accuracy),
        accuracy=accuracy,
        warnings=found.warnings,
    )


def evaluate_document(
    problem: Problem,
    reference: Reference,
    judged: Sequence[Judged],
    missed: Mapping[str, str],
    run: str | None,
    attempts: Mapping[str, int],
    own: Reference | None = None,
) -> EvaluateDocument:
    """Every candidate's evaluation; `missed` and `attempts` are by file.

    `own` is the reference whose roofline counts: the run's, if the evaluations are kept.
    """
    return EvaluateDocument(
        problem=problem.name,
        reference=reference,
        candidates=tuple(
            JudgedDocument(
                **dict(evaluation_document(each.evaluation, own or reference)),
                file=each.file,
                language=each.candidate and each.candidate.language,
                shortfall=missed.get(each.file),
                run=run if each.file in attempts else None,
                attempt=attempts.get(each.file),
                evaluation=each.evaluation,
            )
            for each in judged
        ),
    )
