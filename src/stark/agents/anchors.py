"""Grounds plans in source: checks span anchors, shows them as markers and replaces their lines.

An anchor is a span of lines with an instruction (core.plan). The model names lines and writes replacements; the
program inserts the markers and splices the replacements, so nothing outside an anchor can change. Every source given
here must parse as Python.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from stark.agents.spans import Layout, Span, multi_line_literals
from stark.core.errors import ReplyError
from stark.core.plan import Anchor, Edit
from stark.core.python import parse_python

WIDENING_LINES = 3
"""How far either end of an anchor moves to cover whole statements; beyond that the plan is refused."""

_MARKER = re.compile(r"\s*(?:#|//)\s*<<<IMPROVE (?P<edge>BEGIN|END) (?P<name>\w+)>>>\s*")
_COMMENT_WIDTH = 88


_Place = tuple[int, str, int | None, str]
"""A statement's line and kind, the line of the statement around it, and the branch of that which holds it."""


class _Replaced(NamedTuple):
    """An anchor and the lines that replace it."""

    anchor: Anchor
    lines: list[str]


def ground(source: str, anchors: Sequence[Anchor]) -> tuple[Anchor, ...]:
    """The anchors, widened to whole statements of `source` where they split one.

    Each must lie inside the file, have a unique name and share no line with another, widened or not.

    Raises ReplyError with the reason and, where an anchor would need too many more lines, the nearest valid span.
    """
    names = [anchor.name for anchor in anchors]
    lines = source.removesuffix("\n").split("\n")
    for anchor in anchors:
        if names.count(anchor.name) > 1:
            raise ReplyError(
                f"{names.count(anchor.name)} anchors are called {anchor.name}. "
                "Give each anchor its own name."
            )
        if anchor.last_line > len(lines):
            raise ReplyError(
                f"Anchor {_described(anchor)} lies outside the file, which has {len(lines)} lines. "
                "Name lines of the source that you were shown."
            )
    _check_apart(anchors, "overlap")
    layout = Layout(source)
    widened = tuple(_widened(layout, lines, anchor) for anchor in anchors)
    _check_apart(widened, "overlap once they cover whole statements")
    return widened


def mark(source: str, anchors: Sequence[Anchor]) -> str:
    """The source with each anchor between `<<<IMPROVE BEGIN name>>>` and `<<<IMPROVE END name>>>`.

    Markers, and the instruction that follows BEGIN, are comment lines with the span's indentation: `#` in Python,
    `//` inside a multi-line string. `ground` has checked the anchors.
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
    """The source with every anchor's lines replaced, and the edit made at each anchor.

    `replacements` has the new lines of every anchor; an empty one removes the anchor's lines. Three things are
    adjusted: trailing blank lines and repeated markers are removed, and a Python replacement that begins at column 0
    is moved to its anchor's indentation if the file then parses. `ground` has checked the anchors.

    Raises ReplyError when nothing changes, when the result does not parse, or when a replacement changes the meaning
    of lines outside its anchor.
    """
    layout = Layout(source)
    replaced = []
    for anchor in anchors:
        lines = _without_markers(layout, anchor, _lines_of(replacements[anchor.name]))
        if not layout.is_embedded(anchor.first_line, anchor.last_line):
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
    return f"{anchor.name} ({Span(anchor.first_line, anchor.last_line)})"


def _check_apart(anchors: Sequence[Anchor], fault: str) -> None:
    for above, below in pairwise(sorted(anchors, key=lambda a: a.first_line)):
        if below.first_line <= above.last_line:
            raise ReplyError(
                f"Anchors {_described(above)} and {_described(below)} {fault}. "
                "Make them one anchor, or name spans that share no line."
            )


def _widened(layout: Layout, lines: Sequence[str], anchor: Anchor) -> Anchor:
    whole = layout.whole(anchor.first_line, anchor.last_line)
    if whole is None:
        raise ReplyError(
            f"Anchor {_described(anchor)} holds no statement, only blank lines and comments. "
            "Name lines that hold code."
        )
    if max(anchor.first_line - whole.first, whole.last - anchor.last_line) > WIDENING_LINES:
        raise ReplyError(
            f"Anchor {_described(anchor)} splits a statement. The nearest span of whole statements "
            f"is {whole}, which begins with `{lines[whole.first - 1].strip()}`. "
            "Name whole statements."
        )
    return anchor.model_copy(update={"first_line": whole.first, "last_line": whole.last})


def _leader(layout: Layout, anchor: Anchor) -> str:
    return "//" if layout.is_embedded(anchor.first_line, anchor.last_line) else "#"


def _indentation(lines: Sequence[str]) -> str:
    """The indentation of the first line that is not blank."""
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
    """The lines between the anchor's own markers, or all lines if the reply repeats no markers."""
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
    """The lines, moved to the anchor's indentation if they begin at column 0 and the file then parses.

    Lines inside a multi-line string are not moved, since their spaces are content.
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
    """Whether two texts differ only in trailing blanks."""
    left, right = ([line.rstrip() for line in _lines_of(text)] for text in (before, after))
    return left == right


def _assembled(source: str, replaced: Sequence[_Replaced]) -> str:
    lines = source.split("\n")
    for anchor, new in sorted(replaced, key=lambda r: r.anchor.first_line, reverse=True):
        lines[anchor.first_line - 1 : anchor.last_line] = new
    return "\n".join(lines)


def _new_spans(replaced: Sequence[_Replaced]) -> list[tuple[str, range]]:
    """The lines of each replacement in the result, from top to bottom."""
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
    """Splicing keeps the text outside the anchors; check that its meaning stays the same too."""
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
    """The multi-line strings with at least one end outside the spans."""
    ends = [
        (_numbered_outside(lit.first, spans), _numbered_outside(lit.last, spans))
        for lit in multi_line_literals(source)
    ]
    return [pair for pair in ends if pair != (None, None)]


def _nesting_outside(source: str, spans: Sequence[range]) -> list[_Place]:
    """The place in the syntax tree of each statement that begins outside the spans."""

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
    """The first line, decorators included."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return decorators[0].lineno if decorators else node.lineno
