"""Where things are printed: results to standard output, errors (and, with `--json`, progress) to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import IO

from pydantic import BaseModel
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

WIDEST = 160
PIPED = 120
"""Columns if the stream is not a terminal."""


_SHOWN: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **dict.fromkeys((*range(0x7F, 0xA0), 0x61C, *range(0x200B, 0x2010)), "\ufffd"),
    **dict.fromkeys((*range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF), "\ufffd"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),  # surrogates, which cannot be encoded
}
"""What is shown of characters that command a terminal, or that hide or reorder the text beside them."""

_ESCAPED = {code: f"\\u{code:04x}" for code in _SHOWN if code >= 0x7F}
"""The same characters in JSON, which itself escapes those of ASCII."""


def console(stderr: bool = False) -> Console:
    """A console for standard output, or for standard error."""
    made = _Guarded(stderr=stderr, highlight=False, markup=False, emoji=False)
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


def print_json(document: BaseModel) -> None:
    """Print one JSON document to standard output. Its type is among `schema.DOCUMENTS`."""
    text = json.dumps(document.model_dump(mode="json"), indent=1, ensure_ascii=False)
    write(text.translate(_ESCAPED) + "\n")


def write(text: str) -> None:
    """Write a text to standard output, to a file or a pipe unchanged."""
    shown = text.translate(_SHOWN) if sys.stdout.isatty() else text
    try:
        sys.stdout.write(shown.encode("utf-8", "replace").decode())
        sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere(sys.stdout)


class _Guarded(Console):
    """Shows texts of models and programs as text, and outlives the reading end of its pipe, as after `| head`."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = Text(renderable.translate(_SHOWN))
        elif isinstance(renderable, Text):
            renderable = renderable.copy()
            renderable.plain = renderable.plain.translate(_SHOWN)
        return super().render(renderable, options)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _write_nowhere(self.file)


def _write_nowhere(stream: IO[str]) -> None:
    """Discard what is written to the stream from now on, and what it still buffers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
