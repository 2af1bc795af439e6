"""Finds whole statements in a candidate file: in its Python, and in the code inside its strings.

Python is read by `ast`. Kernels in C++ or CUDA stand in multi-line strings. There a statement is recognized by its
brackets and by how its lines end, so templates and unusual macros need no grammar.

All line numbers are 1-based, inclusive, in the Python file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from stark.core.python import parse_python

_PYTHON_BLANK = re.compile(r"\s*(?:#.*)?")
_NO_CODE = re.compile(
    r'(?P<string>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')'
    r"|(?P<directive>^[ \t]*#(?:[^\n]*\\\n)*[^\n]*)"
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL | re.MULTILINE,
)
"""Strings, directives with their continuation lines, and comments of C++."""

_PARTNER = {")": "(", "]": "[", "}": "{"}
_ENDS = re.compile(r".*[;{}:]|[A-Z][A-Z0-9_]*\(.*\)")
"""A line of C++ after which a statement may begin; a macro in capitals needs no semicolon."""

_DIRECTIVE = "#"
_CONTINUES = re.compile(r"else\b|catch\b")


class Span(NamedTuple):
    """Lines from the first to the last."""

    first: int
    last: int

    def __str__(self) -> str:
        return (
            f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"
        )


class Literal(NamedTuple):
    """A triple-quoted string: from the line of its opening quotes to the line of its closing ones."""

    first: int
    last: int
    text: str
    """Its content as written."""


class Layout:
    """The whole statements of one candidate file, which must parse."""

    def __init__(self, source: str) -> None:
        self._lines = source.split("\n")
        self._blocks = tuple(_python_blocks(parse_python(source), self._lines))
        self._embedded = tuple(_Embedded(literal) for literal in multi_line_literals(source))

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
        return next(
            (e for e in self._embedded if e.literal.first < first and last < e.literal.last), None
        )

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


class _Embedded:
    """The code in one literal, with strings, comments and directives reduced to what delimits statements."""

    def __init__(self, literal: Literal) -> None:
        self.literal = literal
        rows = enumerate(_NO_CODE.sub(_reduced, literal.text).split("\n"), start=literal.first)
        self._code = {number: row.strip() for number, row in rows if row.strip()}
        self._numbers = list(self._code)
        self._pairs = list(_bracket_pairs(self._code))
        has_semicolons = any(";" in row and _DIRECTIVE not in row for row in self._code.values())
        self._ends = _ENDS if has_semicolons else re.compile(".*")

    def whole(self, first: int, last: int) -> Span | None:
        """The smallest span of whole statements that contains these lines; None if they hold no code."""
        low = bisect_left(self._numbers, first)
        high = bisect_right(self._numbers, last) - 1
        if low > high:
            return None
        before: Span | None = None
        span = Span(self._numbers[low], self._numbers[high])
        while span != before:
            before = span
            span = self._widened(span)
        return span

    def _widened(self, span: Span) -> Span:
        """Widened to the partners of its brackets, and by a line at an end inside a statement."""
        first, last = span
        for pair in self._pairs:
            if len({first <= line <= last for line in pair}) > 1:
                first, last = min(first, *pair), max(last, *pair)
        above = bisect_left(self._numbers, first) - 1
        if above >= 0 and not self._divides(above):
            first = self._numbers[above]
        below = bisect_right(self._numbers, last)
        if below < len(self._numbers) and not self._divides(below - 1):
            last = self._numbers[below]
        return Span(first, last)

    def _divides(self, index: int) -> bool:
        """Whether a statement ends, or a body begins, between this line of code and the next.

        Directives do not end the statement above them: a pragma may follow the head of a loop.
        """
        if self._code[self._numbers[index]] == _DIRECTIVE:
            return False
        rows = [self._code[number] for number in self._numbers[: index + 2]]
        below = rows.pop()
        above = next((row for row in reversed(rows) if not row.startswith(_DIRECTIVE)), ";")
        return bool(self._ends.fullmatch(above)) and not _CONTINUES.match(below)


def multi_line_literals(source: str) -> Iterator[Literal]:
    """The triple-quoted strings of a Python text that span lines, in order.

    Raises SyntaxError or tokenize.TokenError where the text does not split into tokens.
    """
    lines = source.split("\n")
    opened: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind in {"FSTRING_START", "TSTRING_START"}:  # Python 3.12 and later
            opened.append(token)
            continue
        start = token
        if kind in {"FSTRING_END", "TSTRING_END"}:
            start = opened.pop()
        elif kind != "STRING":
            continue
        quotes = re.match(r"\w*('''|\"\"\")", start.string)
        (first, column), (last, end) = start.start, token.end
        if quotes and not opened and first < last:
            rows = [
                lines[first - 1][column + quotes.end() :],
                *lines[first : last - 1],
                lines[last - 1][: end - 3],
            ]
            yield Literal(first, last, "\n".join(rows))


def _python_blocks(tree: ast.Module, lines: list[str]) -> Iterator[list[Span]]:
    """The statements of each body that does not begin on the line of its head; those that share a line count as one."""
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


def _reduced(match: re.Match[str]) -> str:
    """A placeholder for a string, a directive or a comment, with as many line ends."""
    line_ends = "\n" * match[0].count("\n")
    if match["string"]:
        return f'"{line_ends}"'
    return line_ends.replace("\n", "\n#").join("#;") if match["directive"] else line_ends


def _bracket_pairs(code: dict[int, str]) -> Iterator[tuple[int, int]]:
    """The lines of each opening bracket and its partner; a bracket without a partner is ignored."""
    opened: list[tuple[str, int]] = []
    for number, row in code.items():
        for character in row:
            if character in _PARTNER.values():
                opened.append((character, number))
            elif character in _PARTNER and opened and opened[-1][0] == _PARTNER[character]:
                yield opened.pop()[1], number
