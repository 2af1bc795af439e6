"""An attempt as plain data: in short for a run's list, and in full with its source, its changes and its model calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from stark.core.base import Frozen
from stark.core.bottleneck import Profiled, kernel_name
from stark.core.call import Call, spent_by_role
from stark.core.elsewhere import Elsewhere
from stark.core.evaluation import Correct, Evaluation
from stark.core.node import ROOT, Action, Node
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.usage import Spent
from stark.explain.counters import facts as counter_facts
from stark.explain.counters import limiter
from stark.explain.numbers import counted
from stark.explain.profile import profile_lines, step_text
from stark.explain.run import idea, tuning_text
from stark.recorded import LEFT_OUT
from stark.report.evaluation_document import EvaluationDocument, evaluation_document
from stark.report.facts import evaluation_facts
from stark.report.one_roofline import on_one_roofline
from stark.report.roofline_document import RooflinePoint, roofline_point
from stark.report.spending import Row, fit_line, spending_rows
from stark.report.view import RunView

_SHORTENED = re.compile(r"^\s*# … (\d+) more lines$", re.MULTILINE)
_LISTED = re.compile(r"^- Attempt (\d+)\b", re.MULTILINE)
_NAMED = re.compile(r"\battempts? (\d+)\b", re.IGNORECASE)


class AttemptDocument(EvaluationDocument):
    """An attempt in short: its parent, plan and result."""

    attempt: int
    parent: int
    action: Action
    role: str
    title: str | None
    strategy: str | None
    idea: str
    """What the attempt is, in one line."""

    duplicate_of: int | None
    finished_s: float | None
    """The run's active time when the attempt finished; null if it is unknown."""

    point: RooflinePoint | None
    """Where the kernel stands on the roofline; null unless it is correct and a roofline is known."""

    @property
    def id(self) -> int:
        """The attempt's number."""
        return self.attempt

    @property
    def counts(self) -> bool:
        """Whether it counts as an attempt. Tuning costs none."""
        return self.action != "tune"

    @property
    def works(self) -> bool:
        """Whether the candidate is correct."""
        return self.status == "correct"


class Bar(Frozen):
    """One step of a profile."""

    name: str
    share: float
    own: bool
    """Whether it is custom code, not PyTorch's or a library's."""

    text: str


class CounterDocument(Frozen):
    """The hardware counters of one kernel, in English."""

    name: str
    share: float
    limiter: str
    facts: tuple[str, ...]


class ProfileDocument(Frozen):
    """Where the time of a call goes."""

    lines: tuple[str, ...]
    bars: tuple[Bar, ...]
    counters: tuple[CounterDocument, ...]


class Judgement(Frozen):
    """An evaluation in full, as names with texts."""

    summary: EvaluationDocument
    facts: tuple[tuple[str, str], ...]
    output: str
    profiles: dict[str, ProfileDocument]
    """By case; the name is empty if the problem has no cases."""


class NodeDocument(AttemptDocument):
    """An attempt with its source and model calls."""

    version: Literal[1] = 1
    run: str
    node: Node
    """Everything that is stored of the attempt itself."""

    calls: tuple[Call, ...]
    cuts: tuple[str | None, ...]
    """For each call, what was cut from its prompt and what its recording leaves out; null if nothing was."""

    told_of: tuple[int, ...] | None
    """The earlier attempts that its prompts name; null if no model was asked."""

    roles: dict[str, Spent]
    spending: tuple[Row, ...]
    children: tuple[int, ...]
    before: str | None
    """The source that the plan was made for: the parent's, or for an edit of the reference the problem's. Null if there is none."""

    anchored: bool
    """Whether the plan's anchors name lines of `before`. A repair inherits its parent's plan, whose lines are older."""

    search: Judgement
    check: Judgement | None
    """The final check; null if there was none."""

    tuning: str | None
    """What a race of the attempt's variants found; null if there was none."""

    elsewhere: dict[str, Judgement]
    """The final checks on other kinds of machines, by kind."""


def attempt_document(
    node: Node,
    finished_s: float | None = None,
    reference: Reference | None = None,
    reply: str = "",
) -> AttemptDocument:
    """An attempt in short. `reference` is the run's; `reply` is the reply that wrote the candidate, or its beginning."""
    return AttemptDocument(**_in_short(node, finished_s, reference, reply))


def replies(calls: Iterable[Call]) -> dict[int, str]:
    """The last reply of each attempt."""
    return {call.attempt: call.reply.text for call in calls}


def node_document(view: RunView, node: Node) -> NodeDocument:
    """An attempt in full. Of the view's calls, only the attempt's own are used."""
    return node_document_of(
        view.run,
        node,
        reference=view.reference,
        parent=None if node.parent == ROOT else view.tree.node(node.parent),
        children=[child.id for child in view.tree.children(node.id)],
        calls=[call for call in view.calls if call.attempt == node.id],
        checked=view.promotions.get(node.original),
        elsewhere=view.elsewhere,
        finished_s=view.finished_s.get(node.id),
    )


def node_document_of(
    run: Run,
    node: Node,
    *,
    reference: Reference | None,
    parent: Node | None,
    children: Iterable[int],
    calls: Sequence[Call],
    checked: Evaluation | None,
    elsewhere: Mapping[str, Elsewhere],
    finished_s: float | None,
) -> NodeDocument:
    """An attempt in full, from what belongs to it. `parent` is None if it is the reference."""
    edits = node.plan is not None and bool(node.plan.anchors) and node.action == "improve"
    before = parent.candidate.source if parent and parent.candidate else None
    if parent is None and edits:
        before = run.problem.source
    roles = spent_by_role(calls)
    return NodeDocument(
        **_in_short(node, finished_s, reference, replies(calls).get(node.id, "")),
        run=run.id,
        node=node,
        calls=tuple(calls),
        cuts=tuple(map(_cuts, calls)),
        told_of=_told_of(node.id, calls) if calls else None,
        roles=roles,
        spending=tuple(spending_rows(roles)),
        children=tuple(children),
        before=before,
        anchored=edits and before is not None,
        search=judgement(node.evaluation, reference),
        check=checked and judgement(checked, reference),
        tuning=node.tuning and tuning_text(node.tuning),
        elsewhere={
            kind: judgement(found, there.reference)
            for kind, there in elsewhere.items()
            if (found := there.checks.get(node.original)) is not None
        },
    )


def _cuts(call: Call) -> str | None:
    """What the prompt lacks: attempts that were trimmed to its limit, ends of sources, a problem that was not recorded."""
    text = "\n".join(message.text for message in call.messages)
    found = (
        fit_line(call.fit) if call.fit else None,
        *(f"{counted(lines, 'line')} at the end of {whose} cut" for whose, lines in _ends(text)),
        "the problem's text is left out of this recording" if LEFT_OUT in text else None,
    )
    return "; ".join(filter(None, found)) or None


def _ends(text: str) -> Iterator[tuple[str, int]]:
    """Whose source was cut in a prompt, which names the attempt above its source, and by how many lines."""
    for found in _SHORTENED.finditer(text):
        named = _LISTED.findall(text, 0, found.start())
        yield f"attempt {named[-1]}'s source" if named else "a source", int(found[1])


def _told_of(attempt: int, calls: Sequence[Call]) -> tuple[int, ...]:
    text = "\n".join(message.text for call in calls for message in call.messages)
    return tuple(sorted({id for each in _NAMED.findall(text) if 0 < (id := int(each)) < attempt}))


def _in_short(
    node: Node, finished_s: float | None, reference: Reference | None, reply: str
) -> dict[str, Any]:
    evaluation = on_one_roofline(node.evaluation, reference)
    return {
        "attempt": node.id,
        "parent": node.parent,
        "action": node.action,
        "role": node.role,
        "title": node.plan.name if node.plan else None,
        "strategy": node.plan.strategy if node.plan else None,
        "idea": idea(node, reply),
        "duplicate_of": node.duplicate_of,
        "finished_s": finished_s,
        "point": roofline_point(node.id, evaluation),
        **dict(evaluation_document(node.evaluation, reference)),
    }


def judgement(evaluation: Evaluation, reference: Reference | None) -> Judgement:
    """An evaluation in full; with the run's reference, its shares are of that reference's roofline."""
    correct = evaluation if isinstance(evaluation, Correct) else None
    cases = {} if correct is None else correct.cases or {"": correct}
    return Judgement(
        summary=evaluation_document(evaluation, reference),
        facts=tuple(
            fact
            for fact in evaluation_facts(on_one_roofline(evaluation, reference))
            if fact[0] != "profile"
        ),
        output=evaluation.output,
        profiles={
            case: _profile_document(found)
            for case, each in cases.items()
            if (found := each.profiled) is not None
        },
    )


def _profile_document(profiled: Profiled) -> ProfileDocument:
    profile = profiled.profile
    return ProfileDocument(
        lines=tuple(profile_lines(profiled)),
        bars=tuple(
            Bar(name=kernel_name(step.name), share=step.share, own=step.own, text=step_text(step))
            for step in profile.steps
        ),
        counters=tuple(
            CounterDocument(
                name=kernel_name(each.name),
                share=each.share,
                limiter=limiter(each),
                facts=tuple(counter_facts(each)),
            )
            for each in profile.counters
        ),
    )
