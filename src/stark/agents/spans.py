"""Finds whole statements in a candidate file: in its Python, and in the code inside its strings.

Python is parsed with `ast`. C++ and CUDA kernels are in multi-line strings and are not parsed: only their brackets are
matched, so templates and macros need no grammar.

All line numbers count from 1 in the Python file. A span includes both its first and its last line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from stark.core.python import parse_python

_PYTHON_BLANK = re.compile(r"\s*(?:#.*)?")
_QUOTES = re.compile(r"\w*('''|\"\"\")")
_NO_CODE = re.compile(
    r'(?P<string>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')'
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
"""Strings and comments of C++."""

_PARTNER = {")": "(", "]": "[", "}": "{"}


class Span(NamedTuple):
    """Lines from the first to the last."""

    first: int
    last: int

    def __str__(self) -> str:
        return (
            f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"
        )


class Layout:
    """The whole statements of one candidate file. The file must parse as Python."""

    def __init__(self, source: str) -> None:
        tree = parse_python(source)
        self._lines = source.split("\n")
        self._blocks = tuple(_python_blocks(tree, self._lines))
        self._embedded = tuple(_embedded(tree, source))

    def is_embedded(self, first: int, last: int) -> bool:
        """Whether these lines lie inside one multi-line string, below its opening quotes."""
        return self._around(first, last) is not None

    def whole(self, first: int, last: int) -> Span | None:
        """The smallest span of whole statements that contains these lines; None if they hold no statement.

        Blank and comment lines at either end do not matter.
        """
        embedded = self._around(first, last)
        found = embedded.whole(first, last) if embedded else self._whole_python(first, last)
        if embedded and found and self._around(*found) is None:
            found = self._whole_python(*found)
        return found and Span(min(first, found.first), max(last, found.last))

    def _around(self, first: int, last: int) -> _Embedded | None:
        return next((e for e in self._embedded if e.first < first and last < e.last), None)

    def _whole_python(self, first: int, last: int) -> Span | None:
        code = [
            n for n in range(first, last + 1) if not _PYTHON_BLANK.fullmatch(self._lines[n - 1])
        ]
        hulls = []
        for block in self._blocks:
            touched = [s for s in block if code and s.first <= code[-1] and code[0] <= s.last]
            if touched and touched[0].first <= code[0] and code[-1] <= touched[-1].last:
                hulls.append(Span(touched[0].first, touched[-1].last))
        return min(hulls, key=lambda hull: hull.last - hull.first, default=None)


class _Embedded(NamedTuple):
    """The code in one multi-line string, which opens on line `first` and closes on line `last`."""

    first: int
    last: int
    code: tuple[int, ...]
    """The numbers of the lines that hold more than blanks and comments."""

    pairs: tuple[tuple[int, int], ...]
    """The line numbers of each opening bracket and its partner."""

    def whole(self, first: int, last: int) -> Span | None:
        """The smallest span that contains these lines and splits no pair of brackets; None if they hold no code."""
        numbers = [number for number in self.code if first <= number <= last]
        if not numbers:
            return None
        before, span = None, Span(numbers[0], numbers[-1])
        while span != before:  # a wider span may split another pair, as in `} else {`
            before = span
            for pair in self.pairs:
                if len({span.first <= line <= span.last for line in pair}) > 1:
                    span = Span(min(span.first, *pair), max(span.last, *pair))
        return span


def _python_blocks(tree: ast.Module, lines: list[str]) -> Iterator[list[Span]]:
    """The statements of each body; statements that share a line count as one.

    Bodies that begin on the line of their head, as in `if x: y`, are skipped.
    """
    for node in ast.walk(tree):
        for _, body in ast.iter_fields(node):
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                line, column = lines[body[0].lineno - 1], body[0].col_offset
                if line[:column].strip() or (
                    line.startswith("elif", column) and isinstance(body[0], ast.If)
                ):
                    continue
                block: list[Span] = []
                for statement in body:
                    first = min(
                        d.lineno for d in [statement, *getattr(statement, "decorator_list", [])]
                    )
                    if block and first <= block[-1].last:
                        first = block.pop().first
                    block.append(Span(first, statement.end_lineno or statement.lineno))
                yield block


def _embedded(tree: ast.Module, source: str) -> Iterator[_Embedded]:
    """The code in each triple-quoted string that spans several lines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.lineno != node.end_lineno:
            literal = ast.get_source_segment(source, node) or ""
            if quotes := _QUOTES.match(literal):
                text = _NO_CODE.sub(_emptied, literal[quotes.end() : -3])
                rows = dict(enumerate(text.split("\n"), start=node.lineno))
                code = tuple(number for number, row in rows.items() if row.strip())
                yield _Embedded(node.lineno, max(rows), code, tuple(_bracket_pairs(rows)))


def _emptied(match: re.Match[str]) -> str:
    """What replaces a match: `""` for a string or nothing for a comment, then as many newlines as the match has."""
    return ('""' if match["string"] else "") + "\n" * match[0].count("\n")


def _bracket_pairs(rows: dict[int, str]) -> Iterator[tuple[int, int]]:
    """The line numbers of each opening bracket and its partner; a bracket without a partner is ignored."""
    opened: list[tuple[str, int]] = []
    for number, row in rows.items():
        for character in row:
            if character in _PARTNER.values():
                opened.append((character, number))
            elif character in _PARTNER and opened and opened[-1][0] == _PARTNER[character]:
                yield opened.pop()[1], number
