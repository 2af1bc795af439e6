"""What the roles are told, as text: the device, the reference, the selected node, other attempts.

Knows which facts a role needs and how they read best; the words around them are in `prompts/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from string import Template

from stark.agents.window import ContextWindow
from stark.core.call import Kept
from stark.core.evaluation import Correct
from stark.core.node import COMPILER, ROOT, Node
from stark.core.plan import Plan
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.core.run import WINDOW_TOKENS
from stark.explain.device import device_text
from stark.explain.evaluation import evidence, explain
from stark.languages import Language
from stark.languages.lessons import Lessons

OTHER_SOURCE_LINES = 220
"""Longer sources of other attempts are cut: they are there to draw on, not to be edited."""

LINE_LENGTH = 200
"""How much of an attempt's plan, and of its result, is told in one line."""

UNCUT: Mapping[int, Kept] = {}
NOTHING_MENDED: Mapping[int, int] = {}


@dataclass(frozen=True)
class Brief:
    """Everything that a prompt for one role is made from."""

    problem: Problem
    language: Language
    reference: Reference
    window: ContextWindow
    window_tokens: int = WINDOW_TOKENS
    """How long the prompt may be, by the estimate of `core.usage`."""

    cuts: Mapping[int, Kept] = field(default_factory=dict)
    """What is still shown of other attempts that were cut to fit, by attempt."""

    @property
    def lessons(self) -> Lessons:
        """What is taught about the language for this problem on this device."""
        return self.language.lessons(self.reference)

    def common(self) -> dict[str, str]:
        """What every prompt says."""
        return {
            "problem_name": self.problem.name,
            "problem_source": self.problem.source.strip(),
            "inputs": ", ".join(map(str, self.reference.inputs)),
            "outputs": ", ".join(map(str, self.reference.outputs)),
            "device": device_text(self.reference.device),
            "language": self.language.title,
        }


def fill(name: str, facts: Mapping[str, str]) -> str:
    """A prompt from its file. Raises KeyError for a fact that the file asks for and nobody gave."""
    return _template(name).substitute(facts).strip() + "\n"


@lru_cache
def _template(name: str) -> Template:
    return Template(files("stark.agents").joinpath("prompts", f"{name}.md").read_text("utf-8"))


def start_text(node: Node | None, numbered_lines: bool, history: str = "") -> str:
    """The selected node: its source, what it was meant to do, how it fared, and `history_text` of what led to it."""
    if node is None:
        return "The reference itself, in PyTorch: there is no kernel here to start from."
    assert node.candidate is not None
    source = numbered(node.candidate.source) if numbered_lines else node.candidate.source.strip()
    return "\n".join(
        [
            f"Attempt {node.id}: {_with_status(node, explain(node.evaluation))}",
            f"It was meant to: {_strategy(node)}",
            *_little_left(node),
            *([history] if history else []),
            "```python",
            source,
            "```",
        ]
    )


def _little_left(node: Node) -> list[str]:
    """A word to whoever plans from a node that can hardly be bettered."""
    found = node.evaluation
    if not isinstance(found, Correct) or not found.near_roofline:
        return []
    return [
        f"It is within {found.headroom_percent} % of the least time possible: look for a last waste in it, and keep "
        "what it does well."
    ]


def history_text(nodes: Sequence[Node], cuts: Mapping[int, Kept] = UNCUT) -> str:
    """What led to the selected node, an attempt a line; empty where it is the first."""
    told = [node for node in nodes if cuts.get(node.id) != "nothing"]
    lines = [
        f"- attempt {node.id}, {_origin(node, node.parent)}: {_first_line(_strategy(node))} "
        f"({_first_line(outcome_text(node))})"
        for node in told
    ]
    if len(told) < len(nodes):
        lines.append(f"({len(nodes) - len(told)} left out for length.)")
    return "\n".join(["What led to it:", *lines]) if lines else ""


def attempts_text(
    nodes: Iterable[Node],
    with_source: bool,
    none: str = "Nothing yet.",
    cuts: Mapping[int, Kept] = UNCUT,
    mended: Mapping[int, int] = NOTHING_MENDED,
) -> str:
    """Other attempts, each with its plan, outcome and, on request, its source.

    `cuts` are shown as far as they say; `mended` is what repairs at the end of a chain mended.
    """
    texts, gone = [], []
    for node in nodes:
        title = f"- Attempt {node.id}, {_origin(node, mended.get(node.id, node.parent))}"
        match cuts.get(node.id):
            case "nothing":
                gone.append(str(node.id))
            case "line":
                texts.append(_attempt_line(title, node))
            case "outcome":
                left_out = "\n  (Its source is left out for length.)"
                texts.append(_attempt_text(title, node, False) + (left_out if with_source else ""))
            case None:
                texts.append(_attempt_text(title, node, with_source))
    if gone:
        which = f"Attempts {', '.join(gone)} are" if len(gone) > 1 else f"Attempt {gone[0]} is"
        texts.append(f"({which} left out for length.)")
    return "\n\n".join(texts) or none


def leaders_text(window: ContextWindow, with_source: bool, cuts: Mapping[int, Kept] = UNCUT) -> str:
    """The fastest attempts, but for the selected node and its children, which are shown after."""
    return attempts_text(window.leaderboard, with_source, "None besides what is shown below.", cuts)


def plan_text(plan: Plan | None) -> str:
    """A plan for whoever keeps to it: the strategy, and what was to be done at each anchor."""
    if plan is None:
        return "None was written down."
    todo = [f"- {a.name}: " + a.instruction.strip().replace("\n", "\n  ") for a in plan.anchors]
    return "\n".join([plan.strategy.strip(), *todo])


def outcome_text(node: Node) -> str:
    """The status and what decided it."""
    return _with_status(node, evidence(node.evaluation))


def evidence_text(node: Node) -> str:
    """All that is known of a failure, for the role that repairs it."""
    evaluation = node.evaluation
    lines = [_with_status(node, explain(evaluation))]
    if evaluation.output.strip() and not isinstance(evaluation, Correct):
        lines += ["It printed:", "```", evaluation.output.strip()[-4000:], "```"]
    return "\n".join(lines)


def _with_status(node: Node, text: str) -> str:
    """A text about an evaluation; that of a correct one names its status itself."""
    return text if isinstance(node.evaluation, Correct) else f"{node.evaluation.status}: {text}"


def numbered(source: str) -> str:
    """A source with the line numbers that anchors name: a form feed, say, begins no new line."""
    lines = source.removesuffix("\n").split("\n")
    width = len(str(len(lines)))
    return "\n".join(f"{number:>{width}} | {line}" for number, line in enumerate(lines, 1))


def _attempt_text(title: str, node: Node, with_source: bool) -> str:
    result = outcome_text(node).replace("\n", "\n    ")
    text = f"{title}: {_strategy(node)}\n  Result: {result}"
    if with_source and node.candidate is not None:
        lines = node.candidate.source.strip().splitlines()
        kept = lines[:OTHER_SOURCE_LINES]
        if len(kept) < len(lines):
            kept.append(f"# … {len(lines) - len(kept)} more lines")
        text += "\n```python\n" + "\n".join(kept) + "\n```"
    return text


def _attempt_line(title: str, node: Node) -> str:
    """An attempt that there is little room for: what it changed and how it ended."""
    idea, result = _first_line(_strategy(node)), _first_line(outcome_text(node))
    return f"{title}, in short: {idea}\n  Result: {result}"


def _first_line(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH].rstrip()}…"


def _origin(node: Node, mended: int) -> str:
    """Where it started; of a repair what it mended, beside which it is shown."""
    start = "the reference" if node.parent == ROOT else f"attempt {node.parent}"
    if mended != node.parent:
        return f"a later repair of attempt {mended}"
    return f"a repair of {start}" if node.action == "debug" else f"from {start}"


def _strategy(node: Node) -> str:
    if node.role == COMPILER:
        return "be what torch.compile generates for the reference"
    return node.plan.strategy.strip() if node.plan is not None else "write a fast candidate"
