"""The report's pictures: progress by attempt, fast_p, and every problem's kernels beside the roofline."""

from __future__ import annotations

from collections.abc import Sequence

from stark.bench.metrics import fast_p_curve
from stark.bench.report import Report
from stark.bench.results import Result, by_level, by_strategy
from stark.bench.svg import COLOURS, LETTER, Axis, Picture, powers

PROBLEM_PIXELS = 16
PERCENT_TICKS = [(share / 100, f"{share} %") for share in range(0, 101, 20)]


def plots(report: Report) -> dict[str, str]:
    """The pictures of each level as SVG texts, by file name."""
    if not report.ended:
        return {}
    found = {}
    for level, results in by_level(report.ended).items():
        found[f"progress-{level}.svg"] = progress(report, level)
        found[f"fast_p-{level}.svg"] = fast_p(report, level, results)
        found[f"problems-{level}.svg"] = problems(report, level, results)
    return found


def progress(report: Report, level: str) -> str:
    """Geometric mean speedup against eager after each attempt, runs without a correct kernel as 1."""
    courses = {s: course for (of, s), course in report.courses.items() if of == level}
    length = report.bench.attempts
    step = max(1, length // 10)
    ticks = [(n, str(n)) for n in range(step, length + 1, step)]
    x = Axis("attempts", 0, length, ticks)
    y = powers("speedup vs eager, geomean", [v for c in courses.values() for v in c], base=2**0.5)
    picture = Picture(f"Best speedup by attempt, as the search measured, {level}", x, y)
    for strategy, course in courses.items():
        picture.line(strategy, _colour(report, strategy), [(0, 1.0), *enumerate(course, start=1)])
    return picture.text()


def fast_p(report: Report, level: str, results: Sequence[Result]) -> str:
    """Share of runs with a speedup over p against eager, as a function of p."""
    curves = {
        strategy: fast_p_curve([result.speedup("eager") for result in found])
        for strategy, found in by_strategy(results).items()
    }
    x = powers("p, speedup vs eager", [p for c in curves.values() for p, _ in c if p > 0])
    picture = Picture(f"fast_p, {level}", x, Axis("share of runs", 0, 1, PERCENT_TICKS))
    picture.upright(1.0)
    for strategy, curve in curves.items():
        picture.line(strategy, _colour(report, strategy), _steps(curve, x.low, x.high))
    return picture.text()


def problems(report: Report, level: str, results: Sequence[Result]) -> str:
    """Each problem's kernels: a dot for each run's speedup against eager, a bar where the roofline is."""
    names = list(dict.fromkeys((result.cell.level, result.cell.problem) for result in results))
    rows = {name: len(names) - row for row, name in enumerate(names)}
    ceilings = {
        (result.cell.level, result.cell.problem): result.roofline_speedup
        for result in results
        if result.roofline_speedup is not None
    }
    speedups = [value for result in results if (value := result.speedup("eager")) is not None]
    x = powers("speedup vs eager; a bar is the roofline", [*speedups, *ceilings.values()])
    y = Axis("", 0, len(names) + 1, [(row, problem) for (_, problem), row in rows.items()])
    left = 20 + LETTER * max(len(problem) for _, problem in names)
    height = 100 + PROBLEM_PIXELS * (len(names) + 1)
    picture = Picture(
        f"Kernels by problem, {level}", x, y, width=left + 600, height=height, left=left
    )
    picture.upright(1.0)
    for name, ceiling in ceilings.items():
        picture.bar(ceiling, rows[name], f"{name[1]}: the roofline is {ceiling:.2f}x")
    for result in results:
        cell, speedup = result.cell, result.speedup("eager")
        colour = _colour(report, cell.strategy)
        picture.name(cell.strategy, colour)
        if speedup is not None:
            said = f"{cell.problem}: {cell.strategy}, seed {cell.seed}: {speedup:.2f}x"
            picture.dot(speedup, rows[cell.level, cell.problem], colour, said)
    return picture.text()


def _steps(
    curve: Sequence[tuple[float, float]], low: float, high: float
) -> list[tuple[float, float]]:
    """A falling staircase from the left end to the right one: at each p the share steps down."""
    points: list[tuple[float, float]] = [(low, curve[0][1])]
    for p, share in curve[1:]:
        points += [(p, points[-1][1]), (p, share)]
    return [*points, (high, points[-1][1])]


def _colour(report: Report, strategy: str) -> str:
    """The same for a strategy in all pictures of a bench."""
    order = list(dict.fromkeys(cell.strategy for cell in report.bench.cells))
    return COLOURS[order.index(strategy) % len(COLOURS)]
