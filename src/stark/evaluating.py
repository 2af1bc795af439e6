"""Judges candidate files against a problem: what `stark evaluate` and `stark.evaluate` call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.evaluation import Correct, Effort, Evaluation, Unusable
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import Executor
from stark.languages import LANGUAGES


class Written(Frozen):
    """A candidate's file as text."""

    file: str
    """Its name in results; it need not exist on disk."""

    source: str = ""
    language: str | None = None
    """None selects the first language that accepts the source and that the device can run."""

    fault: str | None = None
    """Why the file could not be read. Such a file is reported as unusable."""


class Judged(Frozen):
    """The evaluation of one file."""

    file: str
    candidate: Candidate | None
    """None if the file is not a candidate that this judge can run."""

    evaluation: Evaluation


def read_candidate(path: Path, language: str | None = None) -> Written:
    """The file at `path`. A file that cannot be read gets a `fault` instead of a source."""
    try:
        return Written(file=str(path), source=path.read_text(encoding="utf-8"), language=language)
    except (OSError, UnicodeDecodeError) as error:
        return Written(file=str(path), fault=f"the file cannot be read as UTF-8 text: {error}")


async def evaluate_candidates(
    problem: Problem,
    sources: Sequence[Written],
    executor: Executor,
    effort: Effort,
    on_judged: Callable[[Judged], None] = lambda _: None,
    on_reference: Callable[[Reference], None] = lambda _: None,
) -> tuple[Reference, list[Judged]]:
    """Measure the reference, then judge all sources; results are in the order of `sources`.

    A source that is not a candidate becomes `Unusable` and does not stop the others. `on_judged` is called
    as each result arrives, `on_reference` once before the first. Raises ProblemError and JudgeUnavailable.
    The caller closes the executor.
    """
    reference = await executor.describe(problem)
    on_reference(reference)

    async def judge(written: Written) -> Judged:
        found = _candidate(written, reference.device)
        if isinstance(found, Candidate):
            evaluation = await executor.evaluate(problem, found, effort)
            judged = Judged(file=written.file, candidate=found, evaluation=evaluation)
        else:
            judged = Judged(file=written.file, candidate=None, evaluation=Unusable(reason=found))
        on_judged(judged)
        return judged

    return reference, list(await asyncio.gather(*map(judge, sources)))


def shortfall(evaluation: Evaluation, least: float, against: str) -> str | None:
    """How a correct candidate misses the required speedup, or None if it reaches it.

    The lower end of the 95 % interval counts, so a noisy measurement does not pass by luck.
    """
    if not isinstance(evaluation, Correct):
        return None
    if against not in evaluation.references:
        return f"{against} was not measured, so no speedup of {least:g}x against it is shown"
    found = evaluation.speedup_vs(against)
    if found.low >= least:
        return None
    measured = f"{found.ratio:.2f}x vs {against} [{found.low:.2f}, {found.high:.2f}]"
    return f"{measured}: the lower end is below the required {least:g}x"


def fault_of(written: Written) -> str | None:
    """Why no device can run the file, or None if one may."""
    found = _languages_of(written)
    return found if isinstance(found, str) else None


def _candidate(written: Written, device: Device) -> Candidate | str:
    """The candidate, or why this judge cannot run the file."""
    names = _languages_of(written)
    if isinstance(names, str):
        return names
    runnable = [name for name, entry in LANGUAGES.items() if device.kind in entry.device_kinds]
    for name in names:
        if name in runnable:
            return Candidate(language=name, source=written.source)
    return (
        f"the file is written in {' or '.join(names)}, which the judge's device ({device.name}) cannot run; "
        f"it runs {' and '.join(runnable)}"
    )


def _languages_of(written: Written) -> list[str] | str:
    """The languages that a file may be in, or why there is none."""
    if written.fault is not None:
        return written.fault
    if written.language is not None:
        return [written.language]
    faults = {name: entry.check(written.source) for name, entry in LANGUAGES.items()}
    accepting = [name for name, fault in faults.items() if fault is None]
    if accepting:
        return accepting
    reasons = [fault for fault in faults.values() if fault is not None]
    if len(set(reasons)) == 1:  # it does not parse, or defines no ModelNew
        return reasons[0]
    listed = " ".join(f"{name}: {fault}" for name, fault in faults.items())
    return f"the file is not written in a supported kernel language. {listed}"
