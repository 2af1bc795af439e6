"""Draws findings as SVG pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from clocks.findings import Alike, Findings
from clocks.programs import sizes
from clocks.svg import COLOURS, LETTER, Axis, Picture, powers
from clocks.tables import by_effort

GREY = "#6b7280"


def pictures(findings: Findings) -> dict[str, str]:
    """All pictures that the findings allow, by file name."""
    name = findings.path.stem
    drawn = {}
    if findings.alike:
        drawn[f"{name}-ratios.svg"] = ratios(findings)
        drawn[f"{name}-widths.svg"] = widths(findings)
    if findings.compared:
        drawn[f"{name}-methods.svg"] = methods(findings)
    return drawn


def ratios(findings: Findings) -> str:
    """The ratio of two identical programs in each window."""
    x = decades("ms a call", [row.latency_ms for row in findings.alike])
    y = around_one("ratio of identical programs", [row.ratio for row in findings.alike])
    picture = Picture("The judge on identical programs", x, y)
    picture.line("no difference", GREY, [(x.low, 1.0), (x.high, 1.0)])
    for row in findings.alike:
        wins = row.low > 1 or row.high < 1
        colour, name = (COLOURS[4], "told apart") if wins else (COLOURS[0], "not told apart")
        picture.name(name, colour)
        said = f"{row.latency_ms:.4g} ms: {row.ratio:.4f} [{row.low:.4f}, {row.high:.4f}]"
        picture.dot(row.latency_ms, row.ratio, colour, said)
    return picture.text()


def widths(findings: Findings) -> str:
    """The interval's width over the duration of the work."""
    points = {effort: _widths(rows) for effort, rows in by_effort(findings.alike).items()}
    every = [point for of_it in points.values() for point in of_it]
    x = decades("ms a call", [latency for latency, _, _ in every])
    y = decades(
        "half-width of the interval, %", [1.0, *(width for _, *both in every for width in both)]
    )
    picture = Picture("The width of the 95 % interval, median", x, y)
    for place, (effort, of_it) in enumerate(points.items()):
        reported, exact = COLOURS[2 * place : 2 * place + 2]
        picture.line(effort, reported, [(at, width) for at, width, _ in of_it])
        picture.line(f"{effort}, not widened", exact, [(at, width) for at, _, width in of_it])
    picture.line("1 %", GREY, [(x.low, 1.0), (x.high, 1.0)])
    return picture.text()


def _widths(rows: Sequence[Alike]) -> list[tuple[float, float, float]]:
    """The medians of each size: milliseconds and half-widths, reported and not widened, in percent."""
    return sorted(
        (
            median(row.latency_ms for row in of_it),
            100 * median(row.half_width for row in of_it),
            100 * median(row.exact_half_width for row in of_it),
        )
        for size in dict.fromkeys(row.size for row in rows)
        for of_it in [[row for row in rows if row.size == size]]
    )


def methods(findings: Findings) -> str:
    """The ratio of identical programs in each run, by method and neighbour."""
    order = {name: place for place, name in enumerate(_size_names(findings))}
    keys = sorted(
        {(row.size, row.method, row.busy) for row in findings.compared},
        key=lambda key: (order[key[0]], key[1], key[2]),
    )
    rows = {key: len(keys) - place for place, key in enumerate(keys)}
    labels = {
        key: f"{sizes(key[0])[0].words}, {key[1]}{', busy' if key[2] else ''}" for key in keys
    }
    x = around_one("ratio of identical programs", [row.ratio for row in findings.compared])
    y = Axis("", 0, len(keys) + 1, [(rows[key], labels[key]) for key in keys])
    left = 20 + LETTER * max(map(len, labels.values()))
    picture = Picture(
        "Each run of each method",
        x,
        y,
        width=left + 560,
        height=100 + 18 * (len(keys) + 1),
        left=left,
    )
    picture.upright(1.0)
    names = sorted({row.method for row in findings.compared})
    for row in findings.compared:
        colour = COLOURS[names.index(row.method) % len(COLOURS)]
        at = rows[row.size, row.method, row.busy]
        picture.dot(row.ratio, at, colour, f"{row.ratio:.4f}, {row.candidate_ms:.4g} ms")
    return picture.text()


def decades(label: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis that covers these values, with ticks at powers of ten."""
    held = [max(value, 1e-6) for value in values]
    first, last = math.floor(math.log10(min(held))), math.ceil(math.log10(max(held)))
    last = max(last, first + 1)
    ticks = [(10.0**power, f"{10.0**power:g}") for power in range(first, last + 1)]
    return Axis(label, 10.0**first, 10.0**last, ticks, logarithmic=True)


def around_one(label: str, values: Sequence[float]) -> Axis:
    """An axis that covers these values, centred at 1, or logarithmic if they span more than a factor of two."""
    if max(values) > 2 or min(values) < 0.5:
        return powers(label, values)
    reach = max(0.001, 1.05 * max(abs(value - 1) for value in values))
    ticks = [(1 + reach * part / 2, f"{1 + reach * part / 2:.4g}") for part in range(-2, 3)]
    return Axis(label, 1 - reach, 1 + reach, ticks)


def _size_names(findings: Findings) -> list[str]:
    found = {row.size for row in findings.compared}
    key = {name: sizes(name)[0] for name in found}
    return sorted(found, key=lambda name: key[name].order)
