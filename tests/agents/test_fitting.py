from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import agent_samples as samples
import pytest
from agent_samples import Answers

from stark.agents import roles
from stark.agents.briefing import Brief
from stark.agents.fitting import cutting_order, fitted, least_tokens
from stark.agents.window import LIMIT, ContextWindow, Repair, RoleName, window
from stark.core.call import Cut, Fit, Kept
from stark.core.candidate import Candidate
from stark.core.node import ROOT, Node
from stark.core.usage import estimated_tokens
from stark.search.tree import Tree
from support.nodes import random_tree, unusable, working

LONG_PLAN = "Tile the rows.\n" + "The second paragraph explains at length. " * 40
TINY = 1


def attempt(
    id: int, lines: int = 60, works: bool = True, parent: int = ROOT, latency_ms: float = 0.5
) -> Node:
    """An attempt with this many lines of source."""
    failed = samples.attempt(id, parent, samples.CRASH, "x")
    node = working(id, parent, latency_ms) if works else failed
    plan = samples.EDIT.model_copy(
        update={"strategy": LONG_PLAN, "action": "rewrite", "anchors": ()}
    )
    source = samples.SOURCE + f"# attempt {id}\n" * lines
    candidate = Candidate(language="cuda", source=source)
    return node.model_copy(update={"plan": plan, "candidate": candidate})


def brief(limit: int, **shown: object) -> Brief:
    given = samples.brief("code", 1)
    return replace(given, window=ContextWindow(**shown), window_tokens=limit)  # type: ignore[arg-type]


REWRITE = samples.EDIT.model_copy(update={"action": "rewrite", "anchors": ()})
WRITE = partial(roles.rewrite_prompt, REWRITE)
NEIGHBOURS = {
    "node": attempt(9, latency_ms=0.9),
    "children": (attempt(10, parent=9), attempt(11, 80, works=False, parent=9)),
    "cousins": (attempt(3, 90),),
    "leaderboard": (attempt(4, 100, latency_ms=0.3), attempt(5, 20)),
}


def test_what_fits_is_shown_whole() -> None:
    whole = brief(100_000, **NEIGHBOURS)

    text, fit = fitted(whole, WRITE)

    assert WRITE(whole) == text
    assert Fit(limit_tokens=100_000, tokens=estimated_tokens(len(text.encode()))) == fit
    assert not fit.over


def test_instructions_count() -> None:
    given = brief(100_000, **NEIGHBOURS)

    assert fitted(given, WRITE, "x" * 300)[1].tokens == fitted(given, WRITE)[1].tokens + 100


def test_sources_go_first_those_of_failures_then_the_longest() -> None:
    order = list(cutting_order(ContextWindow(**NEIGHBOURS)))

    assert [{11: "outcome"}, {3: "outcome"}, {10: "outcome"}] == order[:3]
    assert [{4: "outcome"}, {5: "outcome"}] == order[3:5], "those of the leaders last"


def test_then_each_is_cut_to_a_line_and_at_last_left_out_the_oldest_first() -> None:
    order = list(cutting_order(ContextWindow(**NEIGHBOURS)))

    for first, kept in ((5, "line"), (10, "nothing")):
        steps = order[first : first + 5]
        assert [{3: kept}, {10: kept}, {11: kept}, {5: kept}, {4: kept}] == steps


@pytest.mark.parametrize("role", ["plan", "solo", "code"])
def test_leaders_that_are_children_are_kept_longest_too(role: RoleName) -> None:
    """7, a cousin, is the fastest, and 3, a child of the selected node, comes next."""
    nodes = [attempt(1), attempt(2, parent=1, works=False)]
    nodes += [working(id, 1, latency) for id, latency in ((3, 0.2), (4, 0.4))]
    nodes += [attempt(6, works=False), working(7, 6, 0.1)]
    grown = Tree.replay(1.0, nodes)
    shown = window(grown, 1, role, random.Random(0))

    order = list(cutting_order(shown))

    assert [7, 3] == [leader.id for leader in shown.leaders]
    last = [step for step in order[-5:] if 6 not in step]  # an idea, except to the coder
    assert [{2: "nothing"}, {4: "nothing"}, {3: "nothing"}, {7: "nothing"}] == last[-4:]
    assert [2, 4] == [id for step in order[:2] for id in step], "their sources are too"
    assert {3, 7} == {id for step in order[2:4] for id in step}


def test_an_idea_is_a_line_from_the_start_and_left_out_like_the_others() -> None:
    shown = ContextWindow(
        node=attempt(9, parent=4),
        ideas=(attempt(1),),
        siblings=(attempt(3),),
        leaderboard=(attempt(4, parent=1),),
    )

    order = list(cutting_order(shown))

    assert [{1: "nothing"}, {3: "nothing"}, {4: "nothing"}] == order[-3:], "the leader last"


def test_a_plan_prompt_that_is_too_long_leaves_out_ideas() -> None:
    given = samples.brief("plan", 5)
    assert [1, 4, 6] == [node.id for node in given.window.ideas]
    whole, _ = fitted(given, roles.plan_prompt)

    text, fit = fitted(replace(given, window_tokens=TINY), roles.plan_prompt)

    assert "- 6, from the reference: A persistent kernel (crashed: in the verify phase" in whole
    assert "Elsewhere, with the speedup over eager:\n(3 left out for length.)" in text
    assert Cut(attempt=6, kept="nothing") in fit.cuts


def test_a_repair_is_left_out_whole_and_after_the_siblings() -> None:
    broken, fixed = attempt(2, works=False), attempt(6, parent=2)
    shown = ContextWindow(
        node=attempt(9), siblings=(attempt(7),), repairs=(Repair(broken=broken, fixed=fixed),)
    )

    order = list(cutting_order(shown))

    assert [{7: "outcome"}, {2: "outcome"}, {6: "outcome"}] == order[:3]
    assert [{7: "line"}, {2: "line", 6: "line"}] == order[3:5]


@pytest.mark.parametrize("share", [0.9, 0.7, 0.65, 0.6])
def test_no_more_is_cut_than_is_needed(share: float) -> None:
    whole = fitted(brief(100_000, **NEIGHBOURS), WRITE)[1].tokens

    text, fit = fitted(brief(int(share * whole), **NEIGHBOURS), WRITE)

    assert fit.tokens == estimated_tokens(len(text.encode())) <= share * whole
    assert fit.cuts
    made = {cut.attempt: cut.kept for cut in fit.cuts}
    reached: dict[int, Kept] = {}
    longer = WRITE(brief(1, **NEIGHBOURS))
    for step in cutting_order(ContextWindow(**NEIGHBOURS)):
        shorter = WRITE(replace(brief(1, **NEIGHBOURS), cuts=reached | step))
        if len(shorter) >= len(longer):
            continue
        reached |= step
        if reached == made:
            assert estimated_tokens(len(longer.encode())) > share * whole
            return
        longer = shorter
    raise AssertionError(f"{made} is no beginning of the order")


def test_the_prompt_says_what_was_left_out() -> None:
    shown = ContextWindow(**NEIGHBOURS)
    cuts = {11: "outcome", 3: "line", 10: "nothing", 5: "nothing"}

    text = WRITE(replace(brief(1, **NEIGHBOURS), cuts=cuts, window=shown))

    assert "- Attempt 11, from attempt 9: Tile the rows\n" in text
    assert "(Its source is left out for length.)" in text
    assert "# attempt 11\n" not in text
    assert "- Attempt 3, from the reference: Tile the rows\n  Result: correct" in text
    assert "# attempt 3\n" not in text
    assert "(Attempts 10, 5 are left out for length.)" in text
    assert "# attempt 4\n" in text


def test_a_single_attempt_that_is_left_out() -> None:
    text = WRITE(replace(brief(1, **NEIGHBOURS), cuts={10: "nothing"}))

    assert "(Attempt 10 is left out for length.)" in text


def test_a_prompt_that_leaves_out_all_children_says_so() -> None:
    given = replace(samples.brief("plan", 1), window_tokens=TINY)

    text, fit = fitted(given, roles.plan_prompt)

    tried = text.partition("# What was tried from here\n")[2]
    assert tried.startswith("(Attempts 3, 4 are left out for length.)\n")
    assert {3: "nothing", 4: "nothing", 5: "nothing", 6: "nothing"} == {
        c.attempt: c.kept for c in fit.cuts
    }


def test_a_plan_prompt_without_sources_leaves_none_out() -> None:
    given = samples.brief("plan", 1)
    whole = fitted(given, roles.plan_prompt)[1].tokens

    text, fit = fitted(replace(given, window_tokens=whole - 1), roles.plan_prompt)

    assert "outcome" not in {cut.kept for cut in fit.cuts}
    assert "(Its source" not in text


def test_what_every_prompt_needs_stays_even_if_it_is_too_long() -> None:
    long = samples.PROBLEM.model_copy(update={"source": samples.PROBLEM.source + "# x\n" * 900})
    given = replace(brief(TINY, **NEIGHBOURS), problem=long)
    node = given.window.node
    assert node is not None
    assert node.candidate is not None

    text, fit = fitted(given, WRITE)

    assert fit.over
    for necessary in (
        long.source.strip(),
        node.candidate.source.strip(),
        samples.LANGUAGE.guide,
        REWRITE.strategy,
    ):
        assert necessary in text
    assert {"nothing"} == {cut.kept for cut in fit.cuts}
    assert [3, 4, 5, 10, 11] == [cut.attempt for cut in fit.cuts]


def test_the_evidence_stays() -> None:
    text, _ = fitted(replace(samples.brief("debug", 6), window_tokens=TINY), roles.debug_prompt)

    assert "CUDA error: an illegal memory access" in text
    assert "last line of output" in text


async def test_the_fit_is_passed_with_the_question() -> None:
    answers = Answers("no plan", samples.REWRITE_REPLY)

    await roles.plan(answers.ask, replace(samples.brief("plan", 1), window_tokens=TINY))

    first, again = answers.fits
    assert first == again
    assert Cut(attempt=3, kept="nothing") in first.cuts
    sent = "".join(message.text for message in answers.asked[0])
    assert first.tokens == pytest.approx(estimated_tokens(len(sent.encode())), abs=10)


@pytest.mark.parametrize("limit", [300, 1_000, 3_000, 20_000])
def test_fitting_is_deterministic_and_cuts_everything_before_it_gives_up(limit: int) -> None:
    for seed in range(8):
        grown = random_tree(30, random.Random(seed))
        node_id = next(node.id for node in grown.nodes if node.works)
        shown = window(grown, node_id, "code", random.Random(seed))
        given = replace(samples.brief("code", 1), window=shown, window_tokens=limit)

        text, fit = fitted(given, WRITE)

        assert (text, fit) == fitted(given, WRITE)
        assert len(fit.cuts) <= LIMIT
        if fit.over:
            assert {"nothing"} >= {cut.kept for cut in fit.cuts}


def test_an_attempt_without_plan_or_source_can_be_cut() -> None:
    shown = ContextWindow(children=(unusable(3),))

    assert [{3: "outcome"}, {3: "line"}, {3: "nothing"}] == list(cutting_order(shown))


def test_the_shortest_prompt_is_the_problem_and_the_guide() -> None:
    size = len(samples.PROBLEM.source) + len(samples.LANGUAGE.guide)

    assert estimated_tokens(size) == least_tokens(samples.PROBLEM, samples.LANGUAGE)
