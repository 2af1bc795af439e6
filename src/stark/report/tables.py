"""The look that all tables share: columns without borders, and a color for every status."""

from __future__ import annotations

from rich.table import Table

STATUS_STYLES = {
    "correct": "green",
    "incorrect": "red",
    "build_failed": "red",
    "crashed": "red",
    "timed_out": "yellow",
    "out_of_memory": "yellow",
    "rejected": "bold magenta",
    "unusable": "yellow",
}


def columns(*texts: str, numbers: tuple[str, ...] = ()) -> Table:
    """An empty table: columns of text, then right-aligned columns of numbers. No column is wrapped."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, no_wrap=True, justify="right")
    return table


def facts() -> Table:
    """An empty table of names and values."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def brief(text: str, most: int = 20_000) -> str:
    """The text; of one that would fill the screen for minutes, only the beginning."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n… {len(text) - most:,} more characters; --json shows all"
