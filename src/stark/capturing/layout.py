"""Breaks long lines of generated code at the commas of their outermost brackets."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

WIDTH = 100
OPENING, CLOSING = "([{", ")]}"


def laid_out(text: str) -> str:
    """The same code with lines of at most WIDTH characters, as far as brackets allow it."""
    inside = _of_strings(text)
    lines = [
        line if number in inside or len(line) <= WIDTH else "\n".join(_broken(line))
        for number, line in enumerate(text.splitlines(), 1)
    ]
    made = "\n".join(lines)
    return made if ast.dump(ast.parse(made)) == ast.dump(ast.parse(text)) else text


def _of_strings(text: str) -> set[int]:
    """Lines that belong to strings of several lines."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    long = (t for t in tokens if t.type == tokenize.STRING and t.start[0] != t.end[0])
    return {line for token in long for line in range(token.start[0], token.end[0] + 1)}


def _broken(line: str) -> Iterator[str]:
    """The lines of one statement, or of one part of it."""
    indent = line[: len(line) - len(line.lstrip())]
    found = _outermost(line)
    if len(line) <= WIDTH or found is None:
        yield line
        return
    start, commas, end = found
    yield line[: start + 1]
    content = line[start + 1 : end].strip()
    if len(indent) + 4 + len(content) <= WIDTH:
        yield f"{indent}    {content}"
        yield from _broken(f"{indent}{line[end:]}")
        return
    ends = [*commas, end]
    begins = [start + 1, *(comma + 1 for comma in commas)]
    for begin, stop in zip(begins, ends, strict=True):
        part = line[begin:stop].strip()
        if part:
            *first, last = _broken(f"{indent}    {part}")
            yield from first
            yield f"{last}," if commas else last
    yield from _broken(f"{indent}{line[end:]}")


def _outermost(line: str) -> tuple[int, list[int], int] | None:
    """The widest pair of brackets that is inside no other, as positions: its start, its commas, its end."""
    best: tuple[int, list[int], int] | None = None
    opened: list[int] = []
    commas: list[int] = []
    for position, character in _code(line):
        if character in OPENING:
            opened.append(position)
            commas = commas if len(opened) > 1 else []
        elif character in CLOSING and opened:
            start = opened.pop()
            wider = best is None or position - start > best[2] - best[0]
            if not opened and wider and position > start + 1:
                best = (start, commas, position)
        elif character == "," and len(opened) == 1:
            commas = [*commas, position]
    return best


def _code(line: str) -> Iterator[tuple[int, str]]:
    """The characters outside of strings and comments."""
    quote = ""
    skip = False
    for position, character in enumerate(line):
        if skip:
            skip = False
        elif quote:
            skip = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#":
            return
        else:
            yield position, character
