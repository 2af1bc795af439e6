"""A small run, and every prompt of its agents.

`python tests/agents/agent_samples.py` writes the prompts to `snapshots/`, which a test compares. Run it after changing a
prompt and review the diff.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

from stark.agents import roles
from stark.agents.briefing import Brief
from stark.agents.roles import Ask, BuildErrors
from stark.agents.team import Assignment
from stark.agents.window import RoleName
from stark.core.call import Fit, Message, Reply
from stark.core.candidate import Candidate
from stark.core.evaluation import BuildFailed, Crashed, Evaluation
from stark.core.lesson import Change, Lesson, Repair
from stark.core.measurement import Speedup
from stark.core.node import ROOT, Action, Node, Selection
from stark.core.plan import Anchor, Plan
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.languages import LANGUAGES, Language
from stark.search.tree import Tree
from support.nodes import DEVICE, EAGER_MS, ROOFLINE, correct, failure, measurement
from support.replies import prompt_of

SNAPSHOTS = Path(__file__).parent / "snapshots"

PROBLEM = Problem(
    name="level1/19_ReLU",
    source="""\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
""",
)

REFERENCE = Reference(
    device=DEVICE,
    versions={"python": "3.11.9", "torch": "2.9.0"},
    inputs=(TensorSpec(shape=(64, 256), dtype="float32"),),
    outputs=(TensorSpec(shape=(64, 256), dtype="float32"),),
    eager=measurement(EAGER_MS),
    roofline=ROOFLINE,
)

SOURCE = '''\
import torch

SOURCE = r"""
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.0f);
}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(SOURCE, x, y, 128)
        return y
'''

EDIT = Plan(
    action="edit",
    strategy="The kernel is bound by memory: load four floats at once, for about 1.5x.",
    anchors=(
        Anchor(
            name="body",
            first_line=5,
            last_line=6,
            instruction="Let each thread handle one float4.\nKeep the guard for the tail.",
        ),
        Anchor(name="launch", first_line=14, last_line=14, instruction="Launch a quarter of it."),
    ),
)

EDIT_REPLY = """\
ACTION: edit
STRATEGY:
The kernel is bound by memory: load four floats at once, for about 1.5x.
ANCHOR: body
LINES: 5-6
BEGINS: int i = blockIdx.x * blockDim.x + threadIdx.x;
ENDS: if (i < n) y[i] = fmaxf(x[i], 0.0f);
INSTRUCTION:
Let each thread handle one float4.
Keep the guard for the tail.
ANCHOR: launch
LINES: 14
BEGINS: launch(SOURCE, x, y, 128)
ENDS: launch(SOURCE, x, y, 128)
INSTRUCTION: Launch a quarter of it.
"""

REWRITE_REPLY = "ACTION: rewrite\nSTRATEGY:\nOne kernel, one thread per element.\n"

REPLACEMENTS_REPLY = """\
ANCHOR: body
```cuda
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (int k = i; k < min(i + 4, n); ++k) y[k] = fmaxf(x[k], 0.0f);
```
ANCHOR: launch
```python
        launch(SOURCE, x, y, 32)
```
"""

CANDIDATE_REPLY = f"It counted too far.\n```python\n{SOURCE}```\n"

CRASH = Crashed(
    phase="verify",
    error="CUDA error: an illegal memory access was encountered",
    output="first line of output\nlast line of output\n",
    warnings=("the build took 170 of 180 s",),
)


LESSONS = (
    Lesson(
        run="gelu-1a2b",
        attempt=7,
        problem="level1/26_GELU",
        operators=("gelu",),
        dtype="float32",
        language="cuda",
        device="Invented GPU",
        idea="Two loads in flight",
        result=Change(speedup=Speedup(reference="parent", ratio=1.31, low=1.28, high=1.33)),
    ),
    Lesson(
        run="gelu-1a2b",
        attempt=9,
        problem="level1/26_GELU",
        operators=("gelu",),
        dtype="float32",
        language="cuda",
        device="Invented GPU",
        idea="One float4 per thread",
        result=Repair(
            failure="misaligned address", cause="The rows are no multiple of four floats long"
        ),
    ),
)


class Taught(Language):
    """A language with a short guide and no techniques, so that no change of either touches the snapshots."""

    @property
    def guide(self) -> str:
        return "# Taught\n\n## The form\nOne Python file that defines `ModelNew`.\n\n## Traps\nCosts $0 to learn."


LANGUAGE = Taught(**vars(LANGUAGES["cuda"]) | {"techniques": ()})


def attempt(
    id: int, parent: int, evaluation: Evaluation, strategy: str, action: Action = "improve"
) -> Node:
    return Node(
        id=id,
        parent=parent,
        action=action,
        role="debug" if action == "debug" else "code",
        plan=Plan(action="rewrite", strategy=strategy),
        candidate=Candidate(language="cuda", source=SOURCE.replace("128", str(128 + id))),
        evaluation=evaluation,
    )


def tree() -> Tree:
    """1 works and has children 3 and 4; 2, repaired by its cousin 5, and 6 are its siblings; 7 is unusable."""
    return Tree.replay(
        EAGER_MS,
        [
            attempt(1, ROOT, correct(0.5), "One thread per element."),
            attempt(2, ROOT, failure("incorrect"), "One block per row."),
            attempt(3, 1, correct(0.4), "Larger blocks."),
            attempt(4, 1, BuildFailed(error="line 5: expected ';'"), "Use float4."),
            attempt(5, 2, correct(0.3), "One block per row.", "debug"),
            attempt(6, ROOT, CRASH, "A persistent kernel."),
            Node(id=7, parent=1, action="improve", role="plan", evaluation=failure("unusable")),
        ],
    )


def repeated() -> Tree:
    """The tree, with 8 as a repair of 6 that changed nothing."""
    grown = tree()
    failed = grown.node(6)
    same = {"id": 8, "parent": 6, "action": "debug", "role": "debug", "duplicate_of": 6}
    grown.add(failed.model_copy(update=same))
    return grown


def assignment(parent: int, action: Action = "improve", grown: Tree | None = None) -> Assignment:
    return Assignment(
        problem=PROBLEM,
        language=LANGUAGE,
        reference=REFERENCE,
        tree=grown or tree(),
        selection=Selection(parent=parent, action=action),
        attempt=9,
        rng=random.Random(0),
    )


def brief(role: RoleName, parent: int, grown: Tree | None = None) -> Brief:
    return assignment(parent, grown=grown).brief(role)


class Answers:
    """Answers questions with these replies in order, and keeps the questions."""

    def __init__(self, *replies: str | Reply) -> None:
        self._left = iter(replies)
        self.roles: list[str] = []
        self.asked: list[tuple[Message, ...]] = []
        self.fits: list[Fit] = []
        self.more_outputs: list[bool] = []

    async def ask(
        self, role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        self.roles.append(role)
        self.asked.append(messages)
        self.fits.append(fit)
        self.more_outputs.append(more_output)
        reply = next(self._left)
        return reply if isinstance(reply, Reply) else Reply(text=reply, model="scripted")

    @property
    def prompts(self) -> list[str]:
        """The prompt of each question, or what was said when asking again."""
        return [
            messages[-1].text
            if any(message.speaker == "assistant" for message in messages)
            else prompt_of(messages)
            for messages in self.asked
        ]


async def prompt(role: RoleName, parent: int, plan: Plan = EDIT, grown: Tree | None = None) -> str:
    """The prompt of this role for this node; `plan` is the plan that the code role implements."""
    answers = Answers(reply_of(role, parent, plan))
    await work(answers.ask, role, brief(role, parent, grown), plan)
    return answers.prompts[0]


def reply_of(role: RoleName, parent: int, plan: Plan) -> str:
    """A reply that this role's rules accept."""
    if role == "plan":
        return REWRITE_REPLY
    return REPLACEMENTS_REPLY if (role, plan.action) == ("code", "edit") else CANDIDATE_REPLY


async def builds(candidate: Candidate) -> str:
    """A judge that can build everything."""
    return ""


async def fails(candidate: Candidate) -> str:
    """A judge that can build nothing."""
    return "line 5: expected ';'"


async def work(
    ask: Ask, role: RoleName, given: Brief, plan: Plan, build_errors: BuildErrors = builds
) -> None:
    match role:
        case "plan":
            await roles.plan(ask, given)
        case "code":
            await roles.code(ask, given, plan, build_errors)
        case "debug":
            await roles.debug(ask, given, build_errors)
        case "solo":
            await roles.solo(ask, given, build_errors)


async def _cut_prompt() -> str:
    """A prompt with room for only some of its neighbours' sources."""
    answers = Answers(REPLACEMENTS_REPLY)
    await work(answers.ask, "code", replace(brief("code", 1), window_tokens=1_480), EDIT)
    return answers.prompts[0]


async def _choosing_prompt(parent: int) -> str:
    """The prompt of a planner that chooses the language."""
    other = Taught(**vars(LANGUAGE) | {"name": "other", "title": "Another", "pays": "the rest"})
    choices = (Taught(**vars(LANGUAGE) | {"pays": "work per warp"}), other)
    answers = Answers(REWRITE_REPLY.replace("STRATEGY", "LANGUAGE: other\nSTRATEGY"))
    await work(answers.ask, "plan", replace(brief("plan", parent), choices=choices), EDIT)
    return answers.prompts[0]


async def _with_lessons(role: RoleName) -> str:
    answers = Answers(reply_of(role, 1, EDIT))
    await work(answers.ask, role, replace(brief(role, 1), lessons=LESSONS), EDIT)
    return answers.prompts[0]


async def prompts() -> dict[str, str]:
    """Every kind of prompt, by the name of its snapshot."""
    rewrite = Plan(action="rewrite", strategy="One kernel, one thread per element.")
    answers = Answers("I cannot.", REWRITE_REPLY)
    await roles.plan(answers.ask, brief("plan", ROOT))
    cut_off = Answers(Reply(text="ACTION", model="scripted", truncated=True), REWRITE_REPLY)
    await roles.plan(cut_off.ask, brief("plan", ROOT))
    unbuilt = Answers(CANDIDATE_REPLY, CANDIDATE_REPLY)
    await work(unbuilt.ask, "solo", brief("solo", ROOT), EDIT, fails)
    return {
        "system": answers.asked[0][0].text,
        "again": answers.prompts[1],
        "cut_off": cut_off.prompts[1],
        "unbuilt": unbuilt.prompts[1],
        "plan_with_lessons": await _with_lessons("plan"),
        "solo_with_lessons": await _with_lessons("solo"),
        "plan_at_the_root": await prompt("plan", ROOT),
        "plan": await prompt("plan", 1),
        "plan_with_a_language_at_the_root": await _choosing_prompt(ROOT),
        "plan_with_a_language": await _choosing_prompt(1),
        "plan_from_a_repair": await prompt("plan", 5),
        "code_rewrite_at_the_root": await prompt("code", ROOT, rewrite),
        "code_rewrite": await prompt("code", 1, rewrite),
        "code_edit": await prompt("code", 1),
        "code_edit_cut": await _cut_prompt(),
        "debug": await prompt("debug", 6),
        "debug_of_an_unchanged_repair": await prompt("debug", 8, grown=repeated()),
        "solo_at_the_root": await prompt("solo", ROOT),
        "solo": await prompt("solo", 1),
        "solo_repair": await prompt("solo", 6),
    }


def write_snapshots() -> None:
    """Replace the snapshots by today's prompts."""
    SNAPSHOTS.mkdir(exist_ok=True)
    for old in SNAPSHOTS.glob("*.md"):
        old.unlink()
    for name, text in asyncio.run(prompts()).items():
        (SNAPSHOTS / f"{name}.md").write_text(text, "utf-8")


if __name__ == "__main__":
    write_snapshots()
