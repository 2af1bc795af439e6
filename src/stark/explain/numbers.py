"""Counts, times and text fragments, formatted the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """`1 attempt`, `2 attempts`, `37,500 attempts`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(things: Iterable[object]) -> str:
    """`1`, `1 and 2`, `1, 2 and 3`."""
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def milliseconds(value: float) -> str:
    """A latency with three significant digits, in µs, ms or s."""
    if value < 1.0:
        return f"{_three_digits(value * 1000)} µs"
    return f"{_three_digits(value)} ms" if value < 1000.0 else f"{value / 1000:.2f} s"


def duration(seconds: float) -> str:
    """Elapsed time as on a clock: `0:07`, `12:30`, `1:02:05`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def first_line(text: str) -> str:
    """The first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
