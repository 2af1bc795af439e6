"""Extracts the first real errors from a compiler's or interpreter's output, with source lines.

Parses the formats of gcc, clang, nvcc, ptxas, linkers, Triton and Python. Leaves out command lines,
chains of includes and template instantiations, and lists of overload candidates.

Also recognizes compilers' errors among the exceptions that running programs raise: Triton kernels and inline builds in
forward compile only when they are called. Such an error is recognized by its type or, if it is a plain RuntimeError, by
the first words of its message. A program may forge the type, but then it only gets the status `build_failed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePath

from stark.evaluator.candidate.program import PASSES_FAILED

ERRORS = 3
"""Maximum number of errors to show. Later errors usually follow from the first ones."""

SNIPPET_LINES = 4
"""Maximum number of source lines per error."""

LINE_LENGTH = 300
"""Maximum number of characters per line."""

TEXT_LINES = 40
"""Maximum number of lines of an exception's text."""

MOST_EQUAL = 100
"""A line of which the source has more equal ones has no known place. A candidate chooses its source, and how often it fails."""

BLOCK_LINES = 8
"""Lines of a Triton function to show, ending with the line at fault."""

TYPES = (
    "triton.compiler.errors.CompilationError",
    "triton.runtime.errors.OutOfResources",
    "triton.runtime.errors.PTXASError",
    "cutlass.base_dsl.common.DSLRuntimeError",
    "cutlass.base_dsl.common.DSLUserCodeError",
    "torch._inductor.exc.InductorError",
    "torch._inductor.exc.CppCompileError",
)
"""An exception is a compiler's error if one of these is its type, a base of its type, or the type of one
of its causes."""

MESSAGES = (
    PASSES_FAILED,
    "Error building extension '",  # torch.utils.cpp_extension
    "ninja exited with status",  # tvm_ffi.cpp
)
"""First words of compilers' RuntimeErrors."""

_LOCATED = re.compile(r"^(?P<file>[^\s:()]+)(?P<line>:\d+(?::\d+)?|\(\d+\)): *(?P<says>.*)$")
_ERROR = re.compile(r"^(fatal |catastrophic )?error\b")
_TOOL = re.compile(r"^(ptxas|nvlink|collect2|\S*(ld|\+\+|cc|clang))(?!\w)")
_FAILS = re.compile(r"\b(error|fatal)\s*:")
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
class _Message:
    """One message of a compiler, with the source lines that the compiler shows below it."""

    text: str
    says: str
    """The text without the place."""

    own: bool
    """Whether the message is about the candidate's own file, not a system header."""

    snippet: list[str] = field(default_factory=list)

    @property
    def is_error(self) -> bool:
        return _ERROR.match(self.says) is not None or _is_of_tool(self.says)


def is_compile_error(types: Iterable[str], text: str) -> bool:
    """Whether an exception is a compiler's error. `types` names its type, its type's bases and its causes' types."""
    return any(name in TYPES for name in types) or any(
        f"RuntimeError: {message}" in text for message in MESSAGES
    )


def first_errors(text: str, source: str = "") -> str:
    """The first errors in the output of a build or run, with their line numbers in `source` if known."""
    messages = _messages(text)
    if any(message.is_error for message in messages):
        return "\n".join(_compiled(messages, source))
    return "\n".join(_interpreted(text, source))


def _messages(text: str) -> list[_Message]:
    messages: list[_Message] = []
    shown: list[str] = []
    for line in text.splitlines():
        if not line.strip() or _NOISE.match(line):
            shown = []
        elif located := _LOCATED.match(line):
            path, says = located["file"], located["says"]
            place = f"{PurePath(path).name}{located['line']}"
            messages.append(_Message(f"{place}: {says}", says, own=not path.startswith("/")))
            shown = messages[-1].snippet
        elif _is_of_tool(line):
            messages.append(_Message(line.strip(), line, own=True))
            shown = messages[-1].snippet
        else:
            shown.append(line.rstrip())
    return messages


def _is_of_tool(line: str) -> bool:
    """Whether a line is an error that a compiler driver, assembler or linker reports in its own name.

    The two patterns are matched one after the other: as one, they would take a time quadratic in the line's length.
    """
    named = _TOOL.match(line) is not None and _FAILS.search(line) is not None
    return named or "undefined reference to" in line


def _compiled(messages: list[_Message], source: str) -> Iterator[str]:
    """The first errors, each with its source lines, the candidate's line that caused it, and its first note."""
    seen: set[str] = set()
    cause: _Message | None = None
    error: _Message | None = None  # shown, and not explained by a note yet
    for message in messages:
        if message.is_error:
            what = message.text.partition("error")[2]
            error = message if what not in seen and len(seen) < ERRORS else None
            seen.add(what)
            if error is not None:
                yield from _shown(message, message.snippet, source)
                if cause is not None:
                    yield cause.text
            cause = None
        elif message.own and message.says == "required from here":
            cause = message
        elif message.own and message.says.startswith("note:") and error is not None:
            # The compiler may show the same lines as with the error.
            repeated = message.snippet == error.snippet
            yield from _shown(message, [] if repeated else message.snippet, source)
            error = None
    if len(seen) > ERRORS:
        yield f"… and {len(seen) - ERRORS} more error{'s' if len(seen) > ERRORS + 1 else ''}"


def _shown(message: _Message, snippet: list[str], source: str) -> Iterator[str]:
    shown = re.sub(r"^\s*\d+ \| ?", "", snippet[0]) if snippet else ""
    number = source_line([shown], 1, source)
    long = "…" if len(message.text) > LINE_LENGTH else ""
    place = f" (line {number} of the file)" if number is not None else ""
    yield f"{message.text[:LINE_LENGTH]}{long}{place}"
    yield from (line[:LINE_LENGTH] for line in snippet[:SNIPPET_LINES])


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
            number = source_line([lines[-1]], 1, source) if len(lines) < TEXT_LINES else None
            if len(lines) - block > BLOCK_LINES:
                lines[block:-BLOCK_LINES] = ["    …"]
            line += f" line {number} of the file" if number is not None else ""
            block = None
        lines.append(line)
    if len(lines) > TEXT_LINES:
        half = TEXT_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - TEXT_LINES} lines …", *lines[-half:]]
    return lines


def source_line(lines: list[str], number: int, source: str) -> int | None:
    """The number of the line in `source` from which line `number` of a generated file comes, or None if that is unclear.

    Of several equal lines in `source`, the one with the most equal lines around it counts; many are not looked at.
    """
    given = [line.strip() for line in lines]
    wanted = given[number - 1]
    own = [line.strip() for line in source.split("\n")]
    found = [n for n, line in enumerate(own, 1) if line == wanted] if wanted else []
    if not 0 < len(found) <= MOST_EQUAL:
        return None
    context = {n: _equal_around(given, number - 1, own, n - 1) for n in found}
    most = max(context.values())
    best = [n for n in found if context[n] == most]
    return best[0] if len(best) == 1 else None


def _equal_around(one: list[str], at: int, other: list[str], there: int) -> int:
    """How many lines in a row are equal before and after two places."""
    before = zip(reversed(one[:at]), reversed(other[:there]), strict=False)
    after = zip(one[at + 1 :], other[there + 1 :], strict=False)
    equal = (takewhile(lambda pair: pair[0] == pair[1], pairs) for pairs in (before, after))
    return sum(len(list(each)) for each in equal)
