from __future__ import annotations

from dataclasses import replace

import agent_samples as samples
import pytest
from agent_samples import Answers, builds

from stark.agents.team import Draft, PlanCodeDebug, Solo
from stark.core.call import Fit, Message, Reply
from stark.core.errors import PromptRefused
from stark.core.node import ROOT, Action
from stark.core.plan import Plan

REWRITE = Plan(action="rewrite", strategy="One kernel, one thread per element.")


async def test_a_working_node_goes_to_plan_and_then_to_code() -> None:
    answers = Answers(samples.EDIT_REPLY.replace("128", "129"), samples.REPLACEMENTS_REPLY)

    draft = await PlanCodeDebug(memory=True).write(samples.assignment(1), answers.ask, builds)

    assert ["plan", "code"] == answers.roles
    assert ("code", samples.EDIT, "") == (draft.role, draft.plan, draft.fault)
    assert draft.source is not None
    assert "launch(SOURCE, x, y, 32)" in draft.source
    assert ["body", "launch"] == [edit.anchor for edit in draft.edits]


async def test_the_root_goes_to_plan_and_then_to_code() -> None:
    answers = Answers(samples.REWRITE_REPLY, samples.CANDIDATE_REPLY)

    draft = await PlanCodeDebug(memory=True).write(samples.assignment(ROOT), answers.ask, builds)

    assert Draft(role="code", source=samples.SOURCE, plan=REWRITE) == draft


async def test_a_failing_node_goes_to_debug_and_keeps_its_plan() -> None:
    answers = Answers(samples.CANDIDATE_REPLY)
    work = samples.assignment(6, "debug")

    draft = await PlanCodeDebug(memory=True).write(work, answers.ask, builds)

    assert ["debug"] == answers.roles
    expected = Draft(role="debug", source=samples.SOURCE, plan=work.tree.node(6).plan)
    assert expected == draft


async def test_a_replayed_action_is_carried_out_even_if_the_outcome_changed() -> None:
    """A replay on another device repairs what works there, and improves what fails."""
    repaired = await PlanCodeDebug(memory=True).write(
        samples.assignment(1, "debug"), Answers(samples.CANDIDATE_REPLY).ask, builds
    )
    improved = await PlanCodeDebug(memory=True).write(
        samples.assignment(6),
        Answers(samples.REWRITE_REPLY, samples.CANDIDATE_REPLY).ask,
        builds,
    )

    assert ("debug", samples.SOURCE) == (repaired.role, repaired.source)
    assert ("code", REWRITE, samples.SOURCE) == (improved.role, improved.plan, improved.source)


async def test_a_plan_that_stays_malformed_is_a_draft_with_the_last_fault() -> None:
    answers = Answers("no plan", "ACTION: rewrite")

    draft = await PlanCodeDebug(memory=True).write(samples.assignment(1), answers.ask, builds)

    assert ["plan", "plan"] == answers.roles
    assert "plan" == draft.role
    assert "STRATEGY" in draft.fault
    assert (None, None, ()) == (draft.source, draft.plan, draft.edits)


async def test_code_that_stays_malformed_leaves_its_plan() -> None:
    answers = Answers(samples.REWRITE_REPLY, "no code", "no code either")

    draft = await PlanCodeDebug(memory=True).write(samples.assignment(ROOT), answers.ask, builds)

    assert ["plan", "code", "code"] == answers.roles
    assert ("code", None, REWRITE) == (draft.role, draft.source, draft.plan)
    assert draft.fault.startswith("No ```python block was found")


async def test_a_repair_that_stays_malformed_leaves_the_plan_of_what_it_repairs() -> None:
    answers = Answers("no code", "no code either")
    work = samples.assignment(6, "debug")

    draft = await PlanCodeDebug(memory=True).write(work, answers.ask, builds)

    assert ("debug", None, work.tree.node(6).plan) == (draft.role, draft.source, draft.plan)
    assert draft.fault.startswith("No ```python block was found")


@pytest.mark.parametrize(("parent", "action"), [(ROOT, "improve"), (1, "improve"), (6, "debug")])
async def test_one_agent_does_everything_alone(parent: int, action: Action) -> None:
    answers = Answers(samples.CANDIDATE_REPLY)

    draft = await Solo(memory=True).write(samples.assignment(parent, action), answers.ask, builds)

    assert ["solo"] == answers.roles
    assert Draft(role="solo", source=samples.SOURCE) == draft


async def test_one_agent_whose_reply_stays_malformed_leaves_the_fault() -> None:
    draft = await Solo(memory=True).write(samples.assignment(1), Answers("no", "no").ask, builds)

    assert ("solo", None) == (draft.role, draft.source)
    assert draft.fault.startswith("No ```python block was found")


@pytest.mark.parametrize("team", [PlanCodeDebug(memory=True), Solo(memory=True)])
@pytest.mark.parametrize(("parent", "action"), [(1, "improve"), (6, "debug")])
async def test_a_prompt_that_the_model_refuses_makes_a_failed_draft(
    team: PlanCodeDebug | Solo, parent: int, action: Action
) -> None:
    async def ask(
        role: str, messages: tuple[Message, ...], fit: Fit, *, more_output: bool
    ) -> Reply:
        raise PromptRefused("the model refuses this prompt")

    draft = await team.write(samples.assignment(parent, action), ask, builds)

    assert (None, "the model refuses this prompt") == (draft.source, draft.fault)


async def test_memory_shows_the_rest_of_the_tree() -> None:
    with_memory, without = Answers(samples.CANDIDATE_REPLY), Answers(samples.CANDIDATE_REPLY)

    await Solo(memory=True).write(samples.assignment(1), with_memory.ask, builds)
    await Solo(memory=False).write(samples.assignment(1), without.ask, builds)

    assert "- Attempt 3, from attempt 1" in with_memory.prompts[0]
    assert "- Attempt " not in without.prompts[0]
    assert "Attempt 1, from the reference: correct" in without.prompts[0]


@pytest.mark.parametrize("parent", [1, 6])
async def test_three_agents_without_memory_see_the_selected_node_alone(parent: int) -> None:
    """Attempt 1 has children, a cousin and a leader to show; 6 has siblings and their repairs."""
    action: Action = "debug" if parent == 6 else "improve"
    with_memory, without = (
        Answers(samples.CANDIDATE_REPLY)
        if action == "debug"
        else Answers(samples.REWRITE_REPLY, samples.CANDIDATE_REPLY)
        for _ in range(2)
    )

    await PlanCodeDebug(memory=True).write(
        samples.assignment(parent, action), with_memory.ask, builds
    )
    await PlanCodeDebug(memory=False).write(samples.assignment(parent, action), without.ask, builds)

    assert all("- Attempt " in prompt for prompt in with_memory.prompts)
    assert with_memory.roles == without.roles
    assert not any("- Attempt " in prompt for prompt in without.prompts)


@pytest.mark.parametrize(
    "team",
    [
        PlanCodeDebug(memory=True),
        PlanCodeDebug(memory=False),
        Solo(memory=True),
        Solo(memory=False),
    ],
)
async def test_a_team_asks_only_its_own_roles(team: PlanCodeDebug | Solo) -> None:
    for work in (samples.assignment(1), samples.assignment(6, "debug")):
        answers = Answers(*["not a usable reply"] * 4)
        await team.write(work, answers.ask, builds)
        assert set(answers.roles) <= set(team.roles)


async def drafted(attempt: int, memory: bool = True) -> tuple[str, str]:
    """The planner's and the coder's prompts of a draft, in a tree whose drafts are 1, 2 and 6."""
    answers = Answers(samples.REWRITE_REPLY, samples.CANDIDATE_REPLY)
    work = replace(samples.assignment(ROOT), attempt=attempt)
    await PlanCodeDebug(memory=memory).write(work, answers.ask, builds)
    plan, code = answers.prompts
    return plan, code


async def test_drafts_differ_by_design_but_for_the_first_and_the_late_ones() -> None:
    told = [
        (await drafted(attempt))[0].partition("Unless the numbers")[2] for attempt in range(1, 8)
    ]

    first, second, *_, seventh = told
    assert first == "" != second
    assert 4 == len(set(told)), "each draft before changes the direction"
    assert "library calls" in seventh
    grown = samples.tree()
    grown.add(samples.attempt(8, ROOT, samples.CRASH, "Another draft."))
    late = samples.assignment(ROOT, grown=grown)
    assert 0 < late.brief("plan").draft == 4
    assert "Unless" not in (await samples.prompt("plan", ROOT, grown=grown))


async def test_a_direction_is_for_planners_who_see_the_tree() -> None:
    plan, code = await drafted(7)
    alone, _ = await drafted(7, memory=False)

    assert ("The drafts of this run go different ways" in plan, "different ways" in code) == (
        True,
        False,
    )
    assert "different ways" not in alone
