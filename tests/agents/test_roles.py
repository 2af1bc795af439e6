from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import get_args

import agent_samples as samples
import pytest
from agent_samples import Answers

from stark.agents import roles
from stark.agents.briefing import numbered
from stark.agents.window import LIMIT, RoleName
from stark.core.call import Fit, Message, Reply
from stark.core.errors import ModelRefused, PromptRefused, ReplyError
from stark.core.node import ROOT, Node
from stark.core.plan import Plan
from stark.languages import LANGUAGES
from stark.search.tree import Tree
from support.nodes import random_tree

ROLES: tuple[RoleName, ...] = get_args(RoleName)
REWRITE = Plan(action="rewrite", strategy="One kernel, one thread per element.")


def source_of(id: int) -> str:
    candidate = samples.tree().node(id).candidate
    assert candidate is not None
    return candidate.source


def others_in(prompt: str) -> list[int]:
    """The attempts that a prompt lists besides the selected one."""
    return [int(number) for number in re.findall(r"^- Attempt (\d+), ", prompt, re.MULTILINE)]


# Prompts.


async def test_all_prompts_are_as_they_were_reviewed() -> None:
    """After a change of prompts: `python tests/agents/agent_samples.py`, and read the difference."""
    expected = {path.stem: path.read_text("utf-8") for path in samples.SNAPSHOTS.glob("*.md")}

    assert expected == await samples.prompts()


async def test_no_prompt_has_an_unfilled_place() -> None:
    for name, text in (await samples.prompts()).items():
        assert ["$0"] * text.count("$") == re.findall(r"\$\S", text), name
        assert "None" not in text.replace("None besides", ""), name


@pytest.mark.parametrize("role", ROLES)
async def test_every_prompt_has_the_problem_and_the_device(role: RoleName) -> None:
    text = await samples.prompt(role, 6 if role == "debug" else 1)

    assert text.startswith(f"# Your role: {role}\n")
    assert samples.PROBLEM.name in text
    assert samples.PROBLEM.source.strip() in text
    assert "Inputs: float32[64, 256]. Outputs: float32[64, 256]." in text
    assert "Invented GPU (sm_90), 132 streaming multiprocessors" in text
    assert "CUDA C++" in text


@pytest.mark.parametrize(
    ("role", "shown"),
    [("plan", "line"), ("code", "text"), ("debug", "traps"), ("solo", "text")],
)
async def test_every_role_sees_its_part_of_the_techniques(role: RoleName, shown: str) -> None:
    triton = LANGUAGES["triton"]
    given = replace(samples.brief(role, 6 if role == "debug" else 1), language=triton)
    (technique,) = given.guidance.techniques
    assert "triton/wide_access" == technique.name
    plan = REWRITE.model_copy(update={"techniques": ("wide_access",)})
    if given.window.node is not None:
        planned = given.window.node.model_copy(update={"plan": plan})
        given = replace(given, window=given.window.model_copy(update={"node": planned}))
    answers = Answers(samples.reply_of(role, 1, REWRITE))

    await samples.work(answers.ask, role, given, plan)

    assert getattr(technique, shown) in answers.prompts[0]


async def test_techniques_that_the_plan_does_not_name_are_not_taught() -> None:
    given = replace(samples.brief("code", 1), language=LANGUAGES["triton"])
    answers = Answers(samples.CANDIDATE_REPLY)

    await samples.work(answers.ask, "code", given, REWRITE)

    (technique,) = given.guidance.techniques
    assert technique.title not in answers.prompts[0]


async def test_plan_gets_the_numbered_source_the_attempts_and_the_roofline() -> None:
    text = await samples.prompt("plan", 1)

    assert numbered(source_of(1)) in text
    assert "Attempt 1, from the reference: correct, 0.5 ms: 2.00x vs eager" in text
    assert "- Attempt 3, from attempt 1: Larger blocks\n  Result: correct, 0.4 ms" in text
    assert "- Attempt 4, from attempt 1: Use float4\n  Result: build_failed: line 5" in text
    leaders = text.partition("# The fastest so far")[2]
    assert "- Attempt 5, a repair of attempt 2: One block per row\n" in leaders
    assert "eager PyTorch takes 1 ms" in text
    assert "the roofline is about 0.01 ms, memory-bound" in text
    assert [5, 3, 4] == others_in(text)


async def test_code_gets_the_marked_source_with_the_instructions() -> None:
    text = await samples.prompt("code", 1)

    assert samples.EDIT.strategy in text
    for begin, instruction, end in (
        ("  // <<<IMPROVE BEGIN body>>>", "  // Keep the guard for the tail.", "body"),
        ("        # <<<IMPROVE BEGIN launch>>>", "        # Launch a quarter of it.", "launch"),
    ):
        marked = text[text.index(begin) : text.index(f"<<<IMPROVE END {end}>>>")]
        assert instruction in marked
    assert "For each anchor (body, launch) write a line `ANCHOR: name`" in text
    assert samples.LANGUAGE.guide in text
    assert [3, 4, 5] == others_in(text)
    assert "launch(SOURCE, x, y, 129)" in source_of(1)
    assert "+        launch(SOURCE, x, y, 131)" in text, "the children's code"
    assert "+        launch(SOURCE, x, y, 133)" in text, "the cousins' code"
    assert source_of(3).strip() not in text


async def test_code_that_rewrites_gets_the_source_unmarked() -> None:
    text = await samples.prompt("code", 1, REWRITE)

    assert source_of(1).strip() in text
    assert "IMPROVE" not in text
    assert REWRITE.strategy in text


async def test_debug_gets_the_evidence_the_plan_and_its_siblings_fixes() -> None:
    text = await samples.prompt("debug", 6)

    assert "crashed: in the verify phase: CUDA error: an illegal memory access" in text
    assert "last line of output" in text
    assert source_of(6).strip() in text
    assert "# Its plan\nA persistent kernel.\n" in text
    assert "- Attempt 2, from the reference" in text
    assert "- Attempt 5, a repair of attempt 2" in text
    assert (
        "  Its difference from attempt 2:\n```diff\n@@\n"
        "         y = torch.empty_like(x)\n"
        "-        launch(SOURCE, x, y, 130)\n"
        "+        launch(SOURCE, x, y, 133)\n"
        "         return y\n```"
    ) in text
    assert samples.LANGUAGE.guide in text


async def test_all_but_the_coder_get_a_plan_as_its_title_and_three_lines() -> None:
    strategy = f"It is bound by memory.\nLoad more at once.\n\n{'The lanes share rows. ' * 40}"
    long = samples.EDIT.model_copy(update={"title": "Wide loads", "strategy": strategy})
    grown = samples.tree()
    for id, evaluation in ((8, samples.CRASH), (9, samples.correct(0.2))):
        node = samples.attempt(id, 1, evaluation, "x")
        grown.add(node.model_copy(update={"plan": long}))

    debug = await samples.prompt("debug", 8, grown=grown)
    plan = await samples.prompt("plan", 1, grown=grown)
    code = await samples.prompt("code", 1, long, grown=grown)

    summary = "It is bound by memory. Load more at once."
    assert f"# Its plan\nWide loads\n{summary}\n\n#" in debug
    assert f"- Attempt 8, from attempt 1: Wide loads\n  Plan: {summary}\n  Result:" in plan
    assert strategy.strip() in code.replace("\n\n# ", "\n# ")
    for text in (debug, plan):
        assert "share rows" not in text and "Launch a quarter" not in text


async def test_debug_sees_which_failure_a_later_repair_fixed() -> None:
    grown = samples.tree()
    for id, parent, result in ((8, 6, samples.CRASH), (9, 8, samples.correct(0.4))):
        grown.add(samples.attempt(id, parent, result, "A persistent kernel.", "debug"))

    text = await samples.prompt("debug", 2, grown=grown)

    assert [1, 6, 9] == others_in(text)
    assert "- Attempt 9, a later repair of attempt 6: A persistent kernel\n" in text


async def test_debug_of_a_node_without_a_plan_says_so() -> None:
    grown = samples.tree()
    unplanned = samples.attempt(8, 1, samples.CRASH, "x").model_copy(update={"plan": None})
    grown.add(unplanned)

    assert "There is no written plan." in await samples.prompt("debug", 8, grown=grown)


@pytest.mark.parametrize(
    ("node", "task"),
    [
        (ROOT, "You start from the problem itself."),
        (1, "Improve on the attempt that you start from."),
        (6, "The attempt that you start from failed: repair it, or do better."),
    ],
)
async def test_the_solo_prompt_says_what_to_do_with_its_start(node: int, task: str) -> None:
    text = await samples.prompt("solo", node)

    assert task in text
    assert "the roofline is about" in text
    assert samples.LANGUAGE.guide in text


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_is_shown_more_than_five_other_nodes(role: RoleName) -> None:
    fullest = 0
    for seed in range(12):
        grown = grounded(random_tree(40, random.Random(seed)))
        failing = [node.id for node in grown.nodes if node.candidate and not node.works]
        nodes = failing if role == "debug" else [ROOT, *(n.id for n in grown.nodes if n.works)]
        for node_id in nodes[:6]:
            text = await samples.prompt(role, node_id, REWRITE, grown)
            others = others_in(text)
            assert len(set(others)) == len(others) <= LIMIT
            assert node_id not in others
            fullest = max(fullest, len(others))
    assert LIMIT == fullest


def grounded(tree: Tree) -> Tree:
    """The tree with sources that parse."""

    def with_source(node: Node) -> Node:
        if node.candidate is None:
            return node
        candidate = node.candidate.model_copy(update={"source": samples.SOURCE})
        return node.model_copy(update={"candidate": candidate})

    return Tree.replay(tree.root_latency_ms, [with_source(node) for node in tree.nodes])


# Replies.


async def test_an_anchored_edit_goes_from_the_plan_into_the_source() -> None:
    answers = Answers(samples.EDIT_REPLY.replace("128", "129"), samples.REPLACEMENTS_REPLY)

    plan = await roles.plan(answers.ask, samples.brief("plan", 1))
    source, edits = await roles.code(answers.ask, samples.brief("code", 1), plan, samples.builds)

    assert samples.EDIT == plan
    expected = source_of(1).replace(
        """\
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.0f);
""",
        """\
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (int k = i; k < min(i + 4, n); ++k) y[k] = fmaxf(x[k], 0.0f);
""",
    )
    expected = expected.replace("launch(SOURCE, x, y, 129)", "launch(SOURCE, x, y, 32)")
    assert expected == source
    assert ["body", "launch"] == [edit.anchor for edit in edits]
    assert "        launch(SOURCE, x, y, 129)" == edits[1].before
    assert "        launch(SOURCE, x, y, 32)" == edits[1].after


async def test_at_the_root_a_plan_must_be_a_rewrite() -> None:
    answers = Answers(samples.EDIT_REPLY, samples.REWRITE_REPLY)

    plan = await roles.plan(answers.ask, samples.brief("plan", ROOT))

    assert REWRITE == plan
    assert "so this must be a rewrite.\n" in answers.prompts[0]
    assert "this plan must be a rewrite. Write `ACTION: rewrite`" in answers.prompts[1]


async def test_a_plan_for_a_kernel_may_ask_for_a_rewrite() -> None:
    answers = Answers(samples.REWRITE_REPLY, samples.CANDIDATE_REPLY)

    plan = await roles.plan(answers.ask, samples.brief("plan", 1))
    written = await roles.code(answers.ask, samples.brief("code", 1), plan, samples.builds)

    assert (samples.SOURCE, ()) == written


@pytest.mark.parametrize(
    ("role", "node", "bad", "good", "reason"),
    [
        ("plan", 1, "I cannot.", samples.REWRITE_REPLY, "Only keyword lines may come before"),
        (
            "plan",
            1,
            samples.EDIT_REPLY.replace("5-6", "5-99"),
            samples.REWRITE_REPLY,
            "Anchor body names lines 5-99 with BEGINS `int i = blockIdx",
        ),
        (
            "code",
            1,
            "ANCHOR: body\n```\nx\n```",
            samples.REPLACEMENTS_REPLY,
            "No code block was given for launch",
        ),
        ("debug", 6, "I see no fault.", samples.CANDIDATE_REPLY, "No ```python block was found"),
        ("solo", 1, "```python\nx = 1\n```", samples.CANDIDATE_REPLY, "no class ModelNew"),
    ],
)
async def test_a_malformed_reply_is_sent_back_once_with_the_exact_reason(
    role: RoleName, node: int, bad: str, good: str, reason: str
) -> None:
    answers = Answers(bad, good, "never asked for")

    await samples.work(answers.ask, role, samples.brief(role, node), samples.EDIT)

    assert [role, role] == answers.roles
    first, second = answers.asked
    assert [False, False] == answers.more_outputs
    assert ["system", "user", "user"] == [message.speaker for message in first]
    assert first == second[:3]
    assert ("assistant", bad) == (second[3].speaker, second[3].text)
    assert "user" == second[4].speaker
    assert reason in second[4].text


async def test_a_second_failure_is_final_and_says_what_was_wrong_with_it() -> None:
    answers = Answers("no plan", "```python\nx = 1\n```", "never asked for")

    with pytest.raises(ReplyError, match="Only keyword lines may come before ACTION"):
        await roles.plan(answers.ask, samples.brief("plan", 1))

    assert 2 == len(answers.asked)


async def test_a_model_that_cannot_be_asked_is_not_a_reply() -> None:
    async def ask(role: str, messages: object, fit: object, *, more_output: bool) -> object:
        raise ModelRefused("no key: set one")

    with pytest.raises(ModelRefused):
        await roles.plan(ask, samples.brief("plan", 1))  # type: ignore[arg-type]


def cut_off(text: str) -> Reply:
    return Reply(text=text, model="scripted", truncated=True)


@pytest.mark.parametrize(
    ("role", "node", "text"),
    [
        ("plan", 1, samples.REWRITE_REPLY),
        ("code", 1, "ANCHOR: body\n```\nint"),
        ("debug", 6, samples.CANDIDATE_REPLY),
        ("solo", 1, "Because"),
    ],
)
async def test_a_reply_that_was_cut_off_is_asked_for_again_with_more_room(
    role: RoleName, node: int, text: str
) -> None:
    """Even one that could be parsed: a cut plan looks like a whole one."""
    answers = Answers(cut_off(text), samples.reply_of(role, node, samples.EDIT))

    await samples.work(answers.ask, role, samples.brief(role, node), samples.EDIT)

    assert [False, True] == answers.more_outputs
    speakers = [message.speaker for message in answers.asked[1]]
    assert ["system", "user", "user", "assistant", "user"] == speakers
    assert text == answers.asked[1][3].text
    assert "it was cut off at the output limit" in answers.prompts[1]


async def test_a_reply_cut_off_before_its_first_word_leaves_no_empty_message() -> None:
    answers = Answers(cut_off(" \n"), samples.REWRITE_REPLY)

    await roles.plan(answers.ask, samples.brief("plan", 1))

    assert all(message.text.strip() for message in answers.asked[1])


@pytest.mark.parametrize("first", [cut_off("A"), "no plan"])
async def test_a_second_reply_that_is_cut_off_is_final(first: Reply | str) -> None:
    answers = Answers(first, cut_off(samples.REWRITE_REPLY), "never asked for")

    with pytest.raises(ReplyError, match="output limit cut the reply off"):
        await roles.plan(answers.ask, samples.brief("plan", 1))


# Builds.


@pytest.mark.parametrize(("role", "node"), [("code", 1), ("debug", 6), ("solo", 1)])
async def test_a_candidate_that_does_not_build_goes_back_once_with_the_errors(
    role: RoleName, node: int
) -> None:
    reply = samples.reply_of(role, node, samples.EDIT)
    answers = Answers(reply, reply, "never asked for")

    await samples.work(answers.ask, role, samples.brief(role, node), samples.EDIT, samples.fails)

    assert [role, role] == answers.roles
    assert answers.asked[0] == answers.asked[1][:3]
    assert reply == answers.asked[1][3].text
    assert "line 5: expected ';'" in answers.prompts[1]


async def test_the_candidate_after_the_errors_counts() -> None:
    better = samples.CANDIDATE_REPLY.replace("128", "64")
    answers = Answers(samples.CANDIDATE_REPLY, better)

    source = await roles.solo(answers.ask, samples.brief("solo", ROOT), samples.fails)

    assert samples.SOURCE.replace("128", "64") == source


async def test_a_malformed_reply_and_then_a_failed_build_are_both_sent_back() -> None:
    answers = Answers("no code", samples.CANDIDATE_REPLY, samples.CANDIDATE_REPLY)

    source = await roles.solo(answers.ask, samples.brief("solo", ROOT), samples.fails)

    assert samples.SOURCE == source
    assert [3, 5, 7] == [len(messages) for messages in answers.asked]


@pytest.mark.parametrize("second", ["no code", cut_off(samples.CANDIDATE_REPLY)])
async def test_a_candidate_stays_if_no_usable_reply_follows_its_errors(
    second: str | Reply,
) -> None:
    answers = Answers(samples.CANDIDATE_REPLY, second)

    source = await roles.solo(answers.ask, samples.brief("solo", ROOT), samples.fails)

    assert samples.SOURCE == source


async def test_a_candidate_stays_if_the_model_refuses_to_read_its_errors() -> None:
    answers = Answers(samples.CANDIDATE_REPLY)

    async def ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        if answers.asked:
            raise PromptRefused("the conversation is too long")
        return await answers.ask(role, messages, fit, more_output=more_output)

    source = await roles.solo(ask, samples.brief("solo", ROOT), samples.fails)

    assert samples.SOURCE == source
