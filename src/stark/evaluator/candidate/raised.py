"""What the judge hears of an exception that a program raised."""

from __future__ import annotations

import traceback
from pathlib import Path

from stark.evaluator.candidate.program import says_out_of_memory
from stark.evaluator.candidate.wire import Message

TRACEBACK_LINES = 30
MAX_ERROR_CHARS = 15_000
CAUSES = 8
"""Maximum number of chained causes of an exception that are reported."""

PASSES_FAILED = "PassManager::run failed"
"""The entire message of exceptions from Triton's later stages, which print the actual error."""


def reported(error: BaseException, path: Path) -> Message:
    """An answer with `ok` false, the error's `kind` and text, and the full names of its types, their bases and its causes'."""
    causes = _with_causes(error)
    return {
        "ok": False,
        "kind": "out_of_memory" if says_out_of_memory(error) else "raised",
        "error": _described(causes, path),
        "types": [
            f"{kind.__module__}.{kind.__qualname__}" for one in causes for kind in type(one).__mro__
        ],
    }


def _described(causes: list[BaseException], path: Path) -> str:
    """The error and those of its stack frames that lie in the program's file, cut to a few kilobytes."""
    error = causes[0]
    frames = [
        f"  line {frame.lineno}, in {frame.name}: {(frame.line or '')[:200]}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError):
        frames.append(f"  line {error.lineno}: {(error.text or '').strip()}")
    text = str(error)
    for cause in causes:  # Triton's last cause contains the reason
        if str(cause) not in text:
            text += f"\n{type(cause).__name__}: {cause}"
    # A message is limited to 128 KiB, and JSON may need six bytes for a character.
    if len(text) > MAX_ERROR_CHARS:
        text = text[: MAX_ERROR_CHARS - 3_000] + "\n…\n" + text[-3_000:]
    return "\n".join([f"{type(error).__name__}: {text}", *frames[-TRACEBACK_LINES:]])


def _with_causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while (cause := found[-1].__cause__) is not None and len(found) <= CAUSES:
        found.append(cause)
    return found
