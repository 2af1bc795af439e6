"""The report's numbers as tables of short texts, and these as Markdown.

Knows no screen: a table here is a title, the names of columns and rows of texts. What was not measured
says so, and what is unknown is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from stark.bench.compare import Difference
from stark.bench.metrics import FAST_PS, Against, Summary
from stark.bench.report import Report
from stark.core.bench import Bench
from stark.core.usage import BYTES_PER_TOKEN
from stark.explain.numbers import counted

NOT_MEASURED = "not measured"
UNKNOWN = "unknown"
NONE = "-"


class Sheet(NamedTuple):
    """One table."""

    title: str
    about: str
    """What the columns mean, in a sentence or two."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sheets(report: Report) -> list[Sheet]:
    """The tables of a report, the most wanted first."""
    found = [
        _kernels(report.summaries),
        _speedups(report.summaries),
        _search(report.summaries),
        _roles(report.summaries),
        _curve(report.summaries),
    ]
    return [*found, _differences(report.differences)] if report.differences else found


def markdown(report: Report, plots: Sequence[str] = ()) -> str:
    """The whole report as one document; `plots` are the files of its pictures, beside it."""
    lines = [f"# Bench {report.bench.name}", "", head(report.bench), ""]
    lines += [f"- {note}" for note in report.notes]
    for sheet in sheets(report):
        lines += ["", f"## {sheet.title}", sheet.about, "", _row(sheet.columns)]
        lines += [_row(["---"] * len(sheet.columns)), *map(_row, sheet.rows)]
    for file in plots:
        lines += ["", f"![{file}]({quote(file)})"]
    return "\n".join(lines) + "\n"


def head(bench: Bench) -> str:
    """What the bench is about, in a line."""
    problems = len({(cell.level, cell.problem) for cell in bench.cells})
    strategies = dict.fromkeys(cell.strategy for cell in bench.cells)
    seeds = len({cell.seed for cell in bench.cells})
    return (
        f"{counted(problems, 'problem')} x {', '.join(strategies)} x {counted(seeds, 'seed')}, "
        f"{counted(bench.attempts, 'attempt')} each"
    )


def _kernels(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Kernels",
        "Best kernels against eager. Success: share of runs with a correct kernel; fast_p: share of all runs "
        "with a speedup over p (KernelBench's fastp); assured: by the lower end of the interval; roofline: "
        "median share of its speed.",
        (
            "level",
            "strategy",
            "runs",
            "success",
            "fast_1",
            "fast_2",
            "assured fast_1",
            "geomean",
            "roofline",
        ),
        [
            (
                one.level,
                one.strategy,
                str(one.runs),
                _percent(one.success),
                *_eager(one.against["eager"]),
                NONE if one.roofline is None else _percent(one.roofline),
            )
            for one in summaries
        ],
    )


def _eager(against: Against | None) -> tuple[str, ...]:
    if against is None:
        return (NOT_MEASURED, *(NONE,) * 3)
    shares = (against.fast[1.0], against.fast[2.0], against.assured_fast_1)
    return (*map(_percent, shares), _times(against.of_all.geomean))


def _speedups(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Speedups",
        "By reference. `all`: runs without a correct kernel count as 1; `correct`: only runs with one.",
        (
            "level",
            "strategy",
            "reference",
            "fast_1",
            "geomean all",
            "geomean correct",
            "mean correct",
            "median correct",
            "worst correct",
        ),
        [
            (one.level, one.strategy, reference, *_spread(against))
            for one in summaries
            for reference, against in one.against.items()
        ],
    )


def _spread(against: Against | None) -> tuple[str, ...]:
    if against is None:
        return (NOT_MEASURED, *(NONE,) * 5)
    share, every = _percent(against.fast[1.0]), _times(against.of_all.geomean)
    correct = against.of_correct
    if correct is None:
        return (share, every, *(NONE,) * 4)
    values = (correct.geomean, correct.mean, correct.median, correct.worst)
    return (share, every, *map(_times, values))


def _search(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Search and cost",
        "Repaired: of the failures that debugging took up, those that ended in a correct kernel. To best: mean "
        "number of attempts up to the best one. Hours: the runs' active times added up.",
        (
            *("level", "strategy", "attempts", "correct", "repaired", "to best"),
            *("model calls", "tokens", "price", "hours"),
        ),
        [
            (
                one.level,
                one.strategy,
                f"{one.attempts:,}",
                NONE if one.correct_share is None else _percent(one.correct_share),
                _repaired(one),
                NONE if one.attempts_to_best is None else f"{one.attempts_to_best:.1f}",
                f"{one.calls:,}",
                UNKNOWN if one.tokens is None else f"{one.tokens:,}",
                UNKNOWN if one.dollars is None else f"${one.dollars:,.2f}",
                f"{one.active_hours:.2f}",
            )
            for one in summaries
        ],
    )


def _roles(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Cost by role",
        f"All calls of the runs. ~: an estimate, at {BYTES_PER_TOKEN} bytes a token, stands in where a model did not "
        "tell its tokens. Waiting: for the replies, in hours, added up over calls at the same time too.",
        (*("level", "strategy", "role", "calls"), *("input", "output", "price", "waiting")),
        [
            (
                *(one.level, one.strategy, role.role, f"{role.calls:,}"),
                *(str(role.input), str(role.output)),
                UNKNOWN if role.dollars is None else f"${role.dollars:,.2f}",
                f"{role.seconds / 3600:.2f}",
            )
            for one in summaries
            for role in one.roles
        ],
    )


def _repaired(one: Summary) -> str:
    if one.repaired_share is None:
        return NONE
    return f"{_percent(one.repaired_share)} of {one.failures_taken_up}"


def _curve(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "fast_p",
        "Share of all runs that are correct with a speedup over p, by reference.",
        ("level", "strategy", "reference", *(f"p = {p:g}" for p in FAST_PS)),
        [
            (one.level, one.strategy, name, *(_percent(against.fast[p]) for p in FAST_PS))
            for one in summaries
            for name, against in one.against.items()
            if against is not None
        ],
    )


def _differences(differences: Sequence[Difference]) -> Sheet:
    return Sheet(
        "Differences",
        "On the same problems and seeds, with 95 % intervals of a paired bootstrap over problems; geomean "
        "(failed as 1) as a ratio. A star: the interval leaves out no difference, on six problems or more.",
        ("level", "strategies", "problems", "metric", "difference", "95 %", ""),
        [
            (
                one.level,
                f"{one.strategy} vs {one.other}",
                str(one.problems),
                one.metric,
                _difference(one, one.value),
                f"[{_difference(one, one.low)}, {_difference(one, one.high)}]",
                "*" if one.assured else "",
            )
            for one in differences
        ],
    )


def _difference(one: Difference, value: float) -> str:
    return _times(value) if one.metric == "geomean" else f"{100 * value:+.1f} points"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _times(speedup: float) -> str:
    return f"{speedup:.2f}x"


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"
