"""Judges candidate files against a problem: what `stark evaluate` and `stark.evaluate` call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.evaluation import Check, Correct, Effort, Evaluation, Unusable
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, RequestingExecutor
from stark.languages import LANGUAGES


class Written(Frozen):
    """A candidate's file as text."""

    file: str
    """The file's name in results. No file of this name need exist on disk."""

    source: str = ""
    languages: tuple[str, ...] = ()
    """The languages that the file may be written in. It is judged in the first of these that the device can run."""

    fault: str = ""
    """Why the file is not a candidate; empty if it may be one. A file with a fault is reported as unusable."""


class Judged(Frozen):
    """The evaluation of one file."""

    file: str
    candidate: Candidate | None
    """None if the file is not a candidate that this judge can run."""

    evaluation: Evaluation


class Checked(Frozen):
    """The check of one file."""

    file: str
    candidate: Candidate | None
    evaluation: Check


def read_candidate(path: Path, language: str | None = None) -> Written:
    """Read the file at `path`. If `language` is None, every language that accepts the source remains possible."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Written(file=str(path), fault=f"the file cannot be read as UTF-8 text: {error}")
    return written_as(str(path), source, language)


def written_as(file: str, source: str, language: str | None = None) -> Written:
    """A source as a candidate, called `file` in results; `language` is as in `read_candidate`."""
    if language is not None:
        return Written(file=file, source=source, languages=(language,))
    faults = {name: entry.check(source) or "" for name, entry in LANGUAGES.items()}
    if accepting := tuple(name for name, fault in faults.items() if not fault):
        return Written(file=file, source=source, languages=accepting)
    listed = " ".join(f"{name}: {fault}" for name, fault in faults.items())
    fault = f"the file is not written in a supported kernel language. {listed}"
    if len(set(faults.values())) == 1:  # it does not parse, or defines no ModelNew
        fault = next(iter(faults.values()))
    return Written(file=file, fault=fault)


async def evaluate_candidates(
    problem: Problem,
    sources: Sequence[Written],
    executor: Executor,
    effort: Effort,
    device: Device,
    on_judged: Callable[[Judged], None] = lambda _: None,
) -> list[Judged]:
    """Judge all sources on the executor's device; results are in the order of `sources`.

    A source that is not a candidate gets the evaluation `Unusable`; the other sources are still judged. `on_judged` is
    called as each result arrives. Raises ProblemError and JudgeUnavailable.
    """
    runnable = [name for name, entry in LANGUAGES.items() if device.kind in entry.device_kinds]

    async def judge(written: Written) -> Judged:
        language = next((name for name in written.languages if name in runnable), None)
        candidate: Candidate | None = None
        if language is not None:
            candidate = Candidate(language=language, source=written.source)
            evaluation = await executor.evaluate(problem, candidate, effort)
        else:
            other = (
                f"the file is written in {' or '.join(written.languages)}, which the judge's device ({device.name}) "
                f"cannot run; this device runs {' and '.join(runnable)}"
            )
            evaluation = Unusable(reason=written.fault or other)
        judged = Judged(file=written.file, candidate=candidate, evaluation=evaluation)
        on_judged(judged)
        return judged

    return list(await asyncio.gather(*map(judge, sources)))


async def check_candidates(
    problem: Problem, sources: Sequence[Written], executor: RequestingExecutor
) -> list[Checked]:
    """Build and verify all sources; nothing is timed, the reference neither. See `evaluate_candidates`."""

    async def check(written: Written) -> Checked:
        found = Checked(
            file=written.file, candidate=None, evaluation=Unusable(reason=written.fault)
        )
        for language in written.languages:
            candidate = Candidate(language=language, source=written.source)
            evaluation = await executor.check(problem, candidate)
            found = Checked(file=written.file, candidate=candidate, evaluation=evaluation)
            if not isinstance(evaluation, Unusable):  # the device can run the language
                break
        return found

    return list(await asyncio.gather(*map(check, sources)))


def shortfall(evaluation: Evaluation, least: float, against: str) -> str | None:
    """Why a correct candidate misses the required speedup; None if it reaches that speedup or is not correct.

    The lower end of the 95 % interval counts, so a noisy measurement does not pass by luck.
    """
    if not isinstance(evaluation, Correct):
        return None
    if against not in evaluation.references:
        return f"{against} was not measured, so the required {least:g}x cannot be checked"
    found = evaluation.speedup_vs(against)
    if found.low >= least:
        return None
    measured = f"{found.ratio:.2f}x vs {against} [{found.low:.2f}, {found.high:.2f}]"
    return f"{measured}: the lower end is below the required {least:g}x"
