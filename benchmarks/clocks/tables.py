"""Writes findings as Markdown tables, and inserts them into a document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import median

from clocks.chances import binomial_interval, spread
from clocks.findings import Alike, Compared, Findings
from clocks.programs import sizes

LONG_MS = 0.1
"""The stated interval width applies to work longer than this."""

ABSURD = 10.0
"""A relative half-width above which nothing was measured."""


def identical(findings: Findings) -> str:
    """The table of the judge on identical programs."""
    lines = [
        _origin(findings),
        "",
        "| effort | elements | ms | windows | ratios, smallest to largest | half-width, median | not widened | timing s, median | wins | losses |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    efforts = by_effort(findings.alike)
    for effort, of_it in efforts.items():
        for size, rows in _by_size(of_it):
            lines.append(_cells([effort, *_identical_cells(size, rows)]))
    for effort, of_it in efforts.items():
        lines += ["", f"At `{effort}`:", "", *_counted(of_it)]
    drawn = [_picture(findings, "ratios"), _picture(findings, "widths")]
    return "\n".join([*lines, "", *drawn])


def by_effort(rows: Sequence[Alike]) -> dict[str, list[Alike]]:
    """The rows of each effort, in the order of their first rows."""
    efforts = dict.fromkeys(row.effort for row in rows)
    return {effort: [row for row in rows if row.effort == effort] for effort in efforts}


def methods(findings: Findings) -> str:
    """The table that compares the methods."""
    lines = [
        _origin(findings),
        "",
        "| elements | method | runs | ms | spread | ratio, farthest from 1 | wins | ms, busy | spread, busy | ratio, farthest from 1, busy | wins, busy |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size, rows in _by_size(findings.compared):
        for method in dict.fromkeys(row.method for row in rows):
            of_it = [row for row in rows if row.method == method]
            lines.append(_cells(_method_cells(size, method, of_it)))
    return "\n".join([*lines, "", _picture(findings, "methods")])


def placed(document: str, name: str, text: str) -> str:
    """The document with `text` between the marks of `name`. Raises ValueError if it has none."""
    pattern = re.compile(
        rf"(<!-- measured: {re.escape(name)} -->\n).*?(<!-- end: {re.escape(name)} -->)", re.DOTALL
    )
    if pattern.search(document) is None:
        raise ValueError(f"the document has no `<!-- measured: {name} -->`")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", document)


def _picture(findings: Findings, what: str) -> str:
    """A link to a picture, relative to the document."""
    return f"![{what}](measuring/{findings.path.stem}-{what}.svg)"


def _origin(findings: Findings) -> str:
    return f"{findings.machine}, {findings.date}: `{findings.command}`"


def _identical_cells(size: str, rows: Sequence[Alike]) -> list[str]:
    ratios = [row.ratio for row in rows]
    return [
        size,
        f"{median(row.latency_ms for row in rows):.4g}",
        str(len(rows)),
        f"{min(ratios):.4f} to {max(ratios):.4f}",
        _width(median(row.half_width for row in rows)),
        _width(median(row.exact_half_width for row in rows)),
        f"{median(row.device_s for row in rows):.2f}",
        str(sum(row.low > 1 for row in rows)),
        str(sum(row.high < 1 for row in rows)),
    ]


def _width(half_width: float) -> str:
    """Format a half-width. The judge reports a huge one if the reference was disturbed in every round."""
    return f"{half_width:.2%}" if half_width < ABSURD else "not measurable"


def _counted(rows: Sequence[Alike]) -> Iterator[str]:
    """The main proportions, one line each."""
    if not rows:
        return
    yield f"- false wins: {_share(sum(row.low > 1 for row in rows), len(rows))}"
    exact = sum(row.exact_low > 1 for row in rows)
    yield f"- without the widening: {_share(exact, len(rows))}"
    least = max(max(row.exact_low for row in rows) - 1, 0.0)
    yield f"- no window would have been a win if its lower end, not widened, had to be above {1 + least:.4f}"
    long = [row for row in rows if row.latency_ms > LONG_MS]
    if long:
        narrow = sum(row.half_width < 0.01 for row in long)
        middle = median(row.half_width for row in long)
        yield (
            f"- over {LONG_MS:g} ms: a half-width under 1 % in {narrow} of {len(long)} windows, "
            f"{middle:.2%} in the median"
        )


def _share(hits: int, count: int) -> str:
    low, high = binomial_interval(hits, count)
    return f"{hits} of {count}, {hits / count:.2%} (95 % interval {low:.2%} to {high:.2%})"


def _method_cells(size: str, method: str, rows: Sequence[Compared]) -> list[str]:
    cells = [size, method]
    quiet, busy = ([row for row in rows if row.busy is wanted] for wanted in (False, True))
    cells.append(f"{len(quiet)} and {len(busy)}")
    for some in (quiet, busy):
        if not some:
            cells += [""] * 4
            continue
        times = [row.candidate_ms for row in some]
        farthest = max((row.ratio for row in some), key=lambda ratio: abs(math.log(ratio)))
        claims = [row.won for row in some if row.won is not None]
        cells += [f"{median(times):.4g}", f"{spread(times):.1%}", f"{farthest:.4f}"]
        cells.append(str(sum(claims)) if claims else "claims none")
    return cells


def _by_size(rows: Sequence[Alike] | Sequence[Compared]) -> Iterator[tuple[str, list]]:  # type: ignore[type-arg]
    """The rows of each size, smallest size first."""
    names = {row.size for row in rows}
    order = sorted((sizes(name)[0] for name in names), key=lambda size: size.order)
    for size in order:
        yield size.words, [row for row in rows if row.size == str(size)]


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
