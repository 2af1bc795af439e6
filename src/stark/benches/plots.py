"""The report's pictures: progress by attempt, fast_p, and every problem's kernels beside its roofline.

Drawn by matplotlib, which the optional extra `plots` installs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from stark.benches.report import Report
from stark.benches.results import Result, by_level, by_strategy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plots(report: Report) -> dict[str, bytes] | None:
    """The pictures of each level as SVG, by file name; None if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = {}
    with rc_context(
        {
            "svg.hashsalt": "stark",  # the same report gives the same files
            "svg.fonttype": "none",
            "axes.grid": True,
            "grid.alpha": 0.3,
            "font.size": 9,
        }
    ):
        for level, results in by_level(report.compared).items():
            for draw in (progress, fast_p, problems):
                figure = Figure(figsize=_size(draw.__name__, results), layout="constrained")
                axes = figure.subplots()
                draw(axes, report, level, results)
                axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
                image = io.BytesIO()
                figure.savefig(image, format="svg", metadata={"Date": None})
                found[f"{draw.__name__}-{level}.svg"] = image.getvalue()
    return found


def progress(axes: Axes, report: Report, level: str, results: Sequence[Result]) -> None:
    """Geometric mean speedup against eager after each attempt; runs without a correct kernel count as 1."""
    from matplotlib.ticker import MaxNLocator

    for strategy in by_strategy(results):
        course = [1.0, *report.courses[level, strategy]]
        axes.plot(range(len(course)), course, color=_colour(report, strategy), label=strategy)
    axes.set_yscale("log", base=2**0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:.3g}x")
    axes.set(
        title=f"Best speedup by attempt, as measured by the search, {level}",
        xlabel="attempts",
        ylabel="speedup vs eager, geomean",
    )


def fast_p(axes: Axes, report: Report, level: str, results: Sequence[Result]) -> None:
    """Share of runs with a speedup over p against eager, as a function of p."""
    for strategy, found in by_strategy(results).items():
        speedups = [result.speedup("eager") or 0.0 for result in found]
        axes.ecdf(speedups, complementary=True, color=_colour(report, strategy), label=strategy)
    _speedup_axis(axes)
    axes.set(title=f"fast_p, {level}", xlabel="p, speedup vs eager", ylabel="share of runs")
    axes.set_ylim(-0.02, 1.02)


def problems(axes: Axes, report: Report, level: str, results: Sequence[Result]) -> None:
    """Each problem's kernels: a dot per run at its speedup against eager, and a black bar at the roofline."""
    names = list(dict.fromkeys((one.cell.level, one.cell.problem) for one in results))
    rows = {name: row for row, name in enumerate(reversed(names))}
    for strategy, found in by_strategy(results).items():
        dots = [
            (speedup, rows[one.cell.level, one.cell.problem])
            for one in found
            if (speedup := one.speedup("eager")) is not None
        ]
        colour = _colour(report, strategy)
        axes.scatter(*_columns(dots), color=colour, alpha=0.75, label=strategy)
    bars = {
        rows[one.cell.level, one.cell.problem]: one.roofline_speedup
        for one in results
        if one.roofline_speedup is not None
    }
    axes.scatter(list(bars.values()), list(bars), marker="|", s=80, color="black", label="roofline")
    _speedup_axis(axes)
    axes.set_yticks(list(rows.values()), [problem for _, problem in rows])
    axes.set(title=f"Kernels by problem, {level}", xlabel="speedup vs eager")


def _speedup_axis(axes: Axes) -> None:
    axes.axvline(1.0, color="grey", linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.3g}x")


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _size(picture: str, results: Sequence[Result]) -> tuple[float, float]:
    """Inches; the problems need a row each."""
    count = len({(one.cell.level, one.cell.problem) for one in results})
    return 9.0, 1.5 + 0.2 * count if picture == "problems" else 4.5


def _colour(report: Report, strategy: str) -> str:
    """The same colour for a strategy in all pictures of a bench."""
    order = list(dict.fromkeys(cell.strategy for cell in report.bench.cells))
    return f"C{order.index(strategy)}"
