"""Ties a plan to source lines: validates its anchors, marks their lines for the coding model and replaces these lines.

An anchor is a span of lines with an instruction (core.plan). The model names lines and writes replacements; this
module inserts the markers and splices in the replacements, so no line outside an anchor can change. Every `source`
argument must parse as Python.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise

from stark.agents.spans import Layout, Span
from stark.core.errors import ReplyError
from stark.core.plan import Anchor, Edit
from stark.core.python import parse_python

WIDENING_LINES = 3
"""Either end of an anchor is moved by at most this many lines to cover whole statements. A plan that needs more is
refused."""

_COMMENT_WIDTH = 88


def ground(source: str, anchors: Sequence[Anchor]) -> tuple[Anchor, ...]:
    """The anchors, widened to whole statements of `source` where they split a statement.

    Each anchor must lie inside the file and have a unique name. After widening, no two anchors may share a line.

    Raises ReplyError with the reason and, if widening an anchor would add too many lines, the nearest valid span.
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
    layout = Layout(source)
    widened = tuple(_widened(layout, lines, anchor) for anchor in anchors)
    for above, below in pairwise(_in_order(widened)):
        if below.first_line <= above.last_line:
            raise ReplyError(
                f"Anchors {_described(above)} and {_described(below)} overlap when widened to whole "
                "statements. Make them one anchor, or name spans that share no line."
            )
    return widened


def mark(source: str, anchors: Sequence[Anchor]) -> str:
    """The source with each anchor between `<<<IMPROVE BEGIN name>>>` and `<<<IMPROVE END name>>>`.

    The instruction is in the lines right below BEGIN. Markers and instruction are comment lines with the span's
    indentation: `#` in Python, `//` inside a multi-line string. `anchors` must come from `ground`.
    """
    lines = source.split("\n")
    layout = Layout(source)
    for anchor in reversed(_in_order(anchors)):
        span = lines[anchor.first_line - 1 : anchor.last_line]
        *begin, end = (_indentation(span) + comment for comment in _comments(layout, anchor))
        lines[anchor.first_line - 1 : anchor.last_line] = [*begin, *span, end]
    return "\n".join(lines)


def splice(
    source: str, anchors: Sequence[Anchor], replacements: Mapping[str, str]
) -> tuple[str, tuple[Edit, ...]]:
    """The source with every anchor's lines replaced, and the edit made at each anchor.

    `replacements` has the new lines of every anchor; an empty replacement deletes the anchor's lines. Trailing blank
    lines and copies of the anchor's own markers and instruction are dropped. A Python replacement that begins at
    column 0 is indented like its anchor if the file parses with that indentation. `anchors` must come from `ground`.

    Raises ReplyError if nothing changes, if a replacement contains another anchor's markers, or if the result does
    not parse.
    """
    layout = Layout(source)
    edits = []
    for anchor in anchors:
        before = source.split("\n")[anchor.first_line - 1 : anchor.last_line]
        after = _without_markers(layout, anchor, replacements[anchor.name])
        if not layout.is_embedded(anchor.first_line, anchor.last_line):
            after = _indented_to_fit(source, anchor, after)
        edits.append(Edit(anchor=anchor.name, before="\n".join(before), after="\n".join(after)))
    if all(_same_code(edit.before, edit.after) for edit in edits):
        raise ReplyError(
            "This changes nothing: every replacement equals the lines that it replaces. "
            "Carry out each anchor's instruction."
        )
    new_lines = {edit.anchor: edit.after.split("\n") if edit.after else [] for edit in edits}
    result = _assembled(source, anchors, new_lines)
    _check_syntax(result, anchors, new_lines)
    return result, tuple(edits)


def _described(anchor: Anchor) -> str:
    return f"{anchor.name} ({Span(anchor.first_line, anchor.last_line)})"


def _in_order(anchors: Sequence[Anchor]) -> list[Anchor]:
    """The anchors, from the top of the file to its bottom."""
    return sorted(anchors, key=lambda anchor: anchor.first_line)


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


def _indentation(lines: Sequence[str]) -> str:
    """The indentation of the first line that is not blank."""
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


def _comments(layout: Layout, anchor: Anchor) -> list[str]:
    """The anchor's BEGIN marker, its instruction and its END marker, as comment lines."""
    leader = "//" if layout.is_embedded(anchor.first_line, anchor.last_line) else "#"
    wrapped = [
        row
        for paragraph in anchor.instruction.splitlines()
        for row in textwrap.wrap(paragraph, _COMMENT_WIDTH, break_long_words=False)
    ]
    rows = [f"<<<IMPROVE BEGIN {anchor.name}>>>", *wrapped, f"<<<IMPROVE END {anchor.name}>>>"]
    return [f"{leader} {row}" for row in rows]


def _without_markers(layout: Layout, anchor: Anchor, replacement: str) -> list[str]:
    """The replacement's lines without the anchor's own markers and instruction, and without trailing blank lines."""
    own = _comments(layout, anchor)
    rows = replacement.replace("\r\n", "\n").split("\n")
    lines = [row for row in rows if row.strip() not in own]
    if any("<<<IMPROVE" in line for line in lines):
        raise ReplyError(
            f"The replacement for {anchor.name} contains the markers of another anchor. "
            "Give each anchor its own lines only."
        )
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _indented_to_fit(source: str, anchor: Anchor, lines: list[str]) -> list[str]:
    """The lines, indented like the anchor if they begin at column 0 and the file parses with that indentation."""
    indent = _indentation(source.split("\n")[anchor.first_line - 1 : anchor.last_line])
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not indent or not code or code[0][0].isspace():
        return lines
    moved = textwrap.indent("\n".join(lines), indent).split("\n")
    try:
        parse_python(_assembled(source, [anchor], {anchor.name: moved}))
    except SyntaxError:
        return lines
    return moved


def _same_code(before: str, after: str) -> bool:
    """Whether two texts are equal apart from trailing whitespace of lines and trailing blank lines."""
    left, right = ([line.rstrip() for line in text.split("\n")] for text in (before, after))
    return "\n".join(left).rstrip() == "\n".join(right).rstrip()


def _assembled(
    source: str, anchors: Sequence[Anchor], new_lines: Mapping[str, Sequence[str]]
) -> str:
    lines = source.split("\n")
    for anchor in reversed(_in_order(anchors)):
        lines[anchor.first_line - 1 : anchor.last_line] = new_lines[anchor.name]
    return "\n".join(lines)


def _check_syntax(
    result: str, anchors: Sequence[Anchor], new_lines: Mapping[str, Sequence[str]]
) -> None:
    try:
        parse_python(result)
    except SyntaxError as error:
        number = error.lineno or 1
        lines = result.split("\n")
        text = lines[min(number, len(lines)) - 1].strip()
        place, shift = f"line {number} of the result, outside the anchors", 0
        for anchor in _in_order(anchors):
            size = len(new_lines[anchor.name])
            within = number + 1 - anchor.first_line - shift
            if 1 <= within <= size:
                place = f"line {within} of the replacement for {anchor.name}"
            shift += size - (anchor.last_line + 1 - anchor.first_line)
        raise ReplyError(
            f"With the replacements the file does not parse as Python: {place}, `{text}`: "
            f"{error.msg}. Keep the indentation of the lines that you replace."
        ) from error
