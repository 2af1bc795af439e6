"""The report's pictures: progress by attempt, fast_p, and for every problem the kernels and the roofline.

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
            tall = 1.5 + 0.2 * len({one.problem for one in results})
            for draw, height in ((progress, 4.5), (fast_p, 4.5), (problems, tall)):
                figure = Figure(figsize=(9, height), layout="constrained")
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
        axes.plot([1.0, *report.courses[level, strategy]], label=strategy)
    axes.set_yscale("log", base=2**0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter("{x:.3g}x")
    axes.set(
        title=f"Best speedup by attempt, as measured by the search, {level}",
        xlabel="attempts",
        ylabel="speedup vs eager, geomean",
    )


def fast_p(axes: Axes, report: Report, level: str, results: Sequence[Result]) -> None:
    """Share of runs whose speedup against eager is over p, as a function of p."""
    for strategy, found in by_strategy(results).items():
        speedups = [result.speedup("eager") or 0.0 for result in found]
        axes.ecdf(speedups, complementary=True, label=strategy)
    _speedup_axis(axes)
    axes.set(title=f"fast_p, {level}", xlabel="p, speedup vs eager", ylabel="share of runs")
    axes.set_ylim(-0.02, 1.02)


def problems(axes: Axes, report: Report, level: str, results: Sequence[Result]) -> None:
    """One row per problem: a dot at the speedup of each run against eager, and a black bar at the roofline."""
    rows = {name: row for row, name in enumerate(dict.fromkeys(one.problem for one in results))}
    bars = {}
    for strategy, found in by_strategy(results).items():
        speedups, places = [], []
        for one in found:
            if one.best is not None:
                speedup = one.best.speedup_vs("eager").ratio
                speedups.append(speedup)
                places.append(rows[one.problem])
                if one.best.roofline_fraction:
                    bars[rows[one.problem]] = speedup / one.best.roofline_fraction
        axes.scatter(speedups, places, alpha=0.75, label=strategy)
    axes.scatter(list(bars.values()), list(bars), marker="|", s=80, color="black", label="roofline")
    _speedup_axis(axes)
    axes.set_yticks(list(rows.values()), [problem for _, problem in rows])
    axes.invert_yaxis()
    axes.set(title=f"Kernels by problem, {level}", xlabel="speedup vs eager")


def _speedup_axis(axes: Axes) -> None:
    axes.axvline(1.0, color="grey", linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.3g}x")
