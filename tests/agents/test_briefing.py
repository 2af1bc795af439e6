from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

import agent_samples as samples
import pytest

from stark.agents.anchors import ground
from stark.agents.briefing import (
    OTHER_SOURCE_LINES,
    Brief,
    attempts_text,
    evidence_text,
    fill,
    guide_text,
    leaders_text,
    numbered,
    outcome_text,
    start_text,
    tried_text,
)
from stark.agents.window import ContextWindow
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Incorrect
from stark.core.node import ROOT, Node
from stark.core.plan import Anchor
from stark.languages import LANGUAGES
from support.nodes import PROFILE, ROOFLINE, correct, failure, measurement, unusable, working


def brief(**shown: object) -> Brief:
    """A brief whose window has these nodes."""
    return replace(samples.brief("plan", ROOT), window=ContextWindow(**shown))  # type: ignore[arg-type]


def attempts(*nodes: Node, with_source: bool = False, **shown: object) -> str:
    return attempts_text(brief(**{"children": nodes, **shown}), nodes, with_source)


def start(node: Node, numbered_lines: bool = False, **shown: object) -> str:
    return start_text(brief(node=node, **shown), numbered_lines)


def with_source(node: Node, source: str) -> Node:
    return node.model_copy(update={"candidate": Candidate(language="triton", source=source)})


def test_only_the_selected_node_has_its_profile() -> None:
    node = samples.tree().node(1)
    profiled = correct(0.5).model_copy(update={"profile": PROFILE})
    node = node.model_copy(update={"evaluation": profiled})

    assert "\n- 75% scale_kernel: 4096 blocks" in start(node)
    assert "scale_kernel" not in attempts(node)


# Sources.


def test_lines_are_numbered_as_anchors_name_them() -> None:
    text = numbered(samples.SOURCE)

    rows = text.split("\n")
    assert samples.SOURCE.split("\n")[:-1] == [row.split("|", 1)[1] for row in rows]
    assert list(range(1, 16)) == [int(row.split("|")[0]) for row in rows]
    assert " 1|import torch" == rows[0]


@pytest.mark.parametrize("odd", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_only_a_newline_begins_a_numbered_line(odd: str) -> None:
    """Else every number below would be off, and a plan would point beside what it means."""
    source = f"import torch\n# odd{odd}comment\nx = 1\n"

    assert ["1|import torch", f"2|# odd{odd}comment", "3|x = 1"] == numbered(source).split("\n")
    assert ground(source, [Anchor(name="last", first_line=3, last_line=3, instruction="do it")])


def test_a_missing_last_newline_changes_no_numbers() -> None:
    assert numbered("a\nb\n") == numbered("a\nb")


def test_an_idea_takes_one_line() -> None:
    tree = samples.tree()
    given = brief(children=(tree.node(4),), ideas=(tree.node(2), tree.node(3)))

    children, others = tried_text(given).split("\n\n")

    assert children.startswith("- Attempt 4, from attempt 1: Use float4\n")
    assert [
        "Elsewhere, with the speedup over eager:",
        "- 2, from the reference: One block per row "
        "(incorrect: output 0: relative error 0.31 is over its budget of 0.001)",
        "- 3, from attempt 1: Larger blocks (2.50x)",
    ] == others.split("\n")
    assert "Nothing yet." == tried_text(brief())
    assert tried_text(given) == tried_text(replace(given, cuts={2: "line"}))
    gone = tried_text(replace(given, cuts={2: "nothing"}))
    assert gone.endswith("(2.50x)\n(1 left out for length.)")


def test_the_start_has_the_outcome_the_plan_and_the_source() -> None:
    node = samples.tree().node(1)

    plain, with_numbers = start(node), start(node, numbered_lines=True)

    for text in (plain, with_numbers):
        assert text.startswith("Attempt 1, from the reference: correct, 0.5 ms: 2.00x vs eager")
        assert "\nPlan: One thread per element.\n" in text
    assert "\n11|class ModelNew(torch.nn.Module):\n" in with_numbers
    assert "\nclass ModelNew(torch.nn.Module):\n" in plain


# Other attempts.

LONG = "Load four floats at once. The kernel is bound by memory."


def test_attempts_are_listed_with_their_origin_name_and_outcome() -> None:
    tree = samples.tree()

    text = attempts(tree.node(4), tree.node(5), tree.node(6))

    assert [
        "- Attempt 4, from attempt 1: Use float4",
        "  Result: build_failed: line 5: expected ';'",
        "",
        "- Attempt 5, a repair of attempt 2: One block per row",
    ] == text.split("\n")[:4]
    assert "- Attempt 6, from the reference: A persistent kernel\n" in text
    assert "```" not in text


def test_an_attempt_is_named_by_its_title() -> None:
    node = samples.attempt(3, ROOT, correct(0.5), LONG)
    assert node.plan is not None
    named = node.model_copy(update={"plan": node.plan.model_copy(update={"title": "Wide loads"})})

    assert attempts(named).startswith(
        f"- Attempt 3, from the reference: Wide loads\n  Plan: {LONG}\n  Result: correct"
    )


def test_a_plan_is_quoted_once_and_never_beside_a_source() -> None:
    """5 repaired 2, so both have the same plan. The code of a failure is not shown here, since nothing repaired it."""
    broken = samples.attempt(2, ROOT, failure("incorrect"), LONG)
    fixed = samples.attempt(5, 2, correct(0.3), LONG, "debug")
    leader = samples.attempt(6, ROOT, correct(0.2), LONG)

    assert 1 == attempts(broken, fixed).count(LONG)
    assert LONG not in attempts(fixed, with_source=True)
    assert LONG in attempts(broken, with_source=True)
    assert LONG not in attempts(broken, node=fixed), "the selected attempt has it"
    assert LONG not in attempts(broken, leaderboard=(leader,)), "the leaderboard is above"


def test_an_identical_source_and_its_result_are_not_repeated() -> None:
    first, other = samples.tree().node(4), samples.tree().node(3)
    second, third = (first.model_copy(update={"id": id, "duplicate_of": first.id}) for id in (8, 9))

    for shown in (True, False):
        text = attempts(first, other, second, with_source=shown)
        assert text.endswith(
            "\n\n- Attempt 8, from attempt 1: Use float4\n  Result: identical to attempt 4"
        )
        assert "identical" not in attempts(other, second, with_source=shown), (
            "4 is not in the prompt"
        )
        assert 1 == attempts(second, third, with_source=shown).count("identical to attempt 8")
    assert "identical to attempt 4" in attempts(second, node=first)


def test_an_empty_list_says_so() -> None:
    assert "Nothing yet." == attempts(with_source=True)
    assert "None besides what is shown below." == leaders_text(brief(), with_source=True)


def test_leaders_are_listed_as_other_attempts_are() -> None:
    node = working(1)

    assert attempts(node, with_source=True) == leaders_text(brief(leaderboard=(node,)), True)


def test_a_long_source_of_another_attempt_is_cut() -> None:
    lines = [f"x{number} = {number}" for number in range(OTHER_SOURCE_LINES + 5)]

    fits = attempts(with_source(working(1), "\n".join(lines[:-5])), with_source=True)
    cut = attempts(with_source(working(1), "\n".join(lines)), with_source=True)

    assert "more lines" not in fits
    assert lines[OTHER_SOURCE_LINES - 1] in fits.split("\n")
    assert "# … 5 more lines" in cut
    assert lines[OTHER_SOURCE_LINES - 1] in cut.split("\n")
    assert lines[OTHER_SOURCE_LINES] not in cut.split("\n")


def lines(*numbers: int) -> str:
    return "\n".join(f"x{number} = {number}" for number in numbers)


def test_a_short_difference_from_the_selected_attempt_stands_for_a_source() -> None:
    selected = with_source(working(1, latency_ms=0.9), lines(*range(30)))
    near = with_source(working(2, 1, 0.5), lines(*range(20), 99, *range(21, 30)))
    far = with_source(working(3, 1, 0.5), lines(*range(40, 70)))

    text = attempts(near, far, with_source=True, node=selected)

    shown, whole = text.split("\n\n- Attempt 3")
    assert shown.endswith(
        "  Its difference from attempt 1:\n```diff\n@@\n x19 = 19\n-x20 = 20\n+x99 = 99\n x21 = 21\n```"
    )
    assert f"```python\n{lines(*range(40, 70))}\n```" in whole


def test_of_several_other_sources_the_fastest_is_shown() -> None:
    drafts = [with_source(working(id, 0, 1 / id), lines(id)) for id in (2, 4, 3)]
    broken = with_source(samples.attempt(5, 0, failure("incorrect"), LONG), lines(5))

    text = attempts(*drafts, broken, with_source=True)

    assert 1 == text.count("```python")
    assert f"```python\n{lines(4)}\n```" in text


def test_the_source_of_a_slower_attempt_teaches_nothing() -> None:
    selected = with_source(working(1, latency_ms=0.5), lines(1))
    slower = with_source(working(2, 1, 0.6), lines(2))

    assert "```" not in attempts(slower, with_source=True, node=selected)
    assert "```python" in attempts(slower, with_source=True, node=samples.tree().node(6))


def test_the_guides_example_is_left_out_beside_a_working_candidate_of_its_language() -> None:
    """It stays for the first draft, where all others failed, or where they are in another language."""
    cuda = replace(samples.brief("code", ROOT), language=LANGUAGES["cuda"])
    works = with_source(working(1), lines(1))
    same = works.model_copy(update={"candidate": Candidate(language="cuda", source=lines(1))})
    fails = samples.attempt(2, ROOT, failure("incorrect"), LONG)
    shown = {
        "first": ContextWindow(),
        "failed": ContextWindow(children=(fails,)),
        "repair": ContextWindow(node=fails, siblings=(fails,)),
        "other language": ContextWindow(node=works),
        "edit": ContextWindow(node=same),
        "draft": ContextWindow(children=(fails, same)),
    }

    has = {name: "## Example" in guide_text(replace(cuda, window=w)) for name, w in shown.items()}

    assert ["first", "failed", "repair", "other language"] == [name for name in has if has[name]]
    cut = replace(cuda, window=shown["draft"], cuts={1: "outcome"})
    assert "## Example" in guide_text(cut), "the candidate's source was left out for length"


def test_an_attempt_that_left_no_source_is_listed_without_one() -> None:
    assert (
        "- Attempt 3, from the reference\n  Result: unusable: the reply holds no code block"
    ) == attempts(unusable(3), with_source=True)


# Evidence.


def test_a_status_is_named_once() -> None:
    assert outcome_text(working(1), brief()).startswith("correct, 0.5 ms")
    assert "unusable: the reply holds no code block" == outcome_text(unusable(1), brief())


def test_eagers_time_beside_an_attempt_is_named_if_it_differs_from_the_references() -> None:
    node = working(1)
    assert isinstance(node.evaluation, Correct)
    references = {"eager": measurement(1.5)}
    found = node.evaluation.model_copy(update={"references": references})

    said = outcome_text(node.model_copy(update={"evaluation": found}), brief())

    assert said.startswith("correct, 0.5 ms (eager beside it 1.50 ms): 3.00x vs eager")


def test_the_evidence_is_the_error_the_warnings_and_what_was_printed() -> None:
    text = evidence_text(samples.tree().node(6))

    assert text.startswith("crashed: in the verify phase: CUDA error: an illegal memory access")
    assert "Note: the build took 170 of 180 s" in text
    assert text.endswith("It printed:\n```\nfirst line of output\nlast line of output\n```")


def test_a_long_output_is_cut_to_its_end() -> None:
    output = "begin\n" + "x" * 5000 + "\nthe end\n"
    node = samples.attempt(1, ROOT, Incorrect(error="wrong", output=output), "Try.")

    text = evidence_text(node)

    assert "the end\n```" in text
    assert "begin" not in text
    assert len(text) < 4100


def test_what_a_correct_candidate_printed_is_no_evidence() -> None:
    quiet = correct(0.5).model_copy(update={"output": "hello"})

    assert "hello" not in evidence_text(samples.attempt(1, ROOT, quiet, "Try."))


def test_the_selected_node_is_said_to_repeat_a_source() -> None:
    repeated = samples.repeated().node(8)

    said = "Its source repeats attempt 6 unchanged; this time change the code.\n"
    assert evidence_text(repeated).startswith(said)
    assert said in start(repeated)
    assert "repeats" not in start(samples.tree().node(6))


def test_no_output_is_not_mentioned() -> None:
    assert "printed" not in evidence_text(samples.attempt(1, ROOT, failure("incorrect"), "Try."))


# Prompt files.


def test_a_missing_fact_is_an_error() -> None:
    with pytest.raises(KeyError, match="fault"):
        fill("again", {})


def test_facts_are_filled_in_unchanged() -> None:
    assert "costs $5, or ${fault}" in fill("again", {"fault": "costs $5, or ${fault}"})


def test_every_prompt_file_is_used() -> None:
    """The snapshots are every kind of prompt; the last words of each file stand in one of them."""
    snapshots = [path.read_text("utf-8") for path in samples.SNAPSHOTS.glob("*.md")]
    prompts = [
        entry
        for entry in files("stark.agents").joinpath("prompts").iterdir()
        if entry.name.endswith(".md")
    ]

    assert len(prompts) >= 8
    for prompt in prompts:
        *_, last = (
            part for part in re.split(r"\$\w+|\n", prompt.read_text("utf-8")) if part.strip()
        )
        assert any(last in text for text in snapshots), prompt.name


def test_the_start_says_when_little_is_left_to_gain() -> None:
    near, far = (working(1, latency_ms=share * ROOFLINE.floor_ms) for share in (1.03, 1.5))

    said = "It is within 3 % of the least time possible"
    assert said in start(near)
    assert "least time possible" not in start(far)
