"""What `stark evaluate` prints: each file's status, time, speedups and evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from stark.core.evaluation import Correct
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluating import Judged
from stark.explain.evaluation import (
    BESIDE_NOTE,
    accuracy_text,
    eager_beside,
    evidence,
    precision_met,
    roofline_share,
    sanitized_text,
    shapes_text,
    speedup_text,
    status,
)
from stark.explain.numbers import listed, milliseconds
from stark.explain.profile import bottleneck_text, profile_lines
from stark.explain.run import reference_line
from stark.report.one_roofline import on_one_roofline
from stark.report.tables import STATUS_STYLES, columns

EVIDENCE_LINES = 12


OPTIONAL = ("seconds", "language", "error meets")
"""Columns that a narrow screen has no room for, in the order in which they are left out."""


def judged_text(
    problem: Problem,
    reference: Reference,
    judged: Sequence[Judged],
    own: Reference | None = None,
    width: int | None = None,
) -> RenderableType:
    """The reference and a table, then the bottleneck of each kernel, the evidence of failures, and warnings.

    Shares of the roofline are of the roofline of `own`, which is `reference` by default. `width` is the screen's.
    """
    head = Text.assemble(
        (problem.name, "bold"), f" on {reference.device.name}: {reference_line(reference)}"
    )
    profiles = list(_profiles(judged))
    between = [Text()] if profiles else []
    remarks = map(_remarks, judged)
    table = _fitting(reference, judged, own or reference, width)
    return Group(head, Text(), table, *_beside(reference, judged), *between, *profiles, *remarks)


def _beside(reference: Reference, judged: Sequence[Judged]) -> Iterator[Text]:
    """How speedups follow from times, and eager's times beside the kernels that differ from the one above."""
    times = []
    for name, found in _each_case(judged):
        own = reference.cases.get(name.rpartition(", ")[2], reference)
        if eager_beside(found, own.latency_ms):
            times.append(f"{milliseconds(found.reference_ms('eager'))} beside {name}")
    if any(_each_case(judged)):
        took = f"eager took {listed(times)}; " if times else ""
        yield Text(f"{took}{BESIDE_NOTE}", "dim")


def _each_case(judged: Sequence[Judged]) -> Iterator[tuple[str, Correct]]:
    """The correct evaluations, each case by itself, with the file's and the case's name."""
    for each in judged:
        if isinstance(each.evaluation, Correct):
            for case, found in (each.evaluation.cases or {"": each.evaluation}).items():
                yield (f"{each.file}, {case}" if case else each.file), found


def _fitting(
    reference: Reference, judged: Sequence[Judged], own: Reference, width: int | None
) -> Table:
    """The table without the columns that do not fit, so that file names and numbers stay whole where possible."""
    for count in range(len(OPTIONAL) + 1):
        table = _table(reference, judged, own, OPTIONAL[:count])
        if width is None or _width(table) <= width:
            return table
    return table


def _width(table: Table) -> int:
    """The width of a table in which nothing is wrapped."""
    console = Console(width=10_000)
    return Measurement.get(console, console.options, table).maximum


def _table(
    reference: Reference, judged: Sequence[Judged], own: Reference, without: Sequence[str] = ()
) -> Table:
    """One row per file, and below it one per case. Only if a file was timed against torch.compile, there is a column."""
    timed = (each.evaluation.references for each in judged if isinstance(each.evaluation, Correct))
    names = ["eager", *(["compile"] if any("compile" in names for names in timed) else [])]
    speedups = [f"vs {name}{' [95 %]' if name == 'eager' else ''}" for name in names]
    numbers = ("latency", *speedups, "roofline", "error meets", "seconds")
    texts = [name for name in ("file", "language", "status") if name not in without]
    table = columns(*texts, numbers=tuple(name for name in numbers if name not in without))
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"

    def add(*cells: str | Text) -> None:
        named = zip(("file", "language", "status", *numbers), cells, strict=True)
        table.add_row(*(cell for name, cell in named if name not in without))

    for each in judged:
        evaluation = on_one_roofline(each.evaluation, own)
        measured, cases = [""] * (len(names) + 3), {}
        if isinstance(evaluation, Correct):
            measured = _measured(evaluation, names)
            cases = evaluation.cases
        add(
            each.file,
            each.candidate.language if each.candidate else "",
            Text(status(evaluation), STATUS_STYLES[evaluation.status]),
            *measured,
            f"{sum(evaluation.seconds.values()):.1f}",
        )
        for case, found in cases.items():
            seconds = f"{sum(found.seconds.values()):.1f}"
            add(Text(f"  {case}", "dim"), "", "", *_measured(found, names), seconds)
    return table


def _measured(correct: Correct, names: Sequence[str]) -> list[str]:
    """The figures of a correct candidate, against the named references."""
    speedups = (
        speedup_text(correct.speedup_vs(name), named=False)
        if name in correct.references
        else "not measured"
        for name in names
    )
    return [
        milliseconds(correct.latency_ms),
        *speedups,
        roofline_share(correct),
        precision_met(correct),
    ]


def _profiles(judged: Sequence[Judged]) -> Iterator[Text]:
    """The whole profile if only one file was judged; otherwise the bottleneck of each file."""
    for name, found in _each_case(judged):
        if (profiled := found.profiled) is not None:
            lines = profile_lines(profiled) if len(judged) == 1 else [bottleneck_text(profiled)]
            yield Text.assemble((f"{name}: ", "bold"), "\n  ".join(lines))


def _remarks(each: Judged) -> Text:
    """The errors of a correct kernel or the evidence of a failure, shortened, and all warnings."""
    text = Text()
    if isinstance(each.evaluation, Correct):
        text.append(f"\n{each.file}: ", "bold").append(accuracy_text(each.evaluation.accuracy))
        if each.evaluation.weighing is not None:
            text.append(", in the case closest to its budget")
        if shapes := shapes_text(each.evaluation):
            text.append(f"; {shapes}")
        if sanitized := sanitized_text(each.evaluation):
            text.append(f"; {sanitized}")
    else:
        lines = evidence(each.evaluation).strip().splitlines()
        shown = "\n  ".join(lines[:EVIDENCE_LINES])
        text.append(f"\n{each.file}", "bold").append(f"\n  {shown}")
        if len(lines) > EVIDENCE_LINES:
            text.append(f"\n  … {len(lines) - EVIDENCE_LINES} more lines; --json shows all", "dim")
    for warning in each.evaluation.warnings:
        text.append(f"\n{each.file}: {warning}", "yellow")
    return text
