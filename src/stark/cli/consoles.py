"""Where things are printed: results to standard output, progress and faults to standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

from rich.console import Console
from rich.text import Text

WIDEST = 160
PIPED = 120
"""Columns if standard output is not a terminal."""


def console(stderr: bool = False) -> Console:
    """For results on standard output, or for progress on standard error where a program reads the results."""
    made = _Enduring(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = PIPED
    elif made.width > WIDEST:
        made.width = WIDEST
    return made


def can_redraw(shown_on: Console) -> bool:
    """Whether a screen can be drawn over and over; with TERM=dumb there are only lines."""
    return shown_on.is_terminal and not shown_on.is_dumb_terminal


def say(line: str, stderr: bool = False) -> None:
    """One line, as long as it is."""
    console(stderr).print(Text(line), soft_wrap=True)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def write(text: str) -> None:
    """A text, unchanged, on standard output."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere(sys.stdout)


class _Enduring(Console):
    """Keeps working when the reader is gone, as after `| head`; Rich itself would exit."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _write_nowhere(self.file)


def _write_nowhere(stream: IO[str]) -> None:
    """Discard what is written from now on, and what is still buffered."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
