"""Draws lines and dots in a frame with axes, as SVG text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

COLOURS = ("#0b6e99", "#d9730d", "#4d7c0f", "#a21caf", "#b91c1c", "#6b7280", "#0f766e", "#854d0e")
"""Colours of series, in order. They differ in brightness as well as in hue."""

LEFT, TOP, RIGHT, BOTTOM = 70, 40, 20, 50
LEGEND_LINE = 18
LETTER = 7
"""Approximate width of a character in pixels."""


class Axis(NamedTuple):
    """An axis with its label, range and ticks."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """The position of a value from 0 to 1; values beyond the ends are clipped."""
        low, high, value = (self._scaled(each) for each in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def _scaled(self, value: float) -> float:
        return math.log(max(value, 1e-12)) if self.logarithmic else value


def powers(label: str, values: Sequence[float], base: float = 2.0) -> Axis:
    """A logarithmic axis of speedups that covers these values and 1, with ticks at powers of `base`."""
    exponents = [math.log(value, base) for value in (*values, 1.0) if value > 0]
    first, last = math.floor(min(exponents)), math.ceil(max(exponents))
    last = max(last, first + 1)
    step = max(1, (last - first) // 8)
    ticks = [(base**e, f"{base**e:.3g}x") for e in range(first, last + 1, step)]
    return Axis(label, base**first, base**last, ticks, logarithmic=True)


class Picture:
    """A frame with two axes and its contents."""

    def __init__(
        self, title: str, x: Axis, y: Axis, width: int = 720, height: int = 420, left: int = LEFT
    ) -> None:
        self._x, self._y = x, y
        self._width, self._height, self._left = width, height, left
        self._parts = [_text(left, 22, title, "title")]
        self._names: list[tuple[str, str]] = []
        self._axes()

    def line(self, name: str, colour: str, points: Sequence[tuple[float, float]]) -> None:
        """Draw a line through points, with a name in the legend."""
        path = " ".join(f"{self._across(x):.1f},{self._down(y):.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        self.name(name, colour)

    def dot(self, x: float, y: float, colour: str, title: str) -> None:
        """Draw a dot with a tooltip."""
        at = f'cx="{self._across(x):.1f}" cy="{self._down(y):.1f}"'
        self._parts.append(
            f'<circle {at} r="4" fill="{colour}" fill-opacity="0.75"><title>{escape(title)}</title></circle>'
        )

    def upright(self, x: float) -> None:
        """Draw a dashed vertical line over the whole height."""
        across = self._across(x)
        self._parts.append(
            f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{TOP}" y2="{self._height - BOTTOM}" class="mark"/>'
        )

    def name(self, name: str, colour: str) -> None:
        """Add an entry to the legend."""
        if (name, colour) not in self._names:
            self._names.append((name, colour))

    def text(self) -> str:
        """Return the picture as an SVG document."""
        longest = max((len(name) for name, _ in self._names), default=0)
        width = self._width + (longest * LETTER + 30 if longest else 0)
        legend = [
            f'<rect x="{self._width}" y="{TOP + LEGEND_LINE * n}" width="12" height="12" fill="{colour}"/>'
            + _text(self._width + 18, TOP + 10 + LEGEND_LINE * n, name)
            for n, (name, colour) in enumerate(self._names)
        ]
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {self._height}" '
                f'width="{width}" height="{self._height}">',
                "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}"
                ".grid{stroke:#ddd}.frame{stroke:#888;fill:none}.mark{stroke:#888;stroke-dasharray:4 3}</style>",
                f'<rect width="{width}" height="{self._height}" fill="white"/>',
                *self._parts,
                *legend,
                "</svg>\n",
            )
        )

    def _across(self, value: float) -> float:
        return self._left + self._x.place(value) * (self._width - self._left - RIGHT)

    def _down(self, value: float) -> float:
        return self._height - BOTTOM - self._y.place(value) * (self._height - TOP - BOTTOM)

    def _axes(self) -> None:
        right, bottom = self._width - RIGHT, self._height - BOTTOM
        draw: Callable[[str], None] = self._parts.append
        for value, label in self._x.ticks:
            at = self._across(value)
            draw(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}" class="grid"/>')
            draw(_text(at, bottom + 16, label, anchor="middle"))
        for value, label in self._y.ticks:
            at = self._down(value)
            draw(f'<line x1="{self._left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
            draw(_text(self._left - 6, at + 4, label, anchor="end"))
        size = f'width="{right - self._left}" height="{bottom - TOP}"'
        draw(f'<rect x="{self._left}" y="{TOP}" {size} class="frame"/>')
        draw(_text((self._left + right) / 2, self._height - 12, self._x.label, anchor="middle"))
        if self._y.label:
            middle = (TOP + bottom) / 2
            turned = f'transform="rotate(-90 16 {middle:.1f})"'
            draw(_text(16, middle, self._y.label, anchor="middle", more=turned))


def _text(
    x: float, y: float, text: str, kind: str = "", anchor: str = "start", more: str = ""
) -> str:
    named = f' class="{kind}"' if kind else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named} {more}>{escape(text)}</text>'
    )
