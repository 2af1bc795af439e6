"""A run as a comment for a pull request, in Markdown, from its document. Texts of models stay on their line and are escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stark.explain.numbers import counted
from stark.report.attempt_document import AttemptDocument
from stark.report.document import RunDocument

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@&!])")


_LINKING = re.compile(r"@|:(?=//)|www(?=\.)", re.IGNORECASE)
"""GitHub makes links of these even where nothing else has a meaning."""

LONGEST = 1000
"""Characters that are kept of a text."""


def run_markdown(document: RunDocument) -> str:
    """The comment: the headline, the claims, the fastest attempts and the cost."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: RunDocument) -> Iterator[str]:
    run, line = document.run, document.headline
    yield f"### {escaped(run.problem.name)}: {escaped(line.claims[0].text) if line.claims else line.outcome}"
    yield ""
    yield escaped(line.sentence)
    if line.claims:
        yield from ("", "| reference | time | speedup |", "|---|---|---|")
        for claim in line.claims:
            yield f"| {escaped(claim.reference)} | {claim.reference_latency} | {escaped(claim.text)} |"
        yield from ("", f"- time of a call: {line.latency}")
        yield f"- {escaped(line.roofline or '')}"
        yield f"- asked for precision {line.precision}; {escaped(line.accuracy or '')}"
    attempts = {each.attempt: each for each in document.attempts}
    statuses = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in document.statuses.items()
    )
    yield (
        f"- {counted(document.made, 'attempt')}: {statuses}"
        if attempts
        else "- no attempt finished"
    )
    yield f"- cost: {line.cost}, {line.tokens}, {counted(line.calls, 'call')}"
    facts = dict(document.facts)
    if document.device is not None:
        yield f"- judged on {escaped(facts['device'])}; {escaped(facts['software'])}"
    if "lessons" in facts:
        yield f"- its prompts had {escaped(facts['lessons'])}"
    yield f"- run {escaped(run.id)}, STARK {escaped(run.version)}"
    if document.leaders:
        yield from (
            "",
            "<details><summary>Fastest attempts, as the search measured them</summary>",
            "",
        )
        yield from ("| attempt | idea | time | vs eager | roofline |", "|---|---|---|---|---|")
        yield from (_row(attempts[id]) for id in document.leaders)
        yield from ("", "</details>")


def _row(attempt: AttemptDocument) -> str:
    figures = attempt.figures
    assert figures is not None  # a leader is correct
    cells = (
        escaped(attempt.idea),
        figures.latency,
        escaped(figures.speedups["eager"]),
        figures.roofline,
    )
    return f"| {attempt.attempt} | {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Text without the meaning that Markdown or HTML would give to it, on one line. It names nobody and links nowhere."""
    printable = "".join(each if each.isprintable() else " " for each in text[:LONGEST])
    short = " ".join(printable.split()) + ("…" if len(text) > LONGEST else "")
    return _LINKING.sub("\\g<0>\u2060", _SPECIAL.sub(r"\\\1", short))
