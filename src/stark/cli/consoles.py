"""Where things are printed: results to standard output, progress and faults to standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

WIDEST = 160
PIPED = 120
"""Columns where standard output is no terminal."""


def results() -> Console:
    """For what was asked for."""
    return _console(stderr=False)


def progress(for_program: bool) -> Console:
    """For what happens meanwhile; it leaves standard output alone when a program reads that."""
    return _console(stderr=for_program)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    json.dump(document, sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPED
    elif console.width > WIDEST:
        console.width = WIDEST
    return console
