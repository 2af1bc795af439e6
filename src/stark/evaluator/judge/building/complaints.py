"""What a compiler or an interpreter complained about: its first real errors, each with the source line at fault.

Knows gcc, clang, nvcc, ptxas, linkers, Triton and Python by how they write. Leaves out command lines, chains of
includes and instantiations, and the candidates that an overload might have meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

ERRORS = 3
"""Errors that are told in full; those after them mostly follow from them."""

SNIPPET_LINES = 4
LINE_LENGTH = 300
TEXT_LINES = 40
BLOCK_LINES = 8
"""Lines of a Triton function that are shown before the one at fault."""

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
class _Remark:
    """One thing that a compiler says, with the source that it shows."""

    kind: Literal["error", "note", "cause", "other"]
    text: str
    own: bool
    """Whether it is about the candidate's own file and not a header of the system."""

    snippet: list[str] = field(default_factory=list)


def first_errors(text: str, source: str = "") -> str:
    """The first errors in what a build or a run said; lines of `source` that they show get their number."""
    remarks = list(_remarks(text))
    if any(remark.kind == "error" for remark in remarks):
        return "\n".join(_compiled(remarks, source))
    return "\n".join(_interpreted(text, source))


def _remarks(text: str) -> Iterator[_Remark]:
    current: _Remark | None = None
    for line in text.splitlines():
        found = _remark(line)
        if found is not None or not line.strip() or _NOISE.match(line):
            if current is not None:
                yield current
            current = found
        elif current is not None:
            current.snippet.append(line.rstrip())
    if current is not None:
        yield current


def _remark(line: str) -> _Remark | None:
    """The remark that a line begins, or None."""
    if _NOISE.match(line):
        return None
    located = _LOCATED.match(line)
    if located is None:
        return _Remark("error", line.strip(), own=True) if _TOOL.search(line) else None
    path, says = located["file"], located["says"]
    kind: Literal["error", "note", "cause", "other"] = "other"
    if _ERROR.match(says) or "undefined reference to" in says:
        kind = "error"
    elif says.startswith("note:"):
        kind = "note"
    elif says == "required from here":
        kind = "cause"
    said = f"{PurePath(path).name}{located['line']}: {says}"
    return _Remark(kind, said, own=not path.startswith("/"))


def _compiled(remarks: list[_Remark], source: str) -> Iterator[str]:
    """Each error with its snippet, the place in the candidate that led to it, and the first note about the candidate."""
    told: set[str] = set()
    cause: _Remark | None = None
    snippet: list[str] = []
    explained = True
    for remark in remarks:
        if remark.kind == "cause" and remark.own:
            cause = remark
        elif remark.kind == "error":
            message = remark.text.partition("error")[2]
            explained = message in told or len(told) >= ERRORS
            told.add(message)
            if not explained:
                snippet = remark.snippet
                yield from _shown(remark, source)
                if cause is not None:
                    yield cause.text
            cause = None
        elif remark.kind == "note" and remark.own and not explained:
            if remark.snippet == snippet:
                remark.snippet = []  # it was just shown
            yield from _shown(remark, source)
            explained = True
    if len(told) > ERRORS:
        yield f"… and {len(told) - ERRORS} more error{'s' if len(told) > ERRORS + 1 else ''}"


def _shown(remark: _Remark, source: str) -> Iterator[str]:
    snippet = remark.snippet[:SNIPPET_LINES]
    shown = re.sub(r"^\s*\d+ \| ?", "", snippet[0]) if snippet else ""
    number = _line_of(shown, source)
    text = remark.text if len(remark.text) <= LINE_LENGTH else f"{remark.text[:LINE_LENGTH]}…"
    yield text if number is None else f"{text} (line {number} of the file)"
    yield from (line[:LINE_LENGTH] for line in snippet)


def _interpreted(text: str, source: str) -> list[str]:
    """An exception with its frames: without advice for debugging, and Triton's functions cut to the line at fault."""
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
    """The number of the only line of a source that reads so."""
    wanted = shown.strip()
    found = [n for n, line in enumerate(source.split("\n"), 1) if line.strip() == wanted]
    return found[0] if wanted and len(found) == 1 else None
