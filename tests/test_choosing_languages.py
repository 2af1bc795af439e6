"""Runs with `--language auto`, whose planner chooses the language of each rewrite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import loop_samples as samples
from stark.agent_runs import agent_run, keep
from stark.configuration import configure, reconfigured
from stark.core.call import Message
from stark.core.candidate import Candidate
from stark.core.errors import UsageError
from stark.core.node import ROOT, Selection
from stark.languages import AUTO, LANGUAGES, offered
from stark.options import RunOptions
from stark.store import Store
from support.executor import VERSIONS, FakeExecutor
from support.nodes import CPU, DEVICE, correct
from support.replies import prompt_of, role_of, team_reply

HAS = "triton, cuda, gluon"


IMPROVE = Selection(parent=0, action="improve")


def having(languages: str) -> dict[str, str]:
    """The versions that a machine with these languages reports."""
    return VERSIONS | {"languages": languages}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def alternating(messages: tuple[Message, ...]) -> str:
    """A team whose planner writes its rewrites in Gluon and CUDA by turns."""
    reply = team_reply(messages)
    if role_of(messages) != "plan" or "ACTION: rewrite" not in reply:
        return reply
    name = "gluon" if len(prompt_of(messages)) % 2 else "cuda"
    return reply.replace("ACTION: rewrite", f"ACTION: rewrite\nLANGUAGE: {name}")


async def test_a_rewrite_is_in_the_plans_language_and_all_else_in_its_parents(store: Store) -> None:
    run = samples.run(attempts=30, language=AUTO)
    executor = FakeExecutor(versions=having(HAS))

    worked = await samples.work(store, run, executor, samples.scripted(alternating)[0])

    written = {node.id: node.candidate.language for node in worked.tree.nodes if node.candidate}
    rewrites = {n.id for n in worked.tree.nodes if n.plan and n.plan.language and n.role == "code"}
    assert {"gluon", "cuda"} >= set(written.values())
    for node in worked.tree.nodes:
        if node.id in rewrites:
            assert node.plan is not None
            assert node.plan.language == written[node.id]
        else:
            assert node.parent != ROOT
            assert written[node.parent] == written[node.id]
    assert 0 < len(rewrites) < len(written)
    assert {candidate.language for candidate in executor.evaluated} == set(written.values())


async def test_the_planner_sees_the_choice_and_the_coder_the_chosen_guide(store: Store) -> None:
    run = samples.run(attempts=1, language=AUTO)
    replies, _ = samples.scripted(alternating)

    worked = await samples.work(store, run, FakeExecutor(versions=having(HAS)), replies)

    plan, code = (prompt_of(call.messages) for call in store.calls(run.id, 1))
    for name in HAS.split(", "):
        assert f"- `{name}` ({LANGUAGES[name].title}): {LANGUAGES[name].pays}" in plan
    assert "`cutedsl`" not in plan
    assert "LANGUAGE: " in plan
    (node,) = worked.tree.nodes
    assert node.candidate is not None
    assert LANGUAGES[node.candidate.language].guide.strip() in code


async def test_a_choice_that_the_machine_lacks_is_sent_back(store: Store) -> None:
    def asks_for_cutedsl(messages: tuple[Message, ...]) -> str:
        return team_reply(messages).replace("ACTION: rewrite", "ACTION: rewrite\nLANGUAGE: CuTeDSL")

    run = samples.run(attempts=1, language=AUTO)
    replies, _ = samples.scripted(asks_for_cutedsl)

    worked = await samples.work(store, run, FakeExecutor(versions=having(HAS)), replies)

    (node,) = worked.tree.nodes
    assert "LANGUAGE is `cutedsl`. Choose one of triton, cuda, gluon." in str(node.evaluation)


async def test_a_language_may_be_named_by_its_title(store: Store) -> None:
    def asks_for_cuda(messages: tuple[Message, ...]) -> str:
        title = LANGUAGES["cuda"].title
        return team_reply(messages).replace(
            "ACTION: rewrite", f"ACTION: rewrite\nLANGUAGE: {title}"
        )

    run = samples.run(attempts=1, language=AUTO)

    worked = await samples.work(
        store, run, FakeExecutor(versions=having(HAS)), samples.scripted(asks_for_cuda)[0]
    )

    (node,) = worked.tree.nodes
    assert node.candidate is not None
    assert "cuda" == node.candidate.language


async def test_a_machine_without_any_language_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="has the tools of no language"):
        await samples.work(store, samples.run(language=AUTO), FakeExecutor())


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (DEVICE, ["triton", "gluon", "cutedsl"]),
        (DEVICE.model_copy(update={"architecture": "sm_89"}), ["triton"]),
        (CPU, ["cpp"]),
    ],
    ids=["Hopper", "Ada", "CPU"],
)
async def test_what_is_offered_fits_the_device(device, expected) -> None:  # type: ignore[no-untyped-def]
    executor = FakeExecutor(device=device, versions=having("cpp, triton, gluon, cutedsl"))

    reference = await executor.describe(samples.run().problem)

    assert expected == [entry.name for entry in offered(reference)]


def test_only_a_strategy_with_a_planner_chooses() -> None:
    chosen = configure(RunOptions(model="exec:scripted", language=AUTO))
    assert AUTO == chosen.language
    with pytest.raises(UsageError, match="sampling has no planner that could choose a language"):
        configure(RunOptions(model="exec:scripted", language=AUTO, strategy="sampling"))


def test_every_language_of_a_gpu_says_when_it_pays() -> None:
    on_a_gpu = [entry for entry in LANGUAGES.values() if "cuda" in entry.device_kinds]
    assert ["pytorch"] == [entry.name for entry in on_a_gpu if not entry.pays]


async def test_a_search_goes_on_in_the_language_of_each_of_an_agents_attempts(store: Store) -> None:
    problem = samples.run().problem
    reference = await FakeExecutor().describe(problem)
    begun = agent_run(store, problem, RunOptions(executor="local"), "triton", reference)
    for name, latency_ms in (("triton", 0.6), ("cuda", 0.3)):
        candidate = Candidate(language=name, source=f"class ModelNew: ...  # {name}\n")
        keep(store, begun, candidate, correct(latency_ms), "search", IMPROVE, "idea")
    asked = {"attempts": 6, "model": "exec:scripted"}
    run = reconfigured(store.run(begun.id), asked)
    store.reconfigure(run)

    worked = await samples.work(store, run, FakeExecutor())

    written = {node.id: node.candidate.language for node in worked.tree.nodes if node.candidate}
    later = [node for node in worked.tree.nodes if node.id > 2 and node.parent > 0]
    assert later
    assert all(written[node.id] == written[node.parent] for node in later)
