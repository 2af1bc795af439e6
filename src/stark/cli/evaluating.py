"""`stark evaluate` and `stark check` judge candidate files. `evaluate` also checks a required speedup and keeps attempts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from stark.agent_runs import Kept, agent_run, find_agent_run, keep, starting_point
from stark.cli import consoles
from stark.cli.consoles import can_redraw
from stark.cli.interrupt import run_interruptibly
from stark.cli.own_model import load_or_capture
from stark.cli.places import check_file, refuse_fleeting
from stark.cli.settings import Settings
from stark.configuration import asked_for, open_judge
from stark.core.errors import UsageError
from stark.core.evaluation import Effort
from stark.core.node import ROOT
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluating import (
    Checked,
    Judged,
    Written,
    check_candidates,
    evaluate_candidates,
    read_candidate,
    shortfall,
)
from stark.evaluator.executors import RequestingExecutor
from stark.explain.numbers import counted, listed, milliseconds
from stark.languages import language
from stark.options import RunOptions, checked_options
from stark.report.agent_documents import check_document, evaluate_document
from stark.report.evaluations import judged_text
from stark.report.junit import junit_xml
from stark.store import Store

EFFORTS: dict[Effort, tuple[str, ...]] = {"search": ("eager",), "promote": ("eager", "compile")}
"""The references that each effort measures a candidate against."""


EFFORT_NOTES: dict[Effort, str] = {
    "search": "search effort, 3 to 10 s per file on a quiet machine, more on a busy one; the final check, without --effort search, takes 10 to 30 s",
    "promote": "final check, 10 to 30 s per file on a quiet machine, more on a busy one, beside torch.compile; --effort search takes 3 to 10 s",
}
"""What an evaluation was, on the screen."""

CHECKED_LINES = 40
"""Lines of evidence that a check prints for each file."""


class Keeping(NamedTuple):
    """Whether and how evaluations are stored as attempts of the agent's run."""

    wanted: bool = False
    parent: int = ROOT
    idea: str = ""


class KeptIn(NamedTuple):
    """The agent's run that keeps the evaluations."""

    id: str
    reference: Reference
    """As measured when the run began. Its roofline is the run's."""


class Demand(NamedTuple):
    """What CI asks for beyond correctness: a speedup of every candidate, and a JUnit report."""

    speedup: float | None
    against: str
    junit: Path | None


def evaluate(
    problem_spec: str,
    inputs: str | None,
    paths: Sequence[Path],
    settings: Settings,
    effort: str,
    demand: Demand,
    keeping: Keeping,
    as_json: bool,
) -> int:
    """Judge every file; returns 0 if all are correct and as fast as demanded, else 1."""
    begun, asked = time.monotonic(), checked_options(settings.options)
    chosen = next((each for each in EFFORTS if each == effort), None)
    if chosen is None:
        raise UsageError(f"there is no effort {effort!r}; use {' or '.join(EFFORTS)}")
    _check(asked.sanitizer, chosen, demand)
    problem, written = _read(problem_spec, inputs, paths, settings, asked)
    _check_keeping(keeping, settings.store)

    def on_reference(reference: Reference) -> None:
        if keeping.wanted:  # a wrong --parent is refused before the work
            with Store.open(settings.store, create=False) as store:
                found = find_agent_run(store, problem, asked, reference)
                starting_point(store, found, keeping.parent)

    judging = _judge(problem, written, asked, chosen, consoles.console(as_json), on_reference)
    reference, judged = run_interruptibly(judging)
    missed = _missed(judged, demand)
    run, kept = _keep(keeping, problem, reference, judged, settings.store, asked, chosen)
    own = reference if run is None else run.reference
    if as_json:
        attempts = {file: each.attempt for file, each in kept.items()}
        id = None if run is None else run.id
        document = evaluate_document(problem, reference, judged, missed, id, attempts, own)
        consoles.print_json(document)
    else:
        took = f"this command took {time.monotonic() - begun:.0f} s"
        _print(problem, reference, judged, missed, f"{EFFORT_NOTES[chosen]}; {took}", run)
        _print_kept(run, kept, judged, keeping)
    if demand.junit is not None:
        _write(demand.junit, junit_xml(problem, judged, missed))
    return 0 if not missed and all(j.evaluation.status == "correct" for j in judged) else 1


def check(
    problem_spec: str,
    inputs: str | None,
    paths: Sequence[Path],
    settings: Settings,
    as_json: bool,
) -> int:
    """Build and verify every file; returns 0 if all are correct, else 1."""
    asked = checked_options(settings.options)
    problem, written = _read(problem_spec, inputs, paths, settings, asked)
    checking = _check_all(problem, written, asked, consoles.console(stderr=True))
    document = check_document(problem, run_interruptibly(checking))
    if as_json:
        consoles.print_json(document)
    else:
        for each in document.candidates:
            shown = each.evidence.splitlines()[:CHECKED_LINES]
            notes = (f"Note: {warning}" for warning in each.warnings)
            consoles.say("\n".join([f"{each.file}: {each.status}", *shown, *notes]))
    return 0 if all(each.status == "correct" for each in document.candidates) else 1


def _read(
    spec: str, inputs: str | None, paths: Sequence[Path], settings: Settings, asked: RunOptions
) -> tuple[Problem, list[Written]]:
    """The problem and the candidates. Raises UsageError if there is nothing to judge, so that no judge is started."""
    if asked.language is not None:
        language(asked.language)
    loaded = load_or_capture(spec, inputs, settings.kernelbench, asked.backward)
    written = [read_candidate(path, asked.language) for path in _files(paths)]
    if all(each.fault for each in written):
        raise UsageError("; ".join(f"{each.file}: {each.fault}" for each in written))
    return asked_for(loaded, asked), written


def _check_keeping(keeping: Keeping, url: str) -> None:
    """Raise UsageError or StoreError for evaluations that could not be stored, before the work."""
    if not keeping.wanted:
        if keeping.idea or keeping.parent != ROOT:
            raise UsageError("--idea and --parent describe a stored attempt; add --keep")
        return
    refuse_fleeting(url)
    with Store.open(url, create=False):
        pass


def _keep(
    keeping: Keeping,
    problem: Problem,
    reference: Reference,
    judged: Sequence[Judged],
    url: str,
    asked: RunOptions,
    effort: Effort,
) -> tuple[KeptIn | None, dict[str, Kept]]:
    """Store every evaluation of a candidate; returns the run and the attempts by file."""
    found = [(each.file, each.candidate, each.evaluation) for each in judged]
    if not keeping.wanted or all(candidate is None for _, candidate, _ in found):
        return None, {}
    written_in = next(candidate.language for _, candidate, _ in found if candidate)
    with Store.open(url) as store:
        run = agent_run(store, problem, asked, written_in, reference)
        start = starting_point(store, run, keeping.parent)
        measured = store.reference(run.id) or reference
        return KeptIn(run.id, measured), {
            file: keep(store, run, candidate, evaluation, effort, start, keeping.idea)
            for file, candidate, evaluation in found
            if candidate is not None
        }


async def _judge(
    problem: Problem,
    written: Sequence[Written],
    asked: RunOptions,
    effort: Effort,
    console: Console,
    on_reference: Callable[[Reference], None],
) -> tuple[Reference, list[Judged]]:
    """Judge all files concurrently."""
    animated = can_redraw(console)

    def on_judged(judged: Judged) -> None:
        if len(written) > 1 and not animated:
            console.print(f"{judged.file}: {judged.evaluation.status}", soft_wrap=True)

    async with _executor(problem, written, asked, console) as executor:
        reference = await executor.describe(problem)
        on_reference(reference)
        for warning in reference.warnings:
            console.print(Text(warning, "yellow"), soft_wrap=True)
        return reference, await evaluate_candidates(
            problem, written, executor, effort, reference.device, on_judged
        )


async def _check_all(
    problem: Problem, written: Sequence[Written], asked: RunOptions, console: Console
) -> list[Checked]:
    async with _executor(problem, written, asked, console) as executor:
        return await check_candidates(problem, written, executor)


@asynccontextmanager
async def _executor(
    problem: Problem, written: Sequence[Written], asked: RunOptions, console: Console
) -> AsyncIterator[RequestingExecutor]:
    """The judge, while a terminal shows a spinner."""
    work = f"judging {counted(len(written), 'candidate')} for {problem.name}"
    spinner = console.status(Text(work))

    def on_notice(notice: str) -> None:
        spinner.update(Text(notice or work))
        if notice and not can_redraw(console):
            console.print(notice, soft_wrap=True)

    executor = open_judge(asked, on_notice)
    try:
        with spinner:
            yield executor
    finally:
        await executor.close()


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"nothing can be written to {file}: {error.strerror}; choose another --junit"
        ) from error


def _missed(judged: Iterable[Judged], demand: Demand) -> dict[str, str]:
    """How files miss the demanded speedup, by file."""
    if demand.speedup is None:
        return {}
    found = ((j.file, shortfall(j.evaluation, demand.speedup, demand.against)) for j in judged)
    return {file: fault for file, fault in found if fault is not None}


def _print(
    problem: Problem,
    reference: Reference,
    judged: Sequence[Judged],
    missed: dict[str, str],
    note: str,
    run: KeptIn | None,
) -> None:
    console = consoles.console()
    own = reference if run is None else run.reference
    console.print(judged_text(problem, reference, judged, own, console.width))
    if run is not None and own.roofline != reference.roofline:
        roof = milliseconds(own.roofline.floor_ms)
        estimate = f"roofline: the run's estimate, {roof}, as measured when run {run.id} began"
        console.print(Text(estimate, "dim"), soft_wrap=True)
    console.print(Text(note, "dim"), soft_wrap=True)
    for file, fault in missed.items():
        console.print(Text(f"{file}: {fault}", "red"), soft_wrap=True)
    sandboxes = [each.evaluation.sandbox for each in judged if each.evaluation.sandbox]
    if sandboxes:
        common = [layer for layer in sandboxes[0] if all(layer in one for one in sandboxes)]
        console.print(Text(f"sandbox: {', '.join(common)}", "dim"), soft_wrap=True)


def _print_kept(
    run: KeptIn | None,
    kept: dict[str, Kept],
    judged: Sequence[Judged],
    keeping: Keeping,
) -> None:
    """Where each evaluation is stored, and what of the request was dropped."""
    if run is None:
        return
    for each in judged:
        if (stored := kept.get(each.file)) is None:
            continue
        same = ", which has this source already" if stored.repeated else ""
        if stored.evaluation != each.evaluation:
            same += "; its earlier evaluation counts, not this one"
        given = {"--idea": bool(keeping.idea), "--parent": keeping.parent != ROOT}
        if stored.repeated and (dropped := [name for name, wanted in given.items() if wanted]):
            ignored = "are" if len(dropped) > 1 else "is"
            same += f"; {listed(dropped)} {ignored} ignored, since it keeps its own"
        consoles.say(f"{each.file}: attempt {stored.attempt} of run {run.id}{same}")


def _check(sanitizer: bool | None, effort: Effort, demand: Demand) -> None:
    """Raise UsageError for options that exclude each other or cannot be used."""
    if sanitizer and effort == "search":
        raise UsageError("--sanitizer does not run with --effort search; leave out one of the two")
    if demand.junit is not None:
        check_file(demand.junit, "--junit")
    if demand.against not in EFFORTS["promote"]:
        raise UsageError(f"--against is {demand.against!r}; use {' or '.join(EFFORTS['promote'])}")
    if demand.speedup is not None and demand.against not in EFFORTS[effort]:
        raise UsageError(
            f"--effort {effort} does not time torch.compile; leave out --effort to use --against compile"
        )


def _files(paths: Sequence[Path]) -> list[Path]:
    """The named files, and the Python files in the named folders. Raises UsageError for a path that cannot be read."""
    found: list[Path] = []
    for path in paths:
        try:
            inside = [path] if path.is_file() else sorted(path.glob("*.py"))
            missing = not path.exists()
        except OSError as error:  # no permission, or a name that is too long
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
        if missing:
            raise UsageError(f"there is no file {path}")
        if not inside:
            raise UsageError(f"the folder {path} has no Python file")
        found += inside
    return list(dict.fromkeys(found))
