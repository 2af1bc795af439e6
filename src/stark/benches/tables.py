"""The report as tables of formatted text, and as a Markdown document; the terminal shows the same tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote

from stark.benches.compare import MIN_PROBLEMS, RATIOS, Difference
from stark.benches.metrics import FAST_PS, REFERENCES, Against, Summary
from stark.benches.report import Report
from stark.benches.results import Result
from stark.core.bench import Bench
from stark.core.usage import BYTES_PER_TOKEN, Spent
from stark.explain.evaluation import speedup_text
from stark.explain.numbers import counted, milliseconds
from stark.explain.run import dollars, token_count

T = TypeVar("T")

NO_PICTURES = 'The report has no pictures, because matplotlib is not installed: `pip install "stark-kernels[plots]"`.'


class Sheet(NamedTuple):
    """One table."""

    title: str
    about: str
    """The definitions of the table's columns."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sheets(report: Report) -> list[Sheet]:
    """The report's tables, the most important first. Tables without rows are left out."""
    strategies = [((one.level, one.strategy), one) for one in report.summaries]
    own = [((one.level, one.strategy), one) for one in report.own_summaries]
    references = [
        ((*names, name), against)
        for names, one in strategies
        for name, against in one.against.items()
    ]
    roles = [
        ((*names, name), spent) for names, one in strategies for name, spent in one.roles.items()
    ]
    differences = [
        ((one.level, f"{one.strategy} vs {one.other}", str(one.problems), one.metric), one)
        for one in report.differences
    ]
    found = [
        _KERNELS.sheet(strategies),
        _MEANS.sheet(strategies),
        _EVERY_RUN.sheet(own),
        _SPEEDUPS.sheet(references),
        _SEARCH.sheet(strategies),
        _ROLES.sheet(roles),
        _FAST_P.sheet(references),
        _DIFFERENCES.sheet(differences),
        _kinds(report),
    ]
    return [sheet for sheet in found if sheet.rows]


def markdown(report: Report, pictures: Sequence[str] | None) -> str:
    """The report as one Markdown document.

    `pictures` are the names of picture files in the document's folder; None if matplotlib is not installed.
    """
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


def _kinds(report: Report) -> Sheet:
    """The best kernels on several kinds of machines; without rows if there is one kind only."""
    results = [one for one in report.ended if one.outcome.best_attempt in one.own_checks]
    kinds = list(dict.fromkeys(kind for one in results for kind in one.outcome.classes))
    devices = [kind.split("; ")[0] for kind in kinds]
    columns = devices if len(set(devices)) == len(kinds) else kinds
    rows = [
        (
            *(one.cell.level, one.cell.strategy, one.cell.problem, str(one.cell.seed)),
            *(str(one.outcome.best_attempt), reference),
            *(_on_kind(one, kind, reference) for kind in kinds),
        )
        for one in results
        for reference in (one.best.references if one.best else ())
    ]
    return Sheet(
        "Kinds of machines",
        "The best kernel of each run against each reference: the speedup with its 95 % interval, the kernel's time and "
        "the reference's, all measured on the column's kind of machine. The search ran on the first kind, and only that "
        "kind decides which kernel is the best.",
        ("level", "strategy", "problem", "seed", "attempt", "reference", *columns),
        rows,
    )


def _on_kind(result: Result, kind: str, reference: str) -> str:
    found = result.outcome.classes.get(kind, {}).get(result.outcome.best_attempt or 0)
    if found is None:
        return "not judged"
    if found.latency_ms is None:
        return found.status.replace("_", " ")
    if reference not in found.speedups:
        return "not measured"
    speedup = speedup_text(found.speedups[reference], named=False)
    times = map(milliseconds, (found.latency_ms, found.references_ms[reference]))
    return f"{speedup}, {' of '.join(times)}"


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _times(speedup: float) -> str:
    return f"{speedup:.2f}x"


def _of_correct(figure: str, against: Against) -> str:
    return "-" if against.of_correct is None else _times(getattr(against.of_correct, figure))


def _fast(p: float, against: Against) -> str:
    return _percent(against.fast[p])


def _mean(reference: str, one: Summary) -> str:
    against = one.against.get(reference)
    if against is None:
        return "not measured"
    some = "" if against.measured == against.kernels else f" ({_measured(against)})"
    return f"{_of_correct('mean', against)}{some}"


def _measured(against: Against) -> str:
    return f"{against.measured} of {against.kernels} measured"


def _repaired(one: Summary) -> str:
    share = one.repaired_share
    return "-" if share is None else f"{_percent(share)} of {one.failures_taken_up}"


def _difference(one: Difference, value: float) -> str:
    return _times(value) if one.metric in RATIOS else f"{100 * value:+.1f} points"


def _interval(one: Difference) -> str:
    if one.low is None or one.high is None:
        return f"no interval: fewer than {MIN_PROBLEMS} problems"
    return f"[{_difference(one, one.low)}, {_difference(one, one.high)}]"


class _Table(NamedTuple, Generic[T]):
    """A kind of table. Each row begins with names, such as level and strategy; `names` has the headings of these
    cells. `columns` maps the heading of each further column to a function that formats the row's data.
    """

    title: str
    about: str
    names: tuple[str, ...]
    columns: Mapping[str, Callable[[T], str]]

    def sheet(self, rows: Iterable[tuple[tuple[str, ...], T]]) -> Sheet:
        shown = [
            (*names, *(column(data) for column in self.columns.values())) for names, data in rows
        ]
        return Sheet(self.title, self.about, (*self.names, *self.columns), shown)


_KERNELS = _Table[Summary](
    "Kernels",
    "Best kernels against eager. Success: share of runs with a correct kernel. fast_p: share of all runs with a "
    "speedup over p (KernelBench's fastp). Clearly faster: share of all runs whose whole 95 % interval is above 1. "
    "Geomean: over all runs; a run without a correct kernel counts as 1. Roofline: the roofline's time divided by the "
    "kernel's, median over the best kernels. Error meets: the strictest precision class of each best kernel's error, with "
    "the number of kernels; it does not tell their arithmetic.",
    ("level", "strategy"),
    {
        "runs": lambda one: str(one.runs),
        "success": lambda one: _percent(one.success),
        "fast_1": lambda one: _percent(one.against["eager"].fast[1.0]),
        "fast_2": lambda one: _percent(one.against["eager"].fast[2.0]),
        "clearly faster": lambda one: _percent(one.against["eager"].clearly_faster),
        "geomean": lambda one: _times(one.against["eager"].of_all.geomean),
        "roofline": lambda one: _percent(one.roofline),
        "error meets": lambda one: (
            ", ".join(f"{name} {count}" for name, count in one.meets.items()) or "-"
        ),
    },
)

_MEANS = _Table[Summary](
    "Mean speedups",
    "The STARK paper's metrics, as published summaries describe them. Speedups are arithmetic means over runs with a "
    "correct kernel. n of N measured: only n of the N kernels were timed against the column's reference.",
    ("level", "strategy"),
    {
        **{name: _KERNELS.columns[name] for name in ("runs", "success", "fast_1")},
        **{f"vs {name}": partial(_mean, name) for name in REFERENCES},
    },
)

_EVERY_RUN = _KERNELS._replace(
    title="Every finished run",
    about="Each strategy over all of its own finished runs. Strategies finished different problems, so do not compare "
    "these rows; the other tables cover only the pairs of problem and seed that all strategies finished.",
)

_SPEEDUPS = _Table[Against](
    "Speedups",
    "Speedups against each reference. All: over all runs; a run without a correct kernel counts as 1. Correct: over "
    "runs with a correct kernel. A kernel does not count in the row of a reference that it was not measured against.",
    ("level", "strategy", "reference"),
    {
        "kernels": _measured,
        "fast_1": partial(_fast, 1.0),
        "geomean all": lambda against: _times(against.of_all.geomean),
        **{
            f"{figure} correct": partial(_of_correct, figure)
            for figure in ("geomean", "mean", "median", "worst")
        },
    },
)

_SEARCH = _Table[Summary](
    "Search and cost",
    "Repaired: of the failures that were debugged, the share that ended in a correct kernel. To best: mean number of "
    "attempts up to and including the best one. Hours: sum of the runs' active times.",
    ("level", "strategy"),
    {
        "attempts": lambda one: f"{one.attempts:,}",
        "correct": lambda one: _percent(one.correct_share),
        "repaired": _repaired,
        "to best": lambda one: (
            "-" if one.attempts_to_best is None else f"{one.attempts_to_best:.1f}"
        ),
        "model calls": lambda one: f"{one.spent.calls:,}",
        "tokens": lambda one: token_count(one.spent.tokens, one.spent),
        "price": lambda one: dollars(one.spent),
        "hours": lambda one: f"{one.active_hours:.2f}",
    },
)

_ROLES = _Table[Spent](
    "Cost by role",
    f"All model calls of the runs. ~: includes estimates, at {BYTES_PER_TOKEN} bytes per token, for calls whose tokens "
    "the model did not report. Waiting: hours spent waiting for replies, summed over all calls, concurrent or not.",
    ("level", "strategy", "role"),
    {
        "calls": lambda spent: f"{spent.calls:,}",
        "input": lambda spent: token_count(spent.input_tokens, spent),
        "output": lambda spent: token_count(spent.output_tokens, spent),
        "price": dollars,
        "waiting": lambda spent: f"{spent.seconds / 3600:.2f}",
    },
)

_FAST_P = _Table[Against](
    "fast_p",
    "By reference, the share of runs with a correct kernel and a speedup over p. The same runs count as in Speedups.",
    ("level", "strategy", "reference"),
    {f"p = {p:g}": partial(_fast, p) for p in FAST_PS},
)

_DIFFERENCES = _Table[Difference](
    "Differences",
    "The first strategy's metric minus the other's, on the same problems and seeds; for the geomean over all runs, "
    "the ratio of the two. equal_tokens: the ratio of the search's best speedups, the run that spent more tokens cut off at "
    f"those of the other one. Intervals come from a paired bootstrap over problems and need at least {MIN_PROBLEMS} problems. "
    "A star: the whole interval lies on one side of 0 (for ratios, of 1).",
    ("level", "strategies", "problems", "metric"),
    {
        "difference": lambda one: _difference(one, one.value),
        "95 % interval": _interval,
        "": lambda one: "*" if one.significant else "",
    },
)
