"""Judged files side by side: status, time, speedup and evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.explain.evaluation import evidence, speedup_cell, status
from stark.explain.numbers import milliseconds
from stark.explain.profile import bottleneck_text, profile_lines
from stark.explain.run import reference_line
from stark.report.tables import STATUS_STYLES

EVIDENCE_LINES = 12


class Judged(NamedTuple):
    """A file and what the judge decided about it."""

    file: str
    candidate: Candidate
    evaluation: Evaluation


def judged_text(problem: Problem, reference: Reference, judged: Sequence[Judged]) -> RenderableType:
    """The reference, a table, and below it what binds each, and the evidence of whatever failed or was warned about."""
    head = Text.assemble(
        (problem.name, "bold"), f" on {reference.device.name}: {reference_line(reference)}"
    )
    profiles = list(_profiles(judged))
    between = [Text()] if profiles else []
    remarks = map(_remarks, judged)
    return Group(head, Text(), _table(judged), *between, *profiles, *remarks)


def _table(judged: Sequence[Judged]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("file", overflow="fold")
    for name in ("language", "status"):
        table.add_column(name, no_wrap=True)
    for name in ("latency", "speedup vs eager [95 %]", "roofline", "seconds"):
        table.add_column(name, no_wrap=True, justify="right")
    for each in judged:
        evaluation = each.evaluation
        numbers = ("", "", "")
        if isinstance(evaluation, Correct):
            numbers = (
                milliseconds(evaluation.latency_ms),
                speedup_cell(evaluation.speedup_vs("eager")),
                f"{evaluation.roofline_fraction:.0%}",
            )
        table.add_row(
            each.file,
            each.candidate.language,
            Text(status(evaluation), STATUS_STYLES[evaluation.status]),
            *numbers,
            f"{sum(evaluation.seconds.values()):.1f}",
        )
    return table


def _profiles(judged: Sequence[Judged]) -> Iterator[Text]:
    """What each correct one spends its time on; of several only what binds them."""
    for each in judged:
        profiled = each.evaluation.profiled if isinstance(each.evaluation, Correct) else None
        if profiled is not None:
            lines = profile_lines(profiled) if len(judged) == 1 else [bottleneck_text(profiled)]
            yield Text.assemble((f"{each.file}: ", "bold"), "\n  ".join(lines))


def _remarks(each: Judged) -> Text:
    """The evidence of a failure, shortened, and all warnings; empty where there is neither."""
    text = Text()
    if not isinstance(each.evaluation, Correct):
        lines = evidence(each.evaluation).strip().splitlines()
        shown = "\n  ".join(lines[:EVIDENCE_LINES])
        text.append(f"\n{each.file}", "bold").append(f"\n  {shown}")
        if len(lines) > EVIDENCE_LINES:
            text.append(f"\n  … {len(lines) - EVIDENCE_LINES} more lines; --json has all", "dim")
    for warning in each.evaluation.warnings:
        text.append(f"\n{each.file}: {warning}", "yellow")
    return text
