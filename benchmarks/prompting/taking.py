"""Makes a situation from a recorded run, with the window that its recorded prompt shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from prompting.situation import Situation
from stark.agents.window import ContextWindow, Repair, RoleName
from stark.core.call import Call
from stark.core.node import ROOT, Node
from stark.recorded import Recording
from support.replies import prompt_of

NOT_SHOWN = "# The plan role does not see the sources of other attempts."

_LISTED = re.compile(r"^- Attempt (\d+), ", re.MULTILINE)
_IDEA = re.compile(r"^- (?:attempt )?(\d+), ", re.MULTILINE)


def take(recording: Recording, attempt: int, role: RoleName, about: str) -> Situation:
    """The situation of this role in this attempt. Raises ValueError if the role was not asked."""
    calls = [call for call in recording.calls if (call.attempt, call.role) == (attempt, role)]
    if not calls:
        raise ValueError(f"the recording has no {role} call of attempt {attempt}")
    selected = recording.selections[attempt].parent
    nodes = {
        node.id: _slim(node, with_source=role != "plan" or node.id == selected)
        for node in recording.nodes
    }
    prompt = prompt_of(calls[0].messages)
    shown = [nodes[int(number)] for number in _LISTED.findall(prompt)]
    ideas = tuple(nodes[int(number)] for number in _IDEA.findall(prompt))
    window = _window(role, None if selected == ROOT else nodes[selected], shown)
    return Situation(
        about=about,
        origin=f"attempt {attempt} of the recorded run {recording.run.id}",
        role=role,
        language=recording.run.config.language,
        problem=recording.run.problem,
        reference=recording.reference,
        window=window.model_copy(update={"ideas": ideas}),
        plan=nodes[attempt].plan if role == "code" else None,
        replies=tuple(call.reply for call in calls),
        refusal=_refusal(calls),
    )


def _slim(node: Node, with_source: bool) -> Node:
    """The node without what the prompt does not show: edits, and for the plan role the sources of other attempts."""
    changes: dict[str, object] = {"edits": ()}
    if node.candidate is not None and not with_source:
        changes["candidate"] = node.candidate.model_copy(update={"source": NOT_SHOWN})
    return node.model_copy(update=changes)


def _window(role: RoleName, node: Node | None, shown: Sequence[Node]) -> ContextWindow:
    """The others by their relation to the selected node."""
    parent = ROOT if node is None else node.id
    if role == "debug":
        home = ROOT if node is None else node.parent
        repairs = [Repair(broken=b, fixed=f) for b, f in pairwise(shown) if f.parent != home]
        paired = {each.id for repair in repairs for each in (repair.broken, repair.fixed)}
        siblings = tuple(each for each in shown if each.id not in paired)
        return ContextWindow(node=node, siblings=siblings, repairs=tuple(repairs))
    children = tuple(each for each in shown if each.parent == parent)
    others = tuple(each for each in shown if each.parent != parent)
    if role == "code":
        return ContextWindow(node=node, children=children, cousins=others)
    return ContextWindow(node=node, children=children, leaderboard=others)


def _refusal(calls: Sequence[Call]) -> str:
    """Why the first reply was rejected."""
    if len(calls) < 2:
        return ""
    return calls[1].messages[-1].text.partition("\n")[0].removeprefix("Your reply cannot be used: ")
