"""The references and the evaluations of a problem's cases, and repeated evaluations, as one reference and one evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from stark.core.cases import Weighing
from stark.core.evaluation import Accuracy, Correct, EvaluationBase, Phase, Untimed
from stark.core.measurement import Measurement
from stark.core.precision import CLASSES, Precision
from stark.core.reference import Reference


def reference_over(weighing: Weighing, cases: Mapping[str, Reference]) -> Reference:
    """The reference of a problem, from that of each case.

    Raises ValueError if arguments other than tensors differ between cases: a kernel that replaces the module is chosen by
    its tensors alone.
    """
    first, *others = cases
    for other in others:
        if cases[other].arguments != cases[first].arguments:
            raise ValueError(
                f"get_inputs returns {cases[first].arguments} in case {first} and {cases[other].arguments} in case {other}; "
                "only shapes, dtypes and values of tensors may differ between cases, so pass tensors, or write a problem "
                "for each"
            )
    warnings = warnings_over({case: each.warnings for case, each in cases.items()})
    changes = {"cases": dict(cases), "weighing": weighing, "warnings": warnings}
    return cases[weighing.main].model_copy(update=changes)


def correct_over(weighing: Weighing, cases: Mapping[str, Correct]) -> Correct:
    """The evaluation of a candidate that is correct in every case."""
    main = cases[weighing.main]
    measured = {
        name: reference
        for name, reference in main.references.items()
        if all(name in each.references for each in cases.values())
    }
    changes = {
        "seconds": seconds_over(cases.values()),
        "warnings": warnings_over({case: each.warnings for case, each in cases.items()}),
        "cases": dict(cases),
        "weighing": weighing,
        "references": measured,
        "accuracy": _worst([each.accuracy for each in cases.values()]),
        "generalizes": _all_of([each.generalizes for each in cases.values()]),
        "shapes_tried": tuple(
            dict.fromkeys(s for each in cases.values() for s in each.shapes_tried)
        ),
        "sanitized": tuple(
            check for check in main.sanitized if all(check in c.sanitized for c in cases.values())
        ),
    }
    return main.model_copy(update=changes)


def measured_again(earlier: Correct, later: Correct) -> Correct:
    """The later evaluation of a candidate with the times of both, in every case: more samples narrow the intervals."""
    references = {
        name: _with_samples(earlier.references[name], each)
        for name, each in later.references.items()
        if name in earlier.references
    }
    changes = {
        "candidate": _with_samples(earlier.candidate, later.candidate),
        "references": references,
        "cases": {name: measured_again(earlier.cases[name], c) for name, c in later.cases.items()},
    }
    return later.model_copy(update=changes)


def _with_samples(earlier: Measurement, later: Measurement) -> Measurement:
    changes = {
        "samples_ms": earlier.samples_ms + later.samples_ms,
        "resolution_ms": max(earlier.resolution_ms, later.resolution_ms),
    }
    return later.model_copy(update=changes)


def untimed_over(cases: Mapping[str, Untimed]) -> Untimed:
    """The check of a candidate that is correct in every case."""
    return Untimed(
        accuracy=_worst([each.accuracy for each in cases.values()]),
        seconds=seconds_over(cases.values()),
        warnings=warnings_over({case: each.warnings for case, each in cases.items()}),
    )


def seconds_over(evaluations: Iterable[EvaluationBase]) -> dict[Phase, float]:
    """The time that each phase took, in all evaluations together."""
    seconds = Counter[Phase]()
    for each in evaluations:
        seconds.update(each.seconds)
    return dict(seconds)


def warnings_over(cases: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Every warning once; one that not all cases have begins with its case."""
    everywhere = [
        warning
        for warning in dict.fromkeys(next(iter(cases.values())))
        if all(warning in warnings for warnings in cases.values())
    ]
    own = (
        f"case {case}: {warning}"
        for case, warnings in cases.items()
        for warning in warnings
        if warning not in everywhere
    )
    return (*everywhere, *own)


def _worst(accuracies: list[Accuracy]) -> Accuracy:
    """The accuracy of the case that is closest to its budget, with the class and the criterion that all cases meet."""
    worst = max(accuracies, key=lambda each: each.relative_rms / each.budget if each.budget else 0)
    return worst.model_copy(
        update={
            "meets": _weakest(accuracies),
            "allclose": all(each.allclose for each in accuracies),
            "stated": min(
                (each.stated for each in accuracies if each.stated is not None),
                key=lambda each: each.share,
                default=None,
            ),
        }
    )


def _weakest(accuracies: list[Accuracy]) -> Precision | None:
    met = [each.meets for each in accuracies if each.meets is not None]
    return max(met, key=CLASSES.index) if len(met) == len(accuracies) else None


def _all_of(answers: list[bool | None]) -> bool | None:
    """False if any is False, True if all are True, else None."""
    if False in answers:
        return False
    return None if None in answers else True
