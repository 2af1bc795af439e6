"""`stark evaluate`: files that someone wrote, judged as a run's candidates are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from rich.text import Text

from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.cli.requests import limits
from stark.cli.settings import Settings
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.errors import UsageError
from stark.core.evaluation import Effort
from stark.core.judging import Tools
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import open_executor
from stark.explain.numbers import counted
from stark.languages import LANGUAGES, Language, language
from stark.problems import load
from stark.report.document import evaluation_summary
from stark.report.evaluations import Judged, judged_text


class Written(NamedTuple):
    """A file that was read, and the languages that it may be in."""

    path: Path
    source: str
    languages: list[Language]


def evaluate(
    problem_spec: str,
    paths: Sequence[Path],
    settings: Settings,
    tools: Tools,
    effort: str,
    as_json: bool,
) -> int:
    """Judge every file; returns 0 if all are correct."""
    chosen = _effort(effort)
    if tools.sanitizer and chosen == "search":
        raise UsageError(
            "--sanitizer is the last gate of --effort promote; leave out one of the two"
        )
    problem = load(problem_spec, settings.kernelbench)
    written = [_written(path, settings) for path in _files(paths)]
    reference, judged = run_interruptibly(
        _judge(problem, written, settings, tools, chosen, as_json)
    )
    if as_json:
        consoles.print_json(
            {
                "problem": problem.name,
                "reference": reference.model_dump(mode="json"),
                "candidates": [
                    {
                        "file": each.file,
                        "language": each.candidate.language,
                        **evaluation_summary(each.evaluation),
                        "evaluation": each.evaluation.model_dump(mode="json"),
                    }
                    for each in judged
                ],
            }
        )
    else:
        consoles.results().print(judged_text(problem, reference, judged))
        held = [each.evaluation.sandbox for each in judged if each.evaluation.sandbox]
        if held:
            consoles.results().print(_confined(held), soft_wrap=True)
    return 0 if all(each.evaluation.status == "correct" for each in judged) else 1


async def _judge(
    problem: Problem,
    written: Sequence[Written],
    settings: Settings,
    tools: Tools,
    effort: Effort,
    as_json: bool,
) -> tuple[Reference, list[Judged]]:
    """The reference, then all candidates at once: the executor keeps their order on each device."""
    console = consoles.progress(as_json)
    executor = open_executor(settings.executor, limits(settings), tools)

    async def judge(path: Path, candidate: Candidate) -> Judged:
        evaluation = await executor.evaluate(problem, candidate, effort)
        if len(written) > 1 and not console.is_terminal:
            console.print(Text(f"{path}: {evaluation.status}"), soft_wrap=True)
        return Judged(str(path), candidate, evaluation)

    try:
        with console.status(f"judging {counted(len(written), 'candidate')} for {problem.name}"):
            reference = await executor.describe(problem)
            candidates = [_candidate(each, reference.device) for each in written]
            for warning in reference.warnings:
                console.print(Text(warning, "yellow"), soft_wrap=True)
            asked = (judge(each.path, c) for each, c in zip(written, candidates, strict=True))
            judged = await asyncio.gather(*asked)
    finally:
        await executor.close()
    return reference, judged


def _confined(held: Sequence[tuple[str, ...]]) -> Text:
    """The layers around every program that ran; what they leave open is among the warnings."""
    common = [layer for layer in held[0] if all(layer in layers for layers in held)]
    return Text(f"sandbox: {', '.join(common)}", "dim")


def _effort(asked: str) -> Effort:
    efforts: tuple[Effort, ...] = get_args(Effort)
    for effort in efforts:
        if asked == effort:
            return effort
    raise UsageError(f"there is no effort {asked!r}; use {' or '.join(efforts)}")


def _files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and those in the folders named. Raises UsageError for one that is not there."""
    try:
        return list(dict.fromkeys(file for path in paths for file in _files_at(path)))
    except OSError as error:  # no right to look there, a name too long
        raise UsageError(f"{error.filename} cannot be looked for: {error.strerror}") from error


def _files_at(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"there is no file {path}")
    inside = sorted(path.glob("*.py"))
    if not inside:
        raise UsageError(f"the folder {path} has no Python file")
    return inside


def _written(path: Path, settings: Settings) -> Written:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as UTF-8 text: {error}") from error
    return Written(path, source, _languages_of(path, source, settings))


def _languages_of(path: Path, source: str, settings: Settings) -> list[Language]:
    """The one that was asked for, else all that take this source."""
    if settings.language is not None:
        return [language(settings.language)]
    faults = {name: entry.check(source) for name, entry in LANGUAGES.items()}
    fitting = [LANGUAGES[name] for name, fault in faults.items() if fault is None]
    if fitting:
        return fitting
    reasons = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
    raise UsageError(
        f"{path} is a candidate of no language, so name one with --language ({reasons})"
    )


def _candidate(written: Written, device: Device) -> Candidate:
    """In the first of its languages that the judge's device can run: only the judge knows what it has."""
    for entry in written.languages:
        if device.kind in entry.device_kinds:
            return Candidate(language=entry.name, source=written.source)
    names = " or ".join(entry.name for entry in written.languages)
    fitting = " or ".join(n for n, entry in LANGUAGES.items() if device.kind in entry.device_kinds)
    raise UsageError(
        f"{written.path} is a candidate in {names}, which the judge's {device.name} cannot run; "
        f"choose another judge with --executor, or judge candidates in {fitting}"
    )
