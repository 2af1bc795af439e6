"""Extracts the first real errors from a compiler's or interpreter's output, with source lines.

Parses the formats of gcc, clang, nvcc, ptxas, linkers, Triton and Python. Leaves out command lines,
chains of includes and template instantiations, and lists of overload candidates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

ERRORS = 3
"""Maximum number of errors to show. Later errors usually follow from the first ones."""

SNIPPET_LINES = 4
"""Maximum number of source lines per error."""

LINE_LENGTH = 300
"""Maximum number of characters per line."""

TEXT_LINES = 40
"""Maximum number of lines of an exception's text."""

BLOCK_LINES = 8
"""Lines of a Triton function to show, ending with the line at fault."""

_LOCATED = re.compile(r"^(?P<file>[^\s:()]+)(?P<line>:\d+(?::\d+)?|\(\d+\)): *(?P<says>.*)$")
_ERROR = re.compile(r"^(fatal |catastrophic )?error\b")
_TOOL = re.compile(
    r"^(ptxas|nvlink|nvcc|collect2|\S*ld|\S*\+\+|\S*cc|\S*clang)\b.*\b(error|fatal)\s*:|undefined reference to"
)
_NOISE = re.compile(
    r"^(In file included from |\s+from \S+[:,]$|FAILED:|\[\d+/\d+\] |ninja: |\d+ errors? (detected|generated)|"
    r"ptxas fatal\s+: Ptx assembly aborted)"
)
_BLOCK = re.compile(r"\bat \d+:\d+:$")
_BOILERPLATE = re.compile(
    r"^(CUDA kernel errors might be asynchronously|For debugging consider passing|Compile with `TORCH_USE_CUDA_DSA`|"
    r"Search for `cuda|Device-side assertion tracking was not enabled)"
)


@dataclass
class _Diagnostic:
    """One message of a compiler, with the source lines that the compiler shows below it."""

    kind: Literal["error", "note", "cause", "other"]
    text: str
    own: bool
    """Whether the message is about the candidate's own file, not a system header."""

    snippet: list[str] = field(default_factory=list)


def first_errors(text: str, source: str = "") -> str:
    """The first errors in the output of a build or run, with their line numbers in `source` if known."""
    diagnostics = list(_diagnostics(text))
    if any(diagnostic.kind == "error" for diagnostic in diagnostics):
        return "\n".join(_compiled(diagnostics, source))
    return "\n".join(_interpreted(text, source))


def _diagnostics(text: str) -> Iterator[_Diagnostic]:
    current: _Diagnostic | None = None
    for line in text.splitlines():
        found = _diagnostic(line)
        if found is not None or not line.strip() or _NOISE.match(line):
            if current is not None:
                yield current
            current = found
        elif current is not None:
            current.snippet.append(line.rstrip())
    if current is not None:
        yield current


def _diagnostic(line: str) -> _Diagnostic | None:
    """The message that starts on this line, or None."""
    if _NOISE.match(line):
        return None
    located = _LOCATED.match(line)
    if located is None:
        return _Diagnostic("error", line.strip(), own=True) if _TOOL.search(line) else None
    path, says = located["file"], located["says"]
    kind: Literal["error", "note", "cause", "other"] = "other"
    if _ERROR.match(says) or "undefined reference to" in says:
        kind = "error"
    elif says.startswith("note:"):
        kind = "note"
    elif says == "required from here":
        kind = "cause"
    said = f"{PurePath(path).name}{located['line']}: {says}"
    return _Diagnostic(kind, said, own=not path.startswith("/"))


def _compiled(diagnostics: list[_Diagnostic], source: str) -> Iterator[str]:
    """The first errors, each with its source lines, the candidate's line that caused it, and its first note."""
    seen: set[str] = set()
    cause: _Diagnostic | None = None
    snippet: list[str] = []
    explained = True
    for diagnostic in diagnostics:
        if diagnostic.kind == "cause" and diagnostic.own:
            cause = diagnostic
        elif diagnostic.kind == "error":
            message = diagnostic.text.partition("error")[2]
            explained = message in seen or len(seen) >= ERRORS
            seen.add(message)
            if not explained:
                snippet = diagnostic.snippet
                yield from _shown(diagnostic, source)
                if cause is not None:
                    yield cause.text
            cause = None
        elif diagnostic.kind == "note" and diagnostic.own and not explained:
            if diagnostic.snippet == snippet:
                diagnostic.snippet = []  # already shown with the error
            yield from _shown(diagnostic, source)
            explained = True
    if len(seen) > ERRORS:
        yield f"… and {len(seen) - ERRORS} more error{'s' if len(seen) > ERRORS + 1 else ''}"


def _shown(diagnostic: _Diagnostic, source: str) -> Iterator[str]:
    snippet = diagnostic.snippet[:SNIPPET_LINES]
    shown = re.sub(r"^\s*\d+ \| ?", "", snippet[0]) if snippet else ""
    number = _line_of(shown, source)
    text = (
        diagnostic.text
        if len(diagnostic.text) <= LINE_LENGTH
        else f"{diagnostic.text[:LINE_LENGTH]}…"
    )
    yield text if number is None else f"{text} (line {number} of the file)"
    yield from (line[:LINE_LENGTH] for line in snippet)


def _interpreted(text: str, source: str) -> list[str]:
    """The lines of an exception and its frames, without debugging advice. Shortens Triton's listings."""
    lines: list[str] = []
    block: int | None = None
    for line in text.splitlines():
        if _BOILERPLATE.match(line):
            continue
        if _BLOCK.search(line):
            block = len(lines) + 1
        elif block is not None and line.strip() == "^":
            number = _line_of(lines[-1], source)
            if len(lines) - block > BLOCK_LINES:
                lines[block:-BLOCK_LINES] = ["    …"]
            line += f" line {number} of the file" if number is not None else ""
            block = None
        lines.append(line)
    if len(lines) > TEXT_LINES:
        half = TEXT_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - TEXT_LINES} lines …", *lines[-half:]]
    return lines


def _line_of(shown: str, source: str) -> int | None:
    """The number of the source line with this text, or None if not exactly one line has it."""
    wanted = shown.strip()
    found = [n for n, line in enumerate(source.split("\n"), 1) if line.strip() == wanted]
    return found[0] if wanted and len(found) == 1 else None
