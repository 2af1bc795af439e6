"""The report as tables of formatted text, and as a Markdown document; the terminal shows the same tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from stark.benches.compare import MIN_PROBLEMS, Difference
from stark.benches.metrics import FAST_PS, REFERENCES, Against, Summary
from stark.benches.report import Report
from stark.core.bench import Bench
from stark.core.usage import BYTES_PER_TOKEN
from stark.explain.numbers import counted
from stark.explain.run import dollars, token_count

NOT_MEASURED = "not measured"
UNKNOWN = "unknown"
NONE = "-"
NO_PICTURES = 'The report has no pictures, because matplotlib is not installed: `pip install "stark-kernels[plots]"`.'


class Sheet(NamedTuple):
    """One table."""

    title: str
    about: str
    """The definitions of its columns."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sheets(report: Report) -> list[Sheet]:
    """The tables of a report, the most important first."""
    found = [_kernels(report.summaries), _means(report.summaries)]
    if report.own_summaries:
        found.append(_every_run(report.own_summaries))
    found += [
        _speedups(report.summaries),
        _search(report.summaries),
        _roles(report.summaries),
        _curve(report.summaries),
    ]
    return [*found, _differences(report.differences)] if report.differences else found


def markdown(report: Report, pictures: Sequence[str] | None) -> str:
    """The report as one document; `pictures` are files in the same folder, None if they cannot be drawn."""
    lines = [f"# Bench {report.bench.name}", "", head(report.bench), ""]
    lines += [f"- {note}" for note in report.notes]
    for sheet in sheets(report):
        lines += ["", f"## {sheet.title}", sheet.about, "", _row(sheet.columns)]
        lines += [_row(["---"] * len(sheet.columns)), *map(_row, sheet.rows)]
    for file in pictures or ():
        lines += ["", f"![{file}]({quote(file)})"]
    if pictures is None:
        lines += ["", NO_PICTURES]
    return "\n".join(lines) + "\n"


def head(bench: Bench) -> str:
    """The size of the bench in one line."""
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
        "Best kernels against eager. Success: share of runs with a correct kernel. fast_p: share of all runs with a "
        "speedup over p (KernelBench's fastp). Clearly faster: the whole 95 % interval is above 1. Geomean: over all "
        "runs, those without a correct kernel as 1. Roofline: median fraction of its speed.",
        (
            "level",
            "strategy",
            "runs",
            "success",
            "fast_1",
            "fast_2",
            "clearly faster",
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
    shares = (against.fast[1.0], against.fast[2.0], against.clearly_faster)
    return (*map(_percent, shares), _times(against.of_all.geomean))


def _means(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Mean speedups",
        "The metrics of the STARK paper, as published summaries describe it. Arithmetic means over runs with a correct "
        "kernel; n of N measured: only n of the N kernels were timed against this reference.",
        ("level", "strategy", "runs", "success", "fast_1", *(f"vs {name}" for name in REFERENCES)),
        [
            (
                *(one.level, one.strategy, str(one.runs), _percent(one.success)),
                _percent(one.against["eager"].fast[1.0]) if one.against["eager"] else NOT_MEASURED,
                *(_mean(one.against[name]) for name in REFERENCES),
            )
            for one in summaries
        ],
    )


def _mean(against: Against | None) -> str:
    if against is None:
        return NOT_MEASURED
    if against.of_correct is None:
        return NONE
    partial = "" if against.measured == against.kernels else f" ({_measured(against)})"
    return f"{_times(against.of_correct.mean)}{partial}"


def _measured(against: Against) -> str:
    return f"{against.measured} of {against.kernels} measured"


def _every_run(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Every finished run",
        "Each strategy over all of its own finished runs. Strategies finished different problems, so do not compare "
        "these rows; the other tables are over the problems and seeds that all strategies finished.",
        ("level", "strategy", "problems", "runs", "success", "fast_1", "geomean"),
        [
            (
                *(one.level, one.strategy, str(one.problems), str(one.runs)),
                _percent(one.success),
                _eager(one.against["eager"])[0],
                _eager(one.against["eager"])[-1],
            )
            for one in summaries
        ],
    )


def _speedups(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Speedups",
        "By reference. All: runs without a correct kernel count as 1. Correct: only runs with one. Kernels that were "
        "not measured against a reference do not count in its row.",
        (
            "level",
            "strategy",
            "reference",
            "kernels",
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
        return (NOT_MEASURED, *(NONE,) * 6)
    shares = (_measured(against), _percent(against.fast[1.0]), _times(against.of_all.geomean))
    correct = against.of_correct
    if correct is None:
        return (*shares, *(NONE,) * 4)
    values = (correct.geomean, correct.mean, correct.median, correct.worst)
    return (*shares, *map(_times, values))


def _search(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Search and cost",
        "Repaired: share of the failures that debugging worked on and that ended in a correct kernel. To best: mean "
        "number of attempts up to the best one. Hours: sum of the runs' active times.",
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
                f"{one.spent.calls:,}",
                token_count(one.spent.tokens, one.spent),
                dollars(one.spent),
                f"{one.active_hours:.2f}",
            )
            for one in summaries
        ],
    )


def _roles(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "Cost by role",
        f"All calls of the runs. ~: includes estimates at {BYTES_PER_TOKEN} bytes per token, for calls whose tokens the "
        "model did not report. Waiting: hours until replies arrived, added up over concurrent calls too.",
        (*("level", "strategy", "role", "calls"), *("input", "output", "price", "waiting")),
        [
            (
                *(one.level, one.strategy, role, f"{spent.calls:,}"),
                token_count(spent.input_tokens, spent),
                token_count(spent.output_tokens, spent),
                dollars(spent),
                f"{spent.seconds / 3600:.2f}",
            )
            for one in summaries
            for role, spent in one.roles.items()
        ],
    )


def _repaired(one: Summary) -> str:
    if one.repaired_share is None:
        return NONE
    return f"{_percent(one.repaired_share)} of {one.failures_taken_up}"


def _curve(summaries: Sequence[Summary]) -> Sheet:
    return Sheet(
        "fast_p",
        "Share of all runs with a correct kernel and a speedup over p, by reference, as in Speedups.",
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
        "The first strategy minus the other on the same problems and seeds; for the geomean over all runs, their "
        f"ratio. Intervals are from a paired bootstrap over problems, and need {MIN_PROBLEMS} problems. A star: the "
        "interval excludes no difference.",
        ("level", "strategies", "problems", "metric", "difference", "95 % interval", ""),
        [
            (
                one.level,
                f"{one.strategy} vs {one.other}",
                str(one.problems),
                one.metric,
                _difference(one, one.value),
                _interval(one),
                "*" if one.significant else "",
            )
            for one in differences
        ],
    )


def _interval(one: Difference) -> str:
    if one.low is None or one.high is None:
        return f"fewer than {MIN_PROBLEMS} problems: no interval"
    return f"[{_difference(one, one.low)}, {_difference(one, one.high)}]"


def _difference(one: Difference, value: float) -> str:
    return _times(value) if one.metric == "geomean" else f"{100 * value:+.1f} points"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _times(speedup: float) -> str:
    return f"{speedup:.2f}x"


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"
