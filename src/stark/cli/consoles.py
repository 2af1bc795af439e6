"""Where things are printed: results to standard output, errors (and, with `--json`, progress) to standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

from rich.console import Console
from rich.text import Text

WIDEST = 160
PIPED = 120
"""Columns if the stream is not a terminal."""


def console(stderr: bool = False) -> Console:
    """A console for standard output, or for standard error."""
    made = _Enduring(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = PIPED
    elif made.width > WIDEST:
        made.width = WIDEST
    return made


def can_redraw(shown_on: Console) -> bool:
    """Whether a screen can be redrawn in place, as on most terminals. A terminal with TERM=dumb cannot do it."""
    return shown_on.is_terminal and not shown_on.is_dumb_terminal


def say(line: str, stderr: bool = False) -> None:
    """Print one line without wrapping it."""
    console(stderr).print(Text(line), soft_wrap=True)


def print_json(document: Any) -> None:
    """Print one JSON document to standard output."""
    write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def write(text: str) -> None:
    """Write a text unchanged to standard output."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere(sys.stdout)


class _Enduring(Console):
    """Keeps working when the reading end of the pipe is closed, as after `| head`; a Rich console would exit."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _write_nowhere(self.file)


def _write_nowhere(stream: IO[str]) -> None:
    """Discard what is written to the stream from now on, and what it still buffers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
