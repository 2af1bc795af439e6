"""A run in a notebook: HTML without scripts, from the run's document. All texts are escaped.

A notebook may show it in its own colors, light or dark, so the style uses none but those of the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from stark.explain.numbers import counted
from stark.report.document import RunDocument

_MARKS = {"confirmed": "✓ confirmed", "unconfirmed": "○ not confirmed yet", "refuted": "✕ refuted"}


def notebook_html(document: RunDocument) -> str:
    """The headline, the speedup against each reference, the fastest attempts and the cost."""
    run, line = document.run, document.headline
    mark = _MARKS.get(line.outcome, line.outcome)
    facts = [
        ("time of a call", line.latency),
        ("roofline", line.roofline),
        ("precision", f"{line.precision}; {line.accuracy}" if line.accuracy else line.precision),
        ("device", dict(document.facts).get("device")),
        ("cost", f"{line.cost}, {line.tokens}, {counted(line.calls, 'call')}"),
    ]
    attempts = {each.attempt: each for each in document.attempts}
    leaders = [
        (str(id), attempts[id].idea, found.latency, found.speedups["eager"], found.roofline)
        for id in document.leaders
        if (found := attempts[id].figures) is not None
    ]
    parts = [
        f"<p style='font-size:1.25em;margin:0'><b>{escape(run.problem.name)}</b> "
        f"<span style='opacity:.75'>{escape(mark)}</span></p>",
        f"<p style='margin:.2em 0'>{escape(line.sentence)}</p>",
        _table(
            ("reference", "its time", "speedup"),
            ((each.reference, each.reference_latency, each.text) for each in line.claims),
        ),
        _table((), ((name, text) for name, text in facts if text)),
        _table(("attempt", "idea", "time", "vs eager", "roofline"), leaders),
    ]
    return f"<div class='stark-run'>{''.join(parts)}</div>"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    top = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head)
    return f"<table>{f'<tr>{top}</tr>' if head else ''}{body}</table>" if body else ""


def _cell(text: str) -> str:
    return f"<td style='text-align:left'>{escape(text)}</td>"
