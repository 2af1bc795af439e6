"""`stark evaluate`: files that someone wrote, judged as a run's candidates are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.text import Text

from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.cli.requests import device_kind, limits
from stark.cli.settings import Settings
from stark.core.candidate import Candidate
from stark.core.errors import UsageError
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import open_executor
from stark.languages import LANGUAGES, language
from stark.problems import load
from stark.report.document import evaluation_summary
from stark.report.evaluations import Judged, judged_text


def evaluate(
    problem_spec: str, paths: Sequence[Path], settings: Settings, effort: str, as_json: bool
) -> int:
    """Judge every file; returns 0 if all are correct."""
    chosen = _effort(effort)
    problem = load(problem_spec, settings.kernelbench)
    candidates = {path: _candidate(path, settings) for path in _files(paths)}
    reference, evaluations = run_interruptibly(
        _judge(problem, candidates, settings, chosen, as_json)
    )
    judged = [
        Judged(str(path), candidate, evaluations[path]) for path, candidate in candidates.items()
    ]
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
    return 0 if all(each.evaluation.status == "correct" for each in judged) else 1


async def _judge(
    problem: Problem,
    candidates: dict[Path, Candidate],
    settings: Settings,
    effort: Effort,
    as_json: bool,
) -> tuple[Reference, dict[Path, Evaluation]]:
    """The reference, then all candidates at once: the executor keeps their order on each device."""
    console = consoles.progress(as_json)
    executor = open_executor(settings.executor, limits(settings))

    async def judge(path: Path) -> Evaluation:
        evaluation = await executor.evaluate(problem, candidates[path], effort)
        if len(candidates) > 1 and not console.is_terminal:
            console.print(Text(f"{path}: {evaluation.status}"), soft_wrap=True)
        return evaluation

    try:
        with console.status(f"judging {len(candidates)} for {problem.name}"):
            reference = await executor.describe(problem)
            for warning in reference.warnings:
                console.print(Text(warning, "yellow"), soft_wrap=True)
            evaluations = await asyncio.gather(*map(judge, candidates))
    finally:
        await executor.close()
    return reference, dict(zip(candidates, evaluations, strict=True))


def _effort(asked: str) -> Effort:
    efforts: tuple[Effort, ...] = get_args(Effort)
    for effort in efforts:
        if asked == effort:
            return effort
    raise UsageError(f"there is no effort {asked!r}; use {' or '.join(efforts)}")


def _files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and those in the folders named. Raises UsageError for one that is not there."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.py"))
            if not inside:
                raise UsageError(f"the folder {path} has no Python file")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UsageError(f"there is no file {path}")
    return list(dict.fromkeys(files))


def _candidate(path: Path, settings: Settings) -> Candidate:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as UTF-8 text: {error}") from error
    return Candidate(language=_language_of(path, source, settings), source=source)


def _language_of(path: Path, source: str, settings: Settings) -> str:
    """As asked for, else the one language that takes this source, those of the device preferred."""
    if settings.language is not None:
        return language(settings.language).name
    kind = device_kind(settings.executor)
    preferred = sorted(LANGUAGES.values(), key=lambda entry: kind not in entry.device_kinds)
    faults = {entry.name: entry.check(source) for entry in preferred}
    fitting = [name for name, fault in faults.items() if fault is None]
    if fitting:
        return fitting[0]
    reasons = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
    raise UsageError(
        f"{path} is a candidate of no language, so name one with --language ({reasons})"
    )
