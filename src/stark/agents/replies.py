"""Parses the replies of the roles: a plan, a whole candidate, or one replacement per anchor.

Every refusal is a ReplyError whose text is sent back to the model. Its text therefore names the rule, what was
found and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from stark.agents.anchors import ground
from stark.agents.spans import Span
from stark.core.errors import ReplyError
from stark.core.plan import ANCHOR_NAME, Anchor, Plan, short_name, unquoted
from stark.core.python import parse_python
from stark.languages import LANGUAGES

_DRIFT = 5
"""How many lines the field LINES may be off if the fields BEGINS and ENDS identify the span."""

_LEAST_PREFIX = 10
_KEYWORD = re.compile(
    r"\s{0,3}(?P<heading>#{1,6}\s+)?(?:[-*+]\s+)?(?P<open>\*{1,3}|_{1,3}|`)?"
    r"(?P<word>ACTION|LANGUAGE|TITLE|TECHNIQUES|STRATEGY|ANCHOR|LINES|BEGINS|ENDS|INSTRUCTION)"
    r"(?P<close>(?P=open))?(?:\s*(?P<colon>:)(?P<after>(?P=open))?(?P<value>.*)|\s*)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"(?P<indent> {0,3})(?P<fence>`{3,}(?=[^`]*$)|~{3,})\s*(?P<info>.*)")
_NAME = re.compile(ANCHOR_NAME)
_SPAN = re.compile(r"(\d{1,9})(?:\s*[-\u2013]\s*(\d{1,9}))?")
_PYTHON = {"python", "py", "python3"}
_MODEL_NEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)
_OPTIONAL = {"TITLE", "TECHNIQUES"}
_PROSE = {"STRATEGY", "INSTRUCTION"}
_OF_AN_ANCHOR = ("LINES", "BEGINS", "ENDS", "INSTRUCTION")


class _Field(NamedTuple):
    """A keyword of the plan format and its value."""

    word: str
    value: str


class _Block(NamedTuple):
    """A fenced block, or a line of prose between blocks."""

    tag: str | None
    """The language that the fence names, in lower case; empty for bare fences, None for prose."""

    text: str


def parse_plan(reply: str, source: str | None, languages: Collection[str] = ()) -> Plan:
    """The plan in a reply of the form below. The plan's anchors name lines of `source`.

        ACTION: edit            (or rewrite)
        LANGUAGE: triton        (for a rewrite, if there are `languages` to choose from)
        TITLE: Fused tail       (may be missing)
        TECHNIQUES: split_k     (may be missing)
        STRATEGY:
        free prose, one or more paragraphs
        ANCHOR: fuse_loop
        LINES: 12-18
        BEGINS: for (int64_t i = 0; i < n; ++i) {
        ENDS: }
        INSTRUCTION:
        what to change here, why, what it should gain
        ANCHOR: ...

    An edit has one or more anchors, each with all of its fields; a rewrite has none. BEGINS and ENDS quote the first
    and the last line of the span. Blanks and quotation marks around a quote do not matter. A long line may be quoted as
    a prefix of at least 10 characters, followed by `...`. If LINES is off by up to 5 lines and the quotes identify one
    span, that span is used. The case of keywords does not matter, nor does Markdown around them (bold, headings,
    bullets, a fence around the reply). Nothing may precede ACTION, except TITLE and TECHNIQUES.

    Raises ReplyError if the reply breaks these rules, or if it asks for an edit and `source` is None.
    """
    fields = _fields(_unfenced(reply))
    optional = {field.word: field.value for field in reversed(fields) if field.word in _OPTIONAL}
    title = short_name(optional.get("TITLE", ""))
    techniques = _techniques(optional.get("TECHNIQUES", ""))
    fields = [field for field in fields if field.word not in _OPTIONAL]
    action = _taken(fields, "ACTION", "the plan").strip("*_").lower()
    if action not in ("edit", "rewrite"):
        raise ReplyError(f"ACTION is `{action}`. Write `ACTION: edit` or `ACTION: rewrite`.")
    language = _language(fields, languages)
    strategy = _taken(fields, "STRATEGY", "the plan")
    if action == "edit":
        anchors = _anchors(fields, source)
        return Plan(
            action="edit", title=title, techniques=techniques, strategy=strategy, anchors=anchors
        )
    if languages and language is None:
        raise ReplyError(
            f"LANGUAGE of the rewrite is missing. Write `LANGUAGE: ` and one of {', '.join(languages)} below ACTION."
        )
    if fields:
        raise ReplyError(
            f"A rewrite names no anchors, yet {fields[0].word} follows the strategy. "
            "Leave the anchors out, or write `ACTION: edit`."
        )
    return Plan(
        action="rewrite", title=title, language=language, techniques=techniques, strategy=strategy
    )


def parse_candidate(reply: str) -> str:
    """The source of a whole candidate: the reply's one ```python block that defines `ModelNew`.

    Other blocks and prose may surround it. Raises ReplyError unless there is exactly one such block and it is complete
    and parses.
    """
    python = [block.text for block in _blocks(reply) if block.tag in _PYTHON]
    if not python:
        raise ReplyError(
            "No ```python block was found. Give the whole file in one ```python block."
        )
    whole = [text for text in python if _MODEL_NEW.search(text)]
    if not whole:
        raise ReplyError(
            "The ```python block defines no class ModelNew at its top level. "
            "Give the whole file, with class ModelNew, in one ```python block."
        )
    if len(whole) > 1:
        raise ReplyError(
            f"{len(whole)} ```python blocks define ModelNew. Give the whole file in exactly one."
        )
    source = whole[0]
    try:
        parse_python(source)
    except SyntaxError as error:
        lines = source.split("\n")
        number = min(error.lineno or 1, len(lines))
        raise ReplyError(
            f"The file does not parse as Python: line {number}, `{lines[number - 1].strip()}`: "
            f"{error.msg}. Give the whole file again without this error."
        ) from error
    return source


def parse_replacements(reply: str, anchors: Sequence[Anchor]) -> dict[str, str]:
    """The new text of each anchor, by the anchor's name.

    For each anchor, the reply has a line `ANCHOR: name` and then one fenced block. The order of the anchors does not
    matter. Prose and the blocks' language tags are ignored.

    Raises ReplyError if an anchor is unknown or does not have exactly one block.
    """
    known = [anchor.name for anchor in anchors]
    found: dict[str, str] = {}
    current = None
    for block in _blocks(reply):
        if block.tag is None:
            field = _keyword(block.text)
            if field and field.word == "ANCHOR":
                current = _bare(field.value)
                if current not in known:
                    raise ReplyError(
                        f"The plan has no anchor called `{current}`. "
                        f"Its anchors are: {', '.join(known)}."
                    )
        elif current is None:
            raise ReplyError(
                "A code block comes before any ANCHOR line. "
                "Write `ANCHOR: name` on its own line before each block."
            )
        elif current in found:
            raise ReplyError(f"Anchor {current} has more than one code block. Give it exactly one.")
        else:
            found[current] = block.text
    missing = [name for name in known if name not in found]
    if missing:
        raise ReplyError(
            f"No code block was given for {', '.join(missing)}. "
            "For each anchor write `ANCHOR: name`, then one fenced block with its new lines."
        )
    return found


def _blocks(reply: str) -> list[_Block]:
    """The reply's fenced blocks, by CommonMark's rules, and its other lines one by one."""
    blocks: list[_Block] = []
    lines = iter(reply.replace("\r\n", "\n").split("\n"))
    for line in lines:
        opening = _FENCE.fullmatch(line)
        if not opening:
            blocks.append(_Block(None, line))
            continue
        fence, indent = opening["fence"], len(opening["indent"])
        closing = re.compile(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*")
        inside = []
        for row in lines:
            if closing.fullmatch(row):
                break
            inside.append(row[min(indent, len(row) - len(row.lstrip(" "))) :])
        else:
            raise ReplyError(
                f"The reply was cut off: the code block that {fence}{opening['info']} opens is "
                "never closed. Answer again in full, as briefly as the task allows."
            )
        tag = "".join(opening["info"].lower().split()[:1])
        blocks.append(_Block(tag, "".join(row + "\n" for row in inside)))
    return blocks


def _unfenced(reply: str) -> str:
    """The reply without the fence, if a single fence encloses all of it."""
    text = reply.strip()
    if not _FENCE.fullmatch(text.partition("\n")[0]):
        return text
    blocks = _blocks(text)
    return blocks[0].text if len(blocks) == 1 else text


def _keyword(line: str) -> _Field | None:
    """The keyword that a line begins with, and the keyword's value; None if the line begins with no keyword.

    A keyword without a colon must be a heading or emphasized, and alone on its line.
    """
    match = _KEYWORD.fullmatch(line)
    if not match or not (match["colon"] or match["heading"] or match["close"]):
        return None
    value = (match["value"] or "").strip()
    if match["open"] and not match["close"] and not match["after"]:
        value = value.removesuffix(match["open"])
    return _Field(match["word"].upper(), value.strip())


def _fields(text: str) -> list[_Field]:
    """The plan's fields in order.

    STRATEGY and INSTRUCTION hold prose. Their values end only at a new anchor or at a keyword in capitals.
    """
    fields: list[_Field] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        field = _keyword(line)
        if field and fields and fields[-1].word in _PROSE:
            in_capitals = field.word in line
            new_anchor = field.word == "ANCHOR" and _NAME.fullmatch(_bare(field.value))
            if not (in_capitals or new_anchor):
                field = None
        if field:
            fields.append(field)
        elif fields and _goes_on(fields[-1], line):
            fields[-1] = fields[-1]._replace(value=f"{fields[-1].value}\n{line}")
        elif line.strip():
            place = f"after {fields[-1].word}" if fields else "before ACTION"
            raise ReplyError(
                f"Only keyword lines may come {place}, but the reply has `{line.strip()[:80]}`. "
                "Answer in the plan format alone, beginning with `ACTION:`."
            )
    return fields


def _goes_on(field: _Field, line: str) -> bool:
    """Whether a line belongs to the field above it. A title or list may wrap, but text after a blank line is lost prose."""
    ended = field.value.strip() and field.value.endswith("\n") and line.strip()
    return field.word in _PROSE or (field.word in _OPTIONAL and not ended)


def _techniques(value: str) -> tuple[str, ...]:
    """The keys of techniques in this text. Words that no language knows are no error: they have no effect."""
    known = {each.key for language in LANGUAGES.values() for each in language.techniques}
    return tuple(word for word in dict.fromkeys(re.findall(r"\w+", value)) if word in known)


def _language(fields: list[_Field], languages: Collection[str]) -> str | None:
    """Remove the field LANGUAGE, if it is next, and return its value, if there is a choice."""
    if not fields or fields[0].word != "LANGUAGE":
        return None
    name = _taken(fields, "LANGUAGE", "the plan").lower().partition(" (")[0].strip("`")
    titles = {each.title.lower(): each.name for each in LANGUAGES.values()}
    name = titles.get(name, name)
    if languages and name not in languages:
        raise ReplyError(f"LANGUAGE is `{name[:40]}`. Choose one of {', '.join(languages)}.")
    return name if languages else None


def _taken(fields: list[_Field], word: str, owner: str) -> str:
    """Remove the next field, which must be `word` and not empty, and return its value."""
    if not fields or fields[0].word != word:
        found = f"{fields[0].word} comes instead" if fields else "the reply ends"
        raise ReplyError(f"{word} of {owner} is missing: {found}. Write `{word}:` and its content.")
    value = fields.pop(0).value.strip()
    if word in ("ACTION", "LANGUAGE", "ANCHOR", "LINES"):
        value = _bare(value)
    if not value:
        raise ReplyError(f"{word} of {owner} is empty. Write its content after `{word}:`.")
    return value


def _anchors(fields: list[_Field], source: str | None) -> tuple[Anchor, ...]:
    """Remove the fields of an edit's anchors, which are all that is left, and return the anchors."""
    if source is None:
        raise ReplyError(
            "There is no candidate to edit yet, so this plan must be a rewrite. "
            "Write `ACTION: rewrite` and a STRATEGY without anchors."
        )
    if not fields:
        raise ReplyError("An edit names at least one ANCHOR. Add one, or write `ACTION: rewrite`.")
    anchors = []
    while fields:
        anchors.append(_anchor(fields, source))
    return ground(source, anchors)


def _anchor(fields: list[_Field], source: str) -> Anchor:
    """Remove the next anchor's fields and return the anchor, at the lines that its quotes identify."""
    name = _taken(fields, "ANCHOR", "the plan")
    if not _NAME.fullmatch(name):
        raise ReplyError(
            f"`{name}` cannot name an anchor. Use lower-case letters, digits and underscores, "
            "at most 40, beginning with a letter."
        )
    lines, begins, ends, instruction = (
        _taken(fields, word, f"anchor {name}") for word in _OF_AN_ANCHOR
    )
    span = _SPAN.fullmatch(lines)
    first, last = (int(span[1]), int(span[2] or span[1])) if span else (0, 0)
    if not 1 <= first <= last:
        raise ReplyError(
            f"LINES of anchor {name} is `{lines[:80]}`. Write the first and the last line, counted "
            "from 1, as `LINES: 12-18`."
        )
    stated = Anchor(name=name, first_line=first, last_line=last, instruction=instruction)
    return _located(stated, begins, ends, source.split("\n"))


def _located(stated: Anchor, begins: str, ends: str, lines: Sequence[str]) -> Anchor:
    """The anchor at the stated lines if the quotes fit there, else at the only nearby span that the quotes fit."""
    firsts = _quoted_near(begins, stated.first_line, lines)
    lasts = _quoted_near(ends, stated.last_line, lines)
    if stated.first_line in firsts and stated.last_line in lasts:
        return stated
    fitting = [Span(first, last) for first in firsts for last in lasts if first <= last]
    shifted = [s for s in fitting if s.first - stated.first_line == s.last - stated.last_line]
    for spans in (fitting, shifted):
        if len(spans) == 1:
            update = {"first_line": spans[0].first, "last_line": spans[0].last}
            return stated.model_copy(update=update)
    raise ReplyError(_mismatch(stated, begins, ends, lines))


def _quoted_near(quote: str, stated: int, lines: Sequence[str]) -> list[int]:
    """The numbers of the lines near `stated` that equal the quote or, if the quote ends in dots, begin with it."""
    quote = _bare(quote)
    prefix = re.sub(r"(?:\.\.\.|\u2026)$", "", quote).rstrip()
    is_cut = prefix != quote and len(prefix) >= _LEAST_PREFIX
    near = range(max(1, stated - _DRIFT), min(len(lines), stated + _DRIFT) + 1)
    return [
        number
        for number in near
        if _bare(lines[number - 1]) == quote
        or (is_cut and lines[number - 1].strip().startswith(prefix))
    ]


def _mismatch(stated: Anchor, begins: str, ends: str, lines: Sequence[str]) -> str:
    def found(number: int) -> str:
        return f"`{lines[number - 1].strip()}`" if number <= len(lines) else "past the end"

    first, last = stated.first_line, stated.last_line
    return (
        f"Anchor {stated.name} names {Span(first, last)} with BEGINS `{begins}` and ENDS `{ends}`, "
        f"but line {first} is {found(first)} and line {last} is {found(last)}. "
        "Give the lines by number and quote the first and the last of them exactly."
    )


def _bare(value: str) -> str:
    """A value without quotation marks or backticks around it."""
    while (bare := unquoted(value)) != value:
        value = bare
    return value
