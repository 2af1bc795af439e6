"""Renders the parts of a prompt as text: the device, the reference, the selected node and other attempts.

The templates of the whole prompts are in `prompts/`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from string import Template

from stark.agents.window import ContextWindow
from stark.core.call import Kept
from stark.core.evaluation import Correct
from stark.core.lesson import Lesson
from stark.core.node import ROOT, Node
from stark.core.plan import Plan, short_name
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import WINDOW_TOKENS
from stark.core.standing import rank
from stark.explain.device import device_text, signature_text
from stark.explain.evaluation import evidence, explain, ratio_text, reason
from stark.explain.lesson import lesson_text
from stark.explain.run import changes_text
from stark.languages import Language
from stark.languages.base import Guidance

OTHER_SOURCE_LINES = 220
"""The most lines that are shown of another attempt's source."""

LINE_LENGTH = 200
"""The most characters that are shown of an attempt's outcome where only its first line is shown."""

RESULT_LENGTH = 100
"""The most characters that are shown of an idea's failure."""


@dataclass(frozen=True)
class Brief:
    """Everything that goes into a prompt for one role."""

    problem: Problem
    language: Language
    reference: Reference
    window: ContextWindow
    window_tokens: int = WINDOW_TOKENS
    """The prompt's limit in tokens, as `core.usage` estimates them."""

    draft: int = 0
    """How many attempts started at the root before this one, if this one starts there and sees the others."""

    lessons: tuple[Lesson, ...] = ()
    """Of earlier runs."""

    choices: tuple[Language, ...] = ()
    """The languages that a rewrite may be written in, if the planner chooses one; else the prompt's language is given."""

    cuts: Mapping[int, Kept] = field(default_factory=dict)
    """What is still shown of each trimmed attempt, by the attempt's id. Attempts are trimmed to meet the limit."""

    tunes: bool = False
    """Whether candidates may declare constants to be tuned."""

    @property
    def guidance(self) -> Guidance:
        """The guide to the language, with the techniques that fit the reference's profile."""
        backward = self.problem.declared.backward
        return self.language.guidance(self.reference, backward, self.tunes)

    def common(self) -> dict[str, str]:
        """The facts that every prompt may use."""
        node = self.window.node
        return {
            "attempt": "" if node is None else str(node.id),
            "problem_name": self.problem.name,
            "problem_source": self.problem.source.strip(),
            "signature": signature_text(self.reference),
            "device": device_text(self.reference.device),
            "language": self.language.title,
        }


def fill(name: str, facts: Mapping[str, str]) -> str:
    """Fill in a prompt file. Raises KeyError if `facts` lacks a placeholder of the file."""
    return _template(name).substitute(facts).strip() + "\n"


@lru_cache
def _template(name: str) -> Template:
    return Template(files("stark.agents").joinpath("prompts", f"{name}.md").read_text("utf-8"))


def choices_text(brief: Brief) -> str:
    """The languages that a plan may choose, with what each is for, and the techniques that may pay in each."""
    return "\n".join(
        ["# Languages for a rewrite", *(_choice(brief, each) for each in brief.choices)]
    )


def _choice(brief: Brief, entry: Language) -> str:
    found = entry.guidance(brief.reference).techniques
    keys = f" (techniques: {', '.join(each.key for each in found)})" if found else ""
    return f"- `{entry.name}` ({entry.title}): {entry.pays}{keys}"


def guide_text(brief: Brief) -> str:
    """The guide to the language. If the prompt shows a candidate that works, the guide's worked examples are left out."""
    guidance = brief.guidance
    return (guidance.without_examples if _shows_working(brief) else guidance.guide).strip()


def techniques_text(brief: Brief) -> str:
    """The techniques that may pay for the problem, for a role that has no plan."""
    return "\n\n".join(technique.text for technique in brief.guidance.taught())


def chosen_text(brief: Brief, plan: Plan) -> str:
    """The section with the techniques that the plan names, or nothing. A heading may follow it."""
    texts = [technique.text for technique in brief.guidance.taught(plan.techniques)]
    return "\n\n".join(["# Techniques for this plan", *texts, ""]) if texts else ""


def traps_text(brief: Brief, plan: Plan | None) -> str:
    """What often goes wrong with the techniques that the plan names, or nothing. A heading may follow it."""
    traps = [each.traps for each in brief.guidance.taught(plan.techniques if plan else None)]
    return "\n\n".join(["# Traps", *traps, ""]) if traps else ""


def lessons_text(brief: Brief) -> str:
    """The section with lessons of earlier runs, or nothing. It follows what ends without a newline."""
    if not brief.lessons:
        return ""
    lines = (f"- {lesson_text(lesson)}" for lesson in brief.lessons)
    return "\n".join(["\n\n# What earlier runs taught, on other problems", *lines])


def start_text(brief: Brief, numbered_lines: bool) -> str:
    """The selected node: its outcome, its plan, the attempts that led to it, and its source."""
    node = brief.window.node
    if node is None:
        start = "The reference itself, in PyTorch: there is no kernel to start from."
        return "\n".join([start, *_direction(brief.draft)])
    assert node.candidate is not None
    source = numbered(node.candidate.source) if numbered_lines else node.candidate.source.strip()
    return "\n".join(
        [
            f"Attempt {node.id}, {_origin(brief, node)}: "
            f"{_with_status(node, explain(node.evaluation, brief.reference))}",
            *_repetition(node),
            *([f"Plan: {plan_text(node.plan)}"] if node.plan else []),
            *_little_left(node),
            "```python",
            source,
            "```",
        ]
    )


def _direction(draft: int) -> list[str]:
    """What makes a draft differ from the others, of which the first and the late ones are free."""
    directions = fill("directions", {}).splitlines()
    if not 0 < draft <= len(directions):
        return []
    return [
        f"The drafts of this run go different ways. Unless the numbers rule it out, {directions[draft - 1]}"
    ]


def _little_left(node: Node) -> list[str]:
    """A note on a node that can hardly become faster."""
    found = node.evaluation
    if not isinstance(found, Correct) or not found.near_roofline:
        return []
    return [
        f"It is within {found.headroom_percent} % of the least time possible: look for what it still wastes, and keep "
        "what it does well."
    ]


def _repetition(node: Node) -> list[str]:
    """A note on a node whose source is not new."""
    if node.duplicate_of is None:
        return []
    return [f"Its source repeats attempt {node.duplicate_of} unchanged; this time change the code."]


def tried_text(brief: Brief) -> str:
    """The children, and every other idea of the run in one line: where it started, and its speedup or failure."""
    return "\n\n".join([attempts_text(brief, brief.window.children, False), *_ideas(brief)])


def _ideas(brief: Brief) -> list[str]:
    ideas = brief.window.ideas
    shown = [node for node in ideas if brief.cuts.get(node.id) != "nothing"]
    lines = [f"- {_title(brief, node)} ({_result(node)})" for node in shown]
    if len(shown) < len(ideas):
        lines.append(f"({len(ideas) - len(shown)} left out for length.)")
    return ["\n".join(["Elsewhere, with the speedup over eager:", *lines])] if lines else []


def _result(node: Node) -> str:
    """The speedup or the failure, in a few words."""
    if isinstance(node.evaluation, Correct):
        return ratio_text(node.evaluation.speedup_vs())
    return short_name(f"{node.evaluation.status}: {reason(node.evaluation)}", RESULT_LENGTH)


def attempts_text(
    brief: Brief, nodes: Iterable[Node], with_source: bool, none: str = "Nothing yet."
) -> str:
    """Other attempts, trimmed as `brief.cuts` says: each with its outcome and source, or with its plan and one line of
    its outcome.
    """
    texts, gone = [], []
    for node in nodes:
        if brief.cuts.get(node.id) == "nothing":
            gone.append(str(node.id))
        else:
            texts.append(_attempt_text(brief, node, with_source))
    if gone:
        which = f"Attempts {', '.join(gone)} are" if len(gone) > 1 else f"Attempt {gone[0]} is"
        texts.append(f"({which} left out for length.)")
    return "\n\n".join(texts) or none


def leaders_text(brief: Brief, with_source: bool) -> str:
    """The fastest attempts, without the selected node and its children, which the prompt shows elsewhere."""
    none = "None besides what is shown below."
    return attempts_text(brief, brief.window.leaderboard, with_source, none)


def plan_text(plan: Plan | None) -> str:
    """A plan as all but the coder see it: its name and its summary."""
    if plan is None:
        return "There is no written plan."
    return f"{plan.name}\n{plan.summary}" if _says_more(plan) else plan.summary


def outcome_text(node: Node, brief: Brief) -> str:
    """The node's status and the evidence that decided the status."""
    return _with_status(node, evidence(node.evaluation, brief.reference))


def evidence_text(node: Node) -> str:
    """Everything known about a failure, for the role that repairs it."""
    evaluation = node.evaluation
    lines = [*_repetition(node), _with_status(node, explain(evaluation))]
    if evaluation.output.strip() and not isinstance(evaluation, Correct):
        lines += ["It printed:", "```", evaluation.output.strip()[-4000:], "```"]
    return "\n".join(lines)


def _with_status(node: Node, text: str) -> str:
    """The text with the node's status in front. A correct node's text is unchanged, since it begins with `correct`."""
    return text if isinstance(node.evaluation, Correct) else f"{node.evaluation.status}: {text}"


def numbered(source: str) -> str:
    """A source with its line numbers. Only a newline begins a line: a form feed, for example, does not."""
    lines = source.removesuffix("\n").split("\n")
    width = len(str(len(lines)))
    return "\n".join(f"{number:>{width}}|{line}" for number, line in enumerate(lines, 1))


def _attempt_text(brief: Brief, node: Node, with_source: bool) -> str:
    kept = brief.cuts.get(node.id)
    code = _code(brief, node) if with_source and kept is None else []
    lines = [f"- Attempt {_title(brief, node)}"]
    if _quotes_plan(brief, node) and not code and kept != "line":
        assert node.plan is not None
        lines.append(f"  Plan: {node.plan.summary}")
    same = _shown_first(brief, node, lambda each: each.duplicate_of or each.id)
    if same != node.id:
        return "\n".join([*lines, f"  Result: identical to attempt {same}"])
    if kept == "line" or not with_source:
        return "\n".join([*lines, f"  Result: {_first_line(outcome_text(node, brief))}"])
    lines.append("  Result: " + outcome_text(node, brief).replace("\n", "\n    "))
    if kept == "outcome":
        lines.append("  (Its source is left out for length.)")
    return "\n".join([*lines, *code])


def _code(brief: Brief, node: Node) -> list[str]:
    """The attempt's code as a difference, if that is short, or the whole source of the fastest of the rest.

    Nothing if nobody can learn from it: it works and is slower than the selected attempt.
    """
    if not _instructive(brief, node):
        return []
    base, changes = _difference(brief, node)
    if base is not None and changes:
        return [f"  Its difference from attempt {base.id}:", "```diff", *changes, "```"]
    if node.candidate is None or node != _whole(brief):
        return []
    source = node.candidate.source.strip().splitlines()
    more = len(source) - OTHER_SOURCE_LINES
    rest = [f"# … {more} more lines"] if more > 0 else []
    return ["```python", *source[:OTHER_SOURCE_LINES], *rest, "```"]


def _instructive(brief: Brief, node: Node) -> bool:
    """Whether the attempt failed or is faster than the selected attempt, or the selected attempt failed."""
    selected = brief.window.node
    if selected is None or not selected.works or not node.works:
        return True
    return rank(node) < rank(selected)


def _difference(brief: Brief, node: Node) -> tuple[Node | None, tuple[str, ...]]:
    """The failure that the attempt repaired, else the selected attempt, and the difference from it, if it is short."""
    broken = {pair.fixed.id: pair.broken for pair in brief.window.repairs}
    base = broken.get(node.id, brief.window.node)
    if base is None or base.candidate is None or node.candidate is None:
        return base, ()
    return base, _diff(base.candidate.source, node.candidate.source)


@lru_cache(maxsize=256)
def _diff(before: str, after: str) -> tuple[str, ...]:
    """The changed lines with a line of context, or nothing if they are more than half of the source."""
    old, new = before.strip().splitlines(), after.strip().splitlines()
    diff = list(difflib.unified_diff(old, new, n=1, lineterm=""))[2:]
    short = sum(map(len, diff)) <= len(after) / 2
    return tuple("@@" if line.startswith("@@") else line for line in diff) if short else ()


def _whole(brief: Brief) -> Node | None:
    """The other attempt whose whole source is shown: the fastest whose difference is not."""
    window = brief.window
    choices = (
        node
        for node in (*window.leaderboard, *window.others)  # the first of equals, as _shown_first
        if node.works and _instructive(brief, node) and not _difference(brief, node)[1]
    )
    return min(choices, key=rank, default=None)


def _shows_working(brief: Brief) -> bool:
    """Whether the prompt of a role that writes code shows a working candidate in the guide's language."""
    other = _whole(brief)
    shown = (brief.window.node, other if other and other.id not in brief.cuts else None)
    return any(
        node.works and node.candidate.language == brief.language.name
        for node in shown
        if node is not None and node.candidate is not None
    )


def _quotes_plan(brief: Brief, node: Node) -> bool:
    """Whether to quote the attempt's plan here.

    A plan is not quoted if it says no more than its name, or if an earlier attempt in the prompt has the same
    plan.
    """
    if node.plan is None or not _says_more(node.plan):
        return False
    return _shown_first(brief, node, lambda each: each.plan) == node.id


def _says_more(plan: Plan) -> bool:
    """Whether the plan's summary says more than its name."""
    return plan.summary.removesuffix(".") != plan.name


def _shown_first(brief: Brief, node: Node, key: Callable[[Node], object]) -> int:
    """The id of the prompt's first attempt with the same key as `node`. The selected attempt counts as first."""
    window = brief.window
    shown = [*([window.node] if window.node else []), *window.leaderboard, *window.others, node]
    return next(each.id for each in shown if key(each) == key(node))


def _first_line(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH].rstrip()}…"


def _title(brief: Brief, node: Node) -> str:
    """An attempt's number, where it started, its language if there is a choice, and its plan's name."""
    written_in = f", in {node.candidate.language}" if brief.choices and node.candidate else ""
    name = f": {node.plan.name}" if node.plan else ""
    return f"{node.id}, {_origin(brief, node)}{written_in}{name}"


def _origin(brief: Brief, node: Node) -> str:
    """Where an attempt started."""
    start = "the reference" if node.parent == ROOT else f"attempt {node.parent}"
    repaired = brief.window.repaired_by.get(node.id, node.parent)
    if repaired != node.parent:
        return f"a later repair of attempt {repaired}"
    if node.changes:
        return f"{start} with {changes_text(node.changes)}"
    return f"a repair of {start}" if node.action == "debug" else f"from {start}"
