"""Grounded instruction: span anchors are checked, shown as markers, and replaced in place.

The program does all three, so that a model names lines and writes code, and never copies what
should stay as it is. Knows no model and no reply format; which lines are whole statements is
`agents.spans`' question. Every source given here must parse as Python.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from stark.agents.spans import Layout, lines_in_words, multi_line_literals
from stark.core.errors import ReplyError
from stark.core.plan import Anchor, Edit
from stark.core.python import parse_python

_MARKER = re.compile(r"\s*(?:#|//)\s*<<<IMPROVE (?P<edge>BEGIN|END) (?P<name>\w+)>>>\s*")
_COMMENT_WIDTH = 88


_Place = tuple[int, str, int | None, str]
"""A statement's line and kind, the line of what is around it, and which branch of that it is in."""


class _Replaced(NamedTuple):
    """An anchor and the lines that are to stand in its place."""

    anchor: Anchor
    lines: list[str]


def check_anchors(source: str, anchors: Sequence[Anchor]) -> None:
    """Refuse anchors that do not ground their instructions in `source`.

    Each lies inside the file, is the only one of its name, shares no line with another and
    covers whole statements: in Python, or of the C++ and CUDA inside a multi-line string. Blank
    and comment lines around the statements may belong to a span, and so may the `#pragma omp` or
    `#pragma unroll` before a loop. Text in a string that is not readable as C++ (a template,
    another language) only has to close the brackets that it opens.

    Raises ReplyError with the reason and, for a split statement, the nearest valid span.
    """
    _check_names_and_lines(len(source.split("\n")) - source.endswith("\n"), anchors)
    layout = Layout(source)
    for anchor in anchors:
        fault = layout.fault(anchor.first_line, anchor.last_line)
        if fault:
            raise ReplyError(f"Anchor {_described(anchor)} {fault}")


def mark(source: str, anchors: Sequence[Anchor]) -> str:
    """The source with each anchor between `<<<IMPROVE BEGIN name>>>` and `<<<IMPROVE END name>>>`.

    Markers, and the instruction that follows BEGIN, are comment lines with the span's
    indentation: `#` in Python, `//` inside a multi-line string. The anchors have been checked.
    """
    lines = source.split("\n")
    layout = Layout(source)
    for anchor in sorted(anchors, key=lambda a: a.first_line, reverse=True):
        span = lines[anchor.first_line - 1 : anchor.last_line]
        leader = _leader(layout, anchor)
        indent = _indentation(span)
        lines[anchor.first_line - 1 : anchor.last_line] = [
            f"{indent}{leader} <<<IMPROVE BEGIN {anchor.name}>>>",
            *_instruction_comments(anchor, indent + leader),
            *span,
            f"{indent}{leader} <<<IMPROVE END {anchor.name}>>>",
        ]
    return "\n".join(lines)


def splice(
    source: str, anchors: Sequence[Anchor], replacements: Mapping[str, str]
) -> tuple[str, tuple[Edit, ...]]:
    """The source with every anchor's lines replaced, and what became of each anchor.

    A replacement stands as it was written, but for three things: trailing blank lines go; marker
    lines that came back with it go, with the instruction after them; and where a Python span is
    indented and the replacement begins at column 0, it is moved to the span's indentation if
    the file parses that way. An empty replacement removes the lines. The anchors have been checked.

    Raises ReplyError when an anchor is unresolved or a name unknown, when nothing changes, when
    the result does not parse, or when a replacement changes how the lines outside read.
    """
    _check_resolved(anchors, replacements)
    layout = Layout(source)
    replaced = []
    for anchor in anchors:
        lines = _without_markers(layout, anchor, _lines_of(replacements[anchor.name]))
        if layout.literal_around(anchor.first_line, anchor.last_line) is None:
            lines = _indented_to_fit(source, anchor, lines)
        replaced.append(_Replaced(anchor, lines))
    edits = tuple(_edit(source, each) for each in replaced)
    if all(_same_code(edit.before, edit.after) for edit in edits):
        raise ReplyError(
            "This changes nothing: every replacement equals the lines that it replaces. "
            "Carry out each anchor's instruction."
        )
    result = _assembled(source, replaced)
    _check_syntax(result, replaced)
    _check_outside(source, result, replaced)
    return result, edits


def _described(anchor: Anchor) -> str:
    return f"{anchor.name} ({lines_in_words(anchor.first_line, anchor.last_line)})"


def _check_names_and_lines(line_count: int, anchors: Sequence[Anchor]) -> None:
    names = [anchor.name for anchor in anchors]
    for anchor in anchors:
        if names.count(anchor.name) > 1:
            raise ReplyError(
                f"{names.count(anchor.name)} anchors are called {anchor.name}. "
                "Give each anchor its own name."
            )
        if anchor.last_line > line_count:
            raise ReplyError(
                f"Anchor {_described(anchor)} lies outside the file, which has {line_count} lines. "
                "Name lines of the source that you were shown."
            )
    ordered = sorted(anchors, key=lambda a: a.first_line)
    for above, below in pairwise(ordered):
        if below.first_line <= above.last_line:
            raise ReplyError(
                f"Anchors {_described(above)} and {_described(below)} overlap. "
                "Make them one anchor, or name spans that share no line."
            )


def _check_resolved(anchors: Sequence[Anchor], replacements: Mapping[str, str]) -> None:
    names = [anchor.name for anchor in anchors]
    missing = [name for name in names if name not in replacements]
    unknown = [name for name in replacements if name not in names]
    if missing:
        raise ReplyError(
            f"No replacement was given for {', '.join(missing)}. "
            f"Resolve every anchor: {', '.join(names)}."
        )
    if unknown:
        raise ReplyError(
            f"The plan has no anchor called {', '.join(unknown)}. "
            f"Replace only its anchors: {', '.join(names)}."
        )


def _leader(layout: Layout, anchor: Anchor) -> str:
    embedded = layout.literal_around(anchor.first_line, anchor.last_line) is not None
    return "//" if embedded else "#"


def _indentation(lines: Sequence[str]) -> str:
    """That of the first line that is not blank."""
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


def _instruction_comments(anchor: Anchor, leader: str) -> list[str]:
    wrapped = [
        row
        for paragraph in anchor.instruction.splitlines()
        for row in textwrap.wrap(paragraph, _COMMENT_WIDTH, break_long_words=False)
    ]
    return [f"{leader} {row}" for row in wrapped]


def _lines_of(replacement: str) -> list[str]:
    lines = replacement.replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _without_markers(layout: Layout, anchor: Anchor, lines: list[str]) -> list[str]:
    """What stands between the anchor's own markers, or all lines if it came back without them."""
    markers = {
        (match["edge"], match["name"]): number
        for number, line in enumerate(lines)
        if (match := _MARKER.fullmatch(line))
    }
    foreign = sorted({name for _, name in markers if name != anchor.name})
    if foreign:
        raise ReplyError(
            f"The replacement for {anchor.name} contains the markers of {', '.join(foreign)}. "
            "Give each anchor its own lines only."
        )
    begin = markers.get(("BEGIN", anchor.name), -1)
    end = markers.get(("END", anchor.name), len(lines))
    if any(line.strip() for line in lines[: max(begin, 0)] + lines[end + 1 :]):
        raise ReplyError(
            f"The replacement for {anchor.name} holds code outside its markers. "
            "Give only the lines that replace the anchor's own."
        )
    inside = lines[begin + 1 : end]
    if begin >= 0:
        for comment in _instruction_comments(anchor, _leader(layout, anchor)):
            if inside and inside[0].strip() == comment:
                inside.pop(0)
    return _lines_of("\n".join(inside)) if inside else []


def _indented_to_fit(source: str, anchor: Anchor, lines: list[str]) -> list[str]:
    """The lines moved to the span's indentation, where they begin at column 0 and so fit the file.

    Lines inside a multi-line string stay where they are: there, spaces are content.
    """
    indent = _indentation(source.split("\n")[anchor.first_line - 1 : anchor.last_line])
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not indent or not code or code[0][0].isspace():
        return lines
    try:
        literals = list(multi_line_literals("\n".join(lines)))
    except (SyntaxError, tokenize.TokenError):
        return lines
    content = {row for lit in literals for row in range(lit.first + 1, lit.last + 1)}
    moved = [
        indent + line if line.strip() and number not in content else line
        for number, line in enumerate(lines, start=1)
    ]
    try:
        parse_python(_assembled(source, [_Replaced(anchor, moved)]))
    except SyntaxError:
        return lines
    return moved


def _edit(source: str, replaced: _Replaced) -> Edit:
    anchor = replaced.anchor
    before = source.split("\n")[anchor.first_line - 1 : anchor.last_line]
    return Edit(anchor=anchor.name, before="\n".join(before), after="\n".join(replaced.lines))


def _same_code(before: str, after: str) -> bool:
    """Whether two texts differ in nothing but blanks at the ends of lines and of the text."""
    left, right = ([line.rstrip() for line in _lines_of(text)] for text in (before, after))
    return left == right


def _assembled(source: str, replaced: Sequence[_Replaced]) -> str:
    lines = source.split("\n")
    for anchor, new in sorted(replaced, key=lambda r: r.anchor.first_line, reverse=True):
        lines[anchor.first_line - 1 : anchor.last_line] = new
    return "\n".join(lines)


def _new_spans(replaced: Sequence[_Replaced]) -> list[tuple[str, range]]:
    """Where each replacement stands in the result, from top to bottom."""
    spans, shift = [], 0
    for anchor, lines in sorted(replaced, key=lambda r: r.anchor.first_line):
        first = anchor.first_line + shift
        spans.append((anchor.name, range(first, first + len(lines))))
        shift += len(lines) - (anchor.last_line + 1 - anchor.first_line)
    return spans


def _check_syntax(result: str, replaced: Sequence[_Replaced]) -> None:
    try:
        parse_python(result)
    except SyntaxError as error:
        number = error.lineno or 1
        lines = result.split("\n")
        text = lines[min(number, len(lines)) - 1].strip()
        place = next(
            (
                f"line {number + 1 - span.start} of the replacement for {name}"
                for name, span in _new_spans(replaced)
                if number in span
            ),
            f"line {number} of the result, outside the anchors",
        )
        raise ReplyError(
            f"With the replacements the file does not parse as Python: {place}, `{text}`: "
            f"{error.msg}. Keep the indentation of the lines that you replace."
        ) from error


def _check_outside(source: str, result: str, replaced: Sequence[_Replaced]) -> None:
    """Lines outside the anchors are kept as text by construction; see that they also read the same."""
    old = [range(r.anchor.first_line, r.anchor.last_line + 1) for r in replaced]
    new = [span for _, span in _new_spans(replaced)]
    if _literals_outside(source, old) != _literals_outside(result, new):
        raise ReplyError(
            "A replacement opens or closes a multi-line Python string, so that the lines around it "
            "read differently. Leave the quotes (\"\"\" or ''') that surround an anchor alone."
        )
    if _nesting_outside(source, old) != _nesting_outside(result, new):
        raise ReplyError(
            "After the replacements, lines outside the anchors belong to another block than before. "
            "Keep the indentation of the lines that you replace, and open nothing at their end that "
            "takes in the lines below."
        )


def _numbered_outside(line: int, spans: Sequence[range]) -> int | None:
    """A line's number when the spans are cut out, or None inside a span."""
    if any(line in span for span in spans):
        return None
    return line - sum(len(span) for span in spans if span.start < line)


def _literals_outside(source: str, spans: Sequence[range]) -> list[tuple[int | None, int | None]]:
    """The multi-line strings that have at least one of their ends outside the spans."""
    ends = [
        (_numbered_outside(lit.first, spans), _numbered_outside(lit.last, spans))
        for lit in multi_line_literals(source)
    ]
    return [pair for pair in ends if pair != (None, None)]


def _nesting_outside(source: str, spans: Sequence[range]) -> list[_Place]:
    """Where each statement hangs that begins outside the spans; an `except` or `case` is around its own."""

    def below(node: ast.AST, parent: int | None) -> Iterator[_Place]:
        for branch, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt):
                    number = _numbered_outside(_first_line(child), spans)
                    if number is not None:
                        yield number, type(child).__name__, parent, branch
                    yield from below(child, number)
                elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                    yield from below(child, _numbered_outside(_first_line(child), spans))

    return list(below(parse_python(source), 0))


def _first_line(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> int:
    """Where it begins, its decorators included."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return decorators[0].lineno if decorators else node.lineno
