"""Which runs of lines in a candidate file are whole statements, in Python and in the C++ it embeds.

A candidate is one Python file; kernels in C++ or CUDA stand in its multi-line string literals.
Python is read by `ast`, embedded text by tree-sitter's CUDA grammar, which reads C++ too. Text
that this grammar cannot read (a format template, another language) is held to balanced brackets
only. Knows no anchor and no model. All line numbers are 1-based, in the Python file, inclusive.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tree_sitter
import tree_sitter_cuda

from stark.core.python import parse_python

_CUDA = tree_sitter.Language(tree_sitter_cuda.language())

_PRAGMA = re.compile(r"\s*#\s*pragma\b")
_GOVERNING_PRAGMA = re.compile(
    r"\s*#\s*pragma\s+(?:omp\s+(?!barrier|taskwait|taskyield|flush|cancel|declare|requires)"
    r"|(?:no)?unroll|ivdep|simd|GCC\s+(?:ivdep|unroll)|clang\s+loop)"
)
"""A pragma about the statement that follows it; any other pragma stands for itself."""

_PYTHON_BLANK = re.compile(r"\s*(?:#.*)?")
_CPP_BLANK = re.compile(r"\s*(?://.*)?")
_PYTHON_REST = re.compile(rb"\s*;?\s*(?:#.*)?")
_CPP_REST = re.compile(rb"[\s;]*(?://.*|/\*.*\*/\s*)?")
_CPP_TEXT = re.compile(
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
_BRACKETS = {")": "(", "]": "[", "}": "{"}

_CPP_STATEMENT = re.compile(
    r".*_statement|.*_definition|(?!.*parameter_).*declaration|for_range_loop|comment"
    r"|linkage_specification|template_instantiation|access_specifier"
    r"|(?:class|struct|union|enum)_specifier"
    r"|preproc_(?:call|def|function_def|if|ifdef|include)"
)
"""The grammar's names for what may stand alone in a body. The `else` part of an #if may not."""


class Statement(NamedTuple):
    """One whole statement, or several that share a line."""

    first: int
    """With the pragmas that govern it, if any."""

    code: int
    """Its own first line."""

    last: int


Block = tuple[Statement, ...]
"""Consecutive statements of one body: any run of them is a valid span."""


class Literal(NamedTuple):
    """A triple-quoted string: from the line of its opening quotes to the line of its closing ones."""

    first: int
    last: int
    text: str
    """Its content, one row per line of the file."""


class Unreadable(NamedTuple):
    """A literal whose text tree-sitter could not read: pairs of lines that open and close a bracket."""

    literal: Literal
    pairs: tuple[tuple[int, int], ...]
    """A bracket without a partner has 0 in place of its partner's line."""


class _Extent(NamedTuple):
    """Where a statement stands: rows from 1, columns in bytes, the end exclusive."""

    first: int
    first_column: int
    last: int
    last_column: int


class Layout:
    """The whole statements of one candidate file, which must parse."""

    def __init__(self, source: str) -> None:
        self._lines = source.split("\n")
        self.literals = tuple(multi_line_literals(source))
        blocks = list(_python_blocks(parse_python(source), self._lines))
        unreadable = []
        for literal in self.literals:
            embedded = _cpp_blocks(literal)
            if embedded is None:
                unreadable.append(Unreadable(literal, tuple(_bracket_pairs(literal))))
            else:
                blocks.extend(embedded)
        self._blocks = tuple(blocks)
        self._unreadable = tuple(unreadable)

    def literal_around(self, first: int, last: int) -> Literal | None:
        """The literal that has these lines strictly between its quotes' lines, if there is one."""
        return next((lit for lit in self.literals if lit.first < first and last < lit.last), None)

    def fault(self, first: int, last: int) -> str | None:
        """Why these lines are not whole statements, with the nearest span that is; None if they are.

        Blank lines, comment lines and pragmas that stand for themselves may surround the statements.
        """
        literal = self.literal_around(first, last)
        span = self._trimmed(first, last, embedded=literal is not None)
        if span is None:
            return "holds no statement, only blank lines and comments. Name lines that hold code."
        for unreadable in self._unreadable:
            if unreadable.literal == literal:
                return _imbalance(unreadable.pairs, *span)
        if any(_is_run(block, *span) for block in self._blocks):
            return None
        return self._split(*span)

    def _trimmed(self, first: int, last: int, embedded: bool) -> tuple[int, int] | None:
        code = [
            number
            for number in range(first, last + 1)
            if not _stands_aside(self._lines[number - 1], embedded)
        ]
        return (code[0], code[-1]) if code else None

    def _split(self, first: int, last: int) -> str:
        """The smallest statement that the span cuts, and the spans that would not cut it."""
        touched = [
            statement
            for block in self._blocks
            for statement in block
            if statement.first <= last and first <= statement.last
        ]
        hulls = [hull for block in self._blocks for hull in _hulls(block, first, last)]
        whole = [hull for hull in hulls if hull[0] <= first and last <= hull[1]]
        if not touched or not whole:
            return "lies in no span of whole statements. Name other lines, or ask for a rewrite."
        cut = [s for s in touched if not (first <= s.code and s.last <= last)]
        victim = min(cut or touched, key=lambda s: s.last - s.first)
        around = min(whole, key=lambda h: h[1] - h[0])
        # Of equally near spans the first is taken: the one around, then the shorter one.
        nearest = min(
            [around, *sorted(hulls, key=lambda h: h[1] - h[0])],
            key=lambda h: abs(h[0] - first) + abs(h[1] - last),
        )
        advice = lines_in_words(*nearest)
        if around != nearest:
            advice += f", or {lines_in_words(*around)} around it"
        return (
            f"splits the statement on {lines_in_words(victim.first, victim.last)}, which begins "
            f"`{self._lines[victim.first - 1].strip()}`. Name whole statements; "
            f"the nearest span is {advice}."
        )


def multi_line_literals(source: str) -> Iterator[Literal]:
    """The triple-quoted strings of a Python text that span lines, in order.

    Raises SyntaxError or tokenize.TokenError where the text does not split into tokens.
    """
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
        opening = re.match(r"(\w*)('''|\"\"\")", start.string)
        if opening and not opened and start.start[0] < token.end[0]:
            yield _literal(source.split("\n"), start.start, token.end, opening)


def lines_in_words(first: int, last: int) -> str:
    """`line 5` or `lines 5-8`."""
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _literal(
    lines: list[str], start: tuple[int, int], end: tuple[int, int], opening: re.Match[str]
) -> Literal:
    """A literal's text: its value where that has a row per line of the file, else as it is written."""
    rows = lines[start[0] - 1 : end[0]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    written = "\n".join(rows)
    text = written[opening.end() : -3]
    if "f" not in opening[1].lower() and "t" not in opening[1].lower():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(written)
        if isinstance(value, str) and value.count("\n") == text.count("\n"):
            text = value
    return Literal(start[0], end[0], text)


def _stands_aside(line: str, embedded: bool) -> bool:
    """Whether a line is blank, a comment, or a pragma that governs no statement."""
    if not embedded:
        return _PYTHON_BLANK.fullmatch(line) is not None
    if _PRAGMA.match(line):
        return not _GOVERNING_PRAGMA.match(line)
    return _CPP_BLANK.fullmatch(line) is not None


def _python_blocks(tree: ast.Module, lines: list[str]) -> Iterator[Block]:
    encoded = [line.encode() for line in lines]
    for node in ast.walk(tree):
        for _, body in ast.iter_fields(node):
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                extents = [_python_extent(statement, encoded) for statement in body]
                head = extents[0]
                is_elif = isinstance(body[0], ast.If) and encoded[head.first - 1].startswith(
                    b"elif", head.first_column
                )
                if not is_elif:
                    yield from _clean_blocks(extents, encoded, _PYTHON_REST, {})


def _python_extent(statement: ast.stmt, lines: list[bytes]) -> _Extent:
    first, column = statement.lineno, statement.col_offset
    decorators = getattr(statement, "decorator_list", [])
    if decorators:
        first = decorators[0].lineno
        while b"@" not in lines[first - 1]:  # `@(`, and the decorator on a line below
            first -= 1
        column = lines[first - 1].index(b"@")
    assert statement.end_lineno is not None and statement.end_col_offset is not None
    return _Extent(first, column, statement.end_lineno, statement.end_col_offset)


def _cpp_blocks(literal: Literal) -> list[Block] | None:
    """The blocks of embedded code, or None if it is not readable as C++ or CUDA.

    Pragmas are taken out before parsing, since the grammar refuses them between a loop's head
    and its body, and are given back to the statements that they govern.
    """
    rows = literal.text.split("\n")
    governed_from: dict[int, int] = {}
    for first, last, governs in list(_pragmas(rows)):
        rows[first : last + 1] = [""] * (last + 1 - first)
        if governs:
            start = literal.first + first
            governed_from[literal.first + last + 1] = governed_from.pop(start, start)
    tree = tree_sitter.Parser(_CUDA).parse("\n".join(rows).encode(errors="replace"))
    if tree.root_node.has_error:
        return None
    encoded = [b""] * (literal.first - 1) + [row.encode(errors="replace") for row in rows]
    blocks: list[Block] = []
    waiting = [tree.root_node]
    while waiting:
        node = waiting.pop()
        waiting.extend(node.children)
        for run in _runs_of_statements(node):
            extents = [_cpp_extent(child, literal.first, encoded) for child in run]
            blocks.extend(_clean_blocks(extents, encoded, _CPP_REST, governed_from))
    return blocks


def _pragmas(rows: list[str]) -> Iterator[tuple[int, int, bool]]:
    """First row, last row (after continuations) and whether it governs the next statement."""
    for first, row in enumerate(rows):
        if _PRAGMA.match(row):
            last = first
            while rows[last].endswith("\\") and last + 1 < len(rows):
                last += 1
            yield first, last, _GOVERNING_PRAGMA.match(row) is not None


def _runs_of_statements(node: tree_sitter.Node) -> Iterator[list[tree_sitter.Node]]:
    """The consecutive children that are statements; anything else, such as `else`, ends a run."""
    run: list[tree_sitter.Node] = []
    for index, child in enumerate(node.children):
        in_head = node.field_name_for_child(index) in {"initializer", "condition"}
        if _CPP_STATEMENT.fullmatch(child.type) and not in_head:
            run.append(child)
        elif child.type != ";" and run:
            yield run
            run = []
    if run:
        yield run


def _cpp_extent(node: tree_sitter.Node, first_line: int, lines: list[bytes]) -> _Extent:
    """A node's place; one that ends at the start of a row, as directives do, ends on the row before."""
    first, first_column = node.start_point
    last, last_column = node.end_point
    if last_column == 0 and last > first:
        last -= 1
        last_column = len(lines[first_line + last - 1])
    return _Extent(first_line + first, first_column, first_line + last, last_column)


def _clean_blocks(
    extents: Iterable[_Extent],
    lines: list[bytes],
    rest: re.Pattern[bytes],
    governed_from: dict[int, int],
) -> Iterator[Block]:
    """The statements that have their lines for themselves; those that share lines count as one."""
    block: list[Statement] = []
    for extent in _joined(extents):
        before = lines[extent.first - 1][: extent.first_column]
        after = lines[extent.last - 1][extent.last_column :]
        if not before.strip() and rest.fullmatch(after):
            first = governed_from.get(extent.first, extent.first)
            block.append(Statement(first, extent.first, extent.last))
        elif block:
            yield tuple(block)
            block = []
    if block:
        yield tuple(block)


def _joined(extents: Iterable[_Extent]) -> list[_Extent]:
    joined: list[_Extent] = []
    for extent in extents:
        if joined and joined[-1].last == extent.first:
            extent = _Extent(*joined.pop()[:2], *extent[2:])
        joined.append(extent)
    return joined


def _is_run(block: Block, first: int, last: int) -> bool:
    starts = any(first in (statement.first, statement.code) for statement in block)
    return starts and any(statement.last == last for statement in block)


def _hulls(block: Block, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The lines of the block's statements that touch the span, and of those that lie within it."""
    touched = [s for s in block if s.first <= last and first <= s.last]
    for run in (touched, [s for s in touched if first <= s.code and s.last <= last]):
        if run:
            yield run[0].first, run[-1].last


def _bracket_pairs(literal: Literal) -> Iterator[tuple[int, int]]:
    plain = _CPP_TEXT.sub(lambda match: "\n" * match[0].count("\n"), literal.text)
    opened: list[tuple[str, int]] = []
    for number, row in enumerate(plain.split("\n"), start=literal.first):
        for character in row:
            if character in "([{":
                opened.append((character, number))
            elif character in _BRACKETS:
                if opened and opened[-1][0] == _BRACKETS[character]:
                    yield opened.pop()[1], number
                else:
                    yield 0, number
    yield from ((number, 0) for _, number in opened)


def _imbalance(pairs: Iterable[tuple[int, int]], first: int, last: int) -> str | None:
    """Why the span's brackets do not balance, or None if they do."""
    pairs = tuple(pairs)
    low, high = first, last
    while cut := [p for p in pairs if (low <= p[0] <= high) != (low <= p[1] <= high)]:
        if 0 in cut[0]:
            return (
                f"holds a bracket on line {max(cut[0])} that has no partner in its string. "
                "Name lines in which every bracket is closed."
            )
        low, high = min(low, cut[0][0]), max(high, cut[0][1])
    if (low, high) == (first, last):
        return None
    return (
        "opens or closes a bracket whose partner lies outside. Name lines in which every bracket "
        f"is closed; the nearest span is {lines_in_words(low, high)}."
    )
