"""Writes tables that compare the two evaluators: by candidate, by group, and a summary.

Only candidates that both have evaluated are compared. Sums are of `Finding.seconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from versus.cases import Case
from versus.results import FAILED, Finding, Results

LARGE_BYTES = 1 << 30
"""A problem's inputs are large if together they exceed this."""


@dataclass(frozen=True)
class Pair:
    """One candidate with both evaluators' findings."""

    case: Case
    ours: Finding
    theirs: Finding

    @property
    def ratio(self) -> float:
        """How many times longer KernelBench took."""
        return self.theirs.seconds / self.ours.seconds

    @property
    def agree(self) -> bool:
        """Whether both call it correct or both do not. They classify failures differently, so those are not compared."""
        return (self.ours.verdict == "correct") == (self.theirs.verdict == "correct")


def pairs(results: Results, cases: Sequence[Case]) -> list[Pair]:
    """The candidates that both have evaluated one at a time."""
    return [
        Pair(case, results.alone[str(case)], results.theirs[str(case)])
        for case in cases
        if str(case) not in map(str, results.missing("alone", cases))
        and str(case) not in map(str, results.missing("theirs", cases))
    ]


def report(results: Results, cases: Sequence[Case]) -> str:
    """Everything as Markdown."""
    parts = [results.machine, _rows(results, cases)]
    compared = pairs(results, cases)
    if compared:
        parts += ["", _groups(results, compared)]
    parts += ["", *summary(results, cases)]
    parts += [f"- note: {note}" for note in results.notes]
    return "\n".join(parts)


def summary(results: Results, cases: Sequence[Case]) -> Iterator[str]:
    """The main figures, one line each."""
    compared = pairs(results, cases)
    yield f"- {len(compared)} of {len(cases)} candidates judged by both"
    if compared:
        yield f"- one at a time: {_total(compared)}"
        whole_s = sum(pair.theirs.process_s or 0.0 for pair in compared)
        yield f"- including imports and starts, which that ratio does not count, KernelBench's processes took {whole_s:.1f} s"
    yield from _all_at_once(results, cases)
    large = [pair for pair in compared if results.large.get(pair.case.spec)]
    if large:
        yield f"- large inputs (over {LARGE_BYTES >> 30} GiB), one at a time: {_total(large)}"
    elsewhere = [pair for pair in compared if not pair.agree]
    named = "; ".join(
        f"{pair.case}: ours {pair.ours.verdict}, theirs {pair.theirs.verdict}" for pair in elsewhere
    )
    yield f"- disagreements on whether a candidate is correct: {named or 'none'}"
    yield from _unexpected(results, cases)
    yield from _ours_alone(results, cases)


def _all_at_once(results: Results, cases: Sequence[Case]) -> Iterator[str]:
    if results.together_s is None:
        return
    said = f"- ours, all {len(results.together)} at once: {results.together_s:.1f} s"
    if results.missing("theirs", cases) or set(results.together) != set(map(str, cases)):
        yield f"{said}; no ratio until KernelBench has evaluated all of them"
        return
    found = [results.theirs[str(case)] for case in cases]
    theirs_s = sum(each.seconds for each in found)
    yield f"{said}, theirs {theirs_s:.1f} s: {theirs_s / results.together_s:.1f} times"
    ours_s = results.together_s + (results.start_s or 0.0)
    theirs_s = sum(each.process_s or each.seconds for each in found)
    yield (
        f"- with imports and starts, once for the judge and for each candidate in KernelBench: ours {ours_s:.1f} s, "
        f"theirs {theirs_s:.1f} s: {theirs_s / ours_s:.1f} times"
    )


def _unexpected(results: Results, cases: Sequence[Case]) -> Iterator[str]:
    for kind in ("alone", "together", "theirs"):
        found = results.judged(kind)
        wrong = [
            f"{case}: {found[str(case)].verdict}, not {case.expected}"
            for case in cases
            if str(case) in found and found[str(case)].verdict != case.expected
        ]
        if wrong:
            yield f"- {kind}, unexpected verdicts: {'; '.join(wrong)}"


def _ours_alone(results: Results, cases: Sequence[Case]) -> Iterator[str]:
    """Figures of the judge alone: simple correct candidates, and the overhead between two candidates of a problem."""
    judged = [(case, results.alone[str(case)]) for case in cases if str(case) in results.alone]
    simple = [
        f"{case.spec} {found.seconds:.2f} s"
        + (" including preparing the problem" if found.first else "")
        for case, found in judged
        if (case.level, case.route, case.variant, found.verdict)
        == ("level 1", "triton", "correct", "correct")
    ]
    if simple:
        yield f"- correct Triton candidates of level 1, ours: {', '.join(simple)}"
    between = [
        found.beyond_s for _, found in judged if not found.first and found.beyond_s is not None
    ]
    if between:
        yield (
            f"- between two candidates of one problem, besides build and run: median {median(between):.2f} s, "
            f"maximum {max(between):.2f} s ({len(between)} candidates)"
        )


def _rows(results: Results, cases: Sequence[Case]) -> str:
    lines = [
        "| problem | route | candidate | expected | ours | s | theirs | s | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        ours, theirs = (results.judged(kind).get(str(case)) for kind in ("alone", "theirs"))
        ratio = ""
        if ours and theirs and FAILED not in (ours.verdict, theirs.verdict):
            ratio = f"{theirs.seconds / ours.seconds:.1f}"
        cells = [case.spec, case.route, case.variant, case.expected]
        cells += [*_cells(ours), *_cells(theirs), ratio]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(found: Finding | None) -> list[str]:
    return ["", ""] if found is None else [found.verdict, f"{found.seconds:.2f}"]


def _groups(results: Results, compared: Sequence[Pair]) -> str:
    lines = [
        "| group | candidates | ours s | theirs s | ratio | agree |",
        "|---|---|---|---|---|---|",
    ]
    kinds: list[Callable[[Pair], str]] = [
        lambda pair: pair.case.level,
        lambda pair: pair.case.route,
        lambda pair: pair.case.expected,
        lambda pair: "large inputs" if results.large.get(pair.case.spec) else "other inputs",
        lambda pair: "all",
    ]
    for kind in kinds:
        for name in sorted({kind(pair) for pair in compared}):
            group = [pair for pair in compared if kind(pair) == name]
            ours_s, theirs_s = _sums(group)
            agreed = sum(pair.agree for pair in group)
            lines.append(
                f"| {name} | {len(group)} | {ours_s:.1f} | {theirs_s:.1f} | {theirs_s / ours_s:.1f} | {agreed} |"
            )
    return "\n".join(lines)


def _total(compared: Sequence[Pair]) -> str:
    ours_s, theirs_s = _sums(compared)
    return f"ours {ours_s:.1f} s, theirs {theirs_s:.1f} s: {theirs_s / ours_s:.1f} times"


def _sums(compared: Sequence[Pair]) -> tuple[float, float]:
    return sum(pair.ours.seconds for pair in compared), sum(
        pair.theirs.seconds for pair in compared
    )
