"""Reads which constants of a candidate may have other values, and writes the candidate with these values.

A candidate declares them at its top level, one a line, in every language:

    BLOCK = 64  # tune: 32, 64, 128

The value is a literal: a number, a text, True or False. The comment lists the values that are allowed, its own among them.
Source in another language gets the constant by formatting or as a compiler's option, such as `-DBLOCK=64`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from stark.core.python import bindings, parse_python
from stark.core.tuning import Change

Value = int | float | str | bool
Variant = tuple[Value, ...]
"""A value for each constant, in the order of the file."""

COMMENT = re.compile(r"#\s*tune\s*:(.*)", re.DOTALL)

MOST_VALUES = 64
"""Values of one constant; more are surely a mistake, such as a range that was written out."""

MOST_IGNORED = 20
"""Declarations that are reported as of no use; a source may hold millions."""

EXAMPLE = "BLOCK = 64  # tune: 32, 64, 128"


@dataclass(frozen=True)
class Constant:
    """A constant that may have other values."""

    name: str
    value: Value
    """The one in the file."""

    values: tuple[Value, ...]
    """All that are allowed, in the order of the comment."""

    place: tuple[int, int, int] = field(repr=False)
    """The literal's line, from 0, and the bytes of the line at which it begins and ends."""


@dataclass(frozen=True)
class Tunables:
    """The constants of one candidate that may have other values."""

    source: str
    constants: tuple[Constant, ...]
    ignored: tuple[str, ...]
    """One sentence for each of the first declarations that cannot be used."""

    @property
    def own(self) -> Variant:
        """The candidate as it is."""
        return tuple(each.value for each in self.constants)

    @property
    def size(self) -> int:
        """The number of variants, the candidate itself included."""
        return prod(len(each.values) for each in self.constants)

    def changes(self, variant: Variant) -> tuple[Change, ...]:
        """The constants whose values a variant changes."""
        pairs = zip(self.constants, variant, strict=True)
        return tuple(
            Change(name=each.name, old=repr(each.value), new=repr(value))
            for each, value in pairs
            if value != each.value
        )

    def written(self, variant: Variant) -> str:
        """The source of a variant."""
        return with_changes(self.source, self.changes(variant))


def tunables(source: str) -> Tunables:
    """The constants that a candidate declares as free. A source that does not parse has none."""
    try:
        tree = parse_python(source)
        comments = dict(_comments(source))
    except (SyntaxError, tokenize.TokenError):
        return Tunables(source, (), ())
    bound = Counter(name for name, _ in bindings(tree))
    constants, ignored = [], []
    last_on = {statement.end_lineno: statement for statement in tree.body}
    for line, comment in comments.items():
        try:
            constants.append(_constant(last_on.get(line), comment, bound))
        except ValueError as error:
            ignored.append(f"line {line}: `# tune:` is ignored: {error}")
    return Tunables(source, tuple(constants), tuple(ignored[:MOST_IGNORED]))


def with_changes(source: str, changes: Sequence[Change]) -> str:
    """The source with these constants changed. Raises ValueError if it declares one of them no longer."""
    by_name = {each.name: each for each in tunables(source).constants}
    lines = [line.encode() for line in source.split("\n")]
    for change in changes:
        if change.name not in by_name:
            raise ValueError(f"the candidate declares no constant {change.name}")
        line, begin, end = by_name[change.name].place
        lines[line] = lines[line][:begin] + change.new.encode() + lines[line][end:]
    return b"\n".join(lines).decode()


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """The lines with a declaration, each with its values."""
    if "tune" not in source or re.search(
        r"\r(?!\n)", source
    ):  # Python and tokenize count lines differently
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (found := COMMENT.match(token.string)):
            yield token.start[0], found[1]


def _constant(statement: ast.stmt | None, comment: str, bound: Mapping[str, int]) -> Constant:
    """The constant that a statement declares. Raises ValueError with the reason if it declares none."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ):
            pass
        case _:
            raise ValueError(
                f"write it behind a top-level assignment to one name, such as {EXAMPLE}"
            )
    own, allowed = _literal(value), _values(comment)
    if own is None or value.lineno != value.end_lineno:
        raise ValueError(f"the value of {name} is no number, text, True or False")
    if bound[name] > 1:
        raise ValueError(f"{name} is assigned more than once")
    if {type(each) for each in allowed} != {type(own)}:
        raise ValueError(f"the values of {name} differ in type from {own!r}")
    if own not in allowed:
        raise ValueError(f"the values of {name} lack its own, {own!r}")
    if not 2 <= len(allowed) <= MOST_VALUES:
        raise ValueError(f"{name} needs 2 to {MOST_VALUES} different values")
    assert value.end_col_offset is not None
    return Constant(name, own, allowed, (value.lineno - 1, value.col_offset, value.end_col_offset))


def _values(comment: str) -> tuple[Value, ...]:
    """The different values of a comment. Raises ValueError if it has others than literals."""
    try:
        listed = parse_python(f"({comment.strip()},)").body
    except SyntaxError:
        listed = []
    match listed:
        case [ast.Expr(value=ast.Tuple(elts=found))]:
            values = [_literal(each) for each in found]
        case _:
            values = [None]
    if any(each is None for each in values):
        raise ValueError(f"its values are literals with commas between them, such as {EXAMPLE}")
    return tuple(dict.fromkeys(each for each in values if each is not None))


def _literal(value: ast.expr) -> Value | None:
    """A plain literal's value; None for anything else."""
    try:
        found = ast.literal_eval(value)
        repr(found)  # Python writes no integer of over 4,300 digits, but reads one in hexadecimal
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if type(found) in (int, float, str, bool) else None
