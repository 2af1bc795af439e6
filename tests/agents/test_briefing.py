from __future__ import annotations

import re
from importlib.resources import files

import agent_samples as samples
import pytest

from stark.agents.anchors import check_anchors
from stark.agents.briefing import (
    OTHER_SOURCE_LINES,
    attempts_text,
    evidence_text,
    fill,
    history_text,
    leaders_text,
    numbered,
    outcome_text,
    start_text,
)
from stark.agents.window import ContextWindow
from stark.core.candidate import Candidate
from stark.core.evaluation import Incorrect
from stark.core.node import ROOT, Node
from stark.core.plan import Anchor
from stark.testing.nodes import PROFILE, ROOFLINE, correct, failure, unusable, working


def with_source(node: Node, source: str) -> Node:
    return node.model_copy(update={"candidate": Candidate(language="triton", source=source)})


def test_the_selected_node_is_told_with_its_profile_and_other_attempts_without() -> None:
    node = samples.tree().node(1)
    profiled = correct(0.5).model_copy(update={"profile": PROFILE})
    node = node.model_copy(update={"evaluation": profiled})

    assert "\n- 75% scale_kernel: 4096 blocks" in start_text(node, numbered_lines=True)
    assert "scale_kernel" not in attempts_text([node], with_source=False)


# Sources.


def test_lines_are_numbered_as_anchors_name_them() -> None:
    text = numbered(samples.SOURCE)

    rows = text.split("\n")
    assert samples.SOURCE.split("\n")[:-1] == [row.split(" | ", 1)[1] for row in rows]
    assert list(range(1, 16)) == [int(row.split(" | ")[0]) for row in rows]
    assert " 1 | import torch" == rows[0]


@pytest.mark.parametrize("odd", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_only_a_newline_begins_a_numbered_line(odd: str) -> None:
    """Else every number below would be off, and a plan would point beside what it means."""
    source = f"import torch\n# odd{odd}comment\nx = 1\n"

    assert ["1 | import torch", f"2 | # odd{odd}comment", "3 | x = 1"] == numbered(source).split(
        "\n"
    )
    check_anchors(source, [Anchor(name="last", first_line=3, last_line=3, instruction="do it")])


def test_a_source_that_lacks_its_last_newline_is_numbered_alike() -> None:
    assert numbered("a\nb\n") == numbered("a\nb")


def test_what_led_to_the_start_is_told_in_a_line_each() -> None:
    tree = samples.tree()
    node, history = tree.node(5), tree.path(5)[:-1]

    told = start_text(node, True, history_text(history))

    line = (
        "- attempt 2, from the reference: One block per row. (incorrect: output 0: relative error"
    )
    assert f"\nWhat led to it:\n{line}" in told
    assert "" == history_text([])
    assert "What led to it:\n(1 left out for length.)" == history_text(history, {2: "nothing"})
    assert history_text(history) == history_text(history, {2: "line"})


def test_the_start_is_the_source_its_purpose_and_how_it_fared() -> None:
    node = samples.tree().node(1)

    plain, with_numbers = start_text(node, False), start_text(node, True)

    for text in (plain, with_numbers):
        assert text.startswith("Attempt 1: correct, 0.5 ms: 2.00x vs eager")
        assert "It was meant to: One thread per element." in text
    assert "\n11 | class ModelNew(torch.nn.Module):\n" in with_numbers
    assert "\nclass ModelNew(torch.nn.Module):\n" in plain


# Other attempts.


def test_attempts_are_listed_with_their_origin_plan_and_outcome() -> None:
    tree = samples.tree()

    text = attempts_text([tree.node(4), tree.node(5), tree.node(6)], with_source=False)

    assert [
        "- Attempt 4, from attempt 1: Use float4.",
        "  Result: build_failed: line 5: expected ';'",
        "",
        "- Attempt 5, a repair of attempt 2: One block per row.",
    ] == text.split("\n")[:4]
    assert "- Attempt 6, from the reference: A persistent kernel." in text
    assert "```" not in text


def test_no_attempts_are_told_in_words() -> None:
    assert "Nothing yet." == attempts_text([], with_source=True)
    assert "None besides what is shown below." == leaders_text(ContextWindow(), with_source=True)


def test_leaders_are_listed_as_other_attempts_are() -> None:
    node = working(1)

    assert attempts_text([node], True) == leaders_text(ContextWindow(leaderboard=(node,)), True)


def test_a_long_source_of_another_attempt_is_cut() -> None:
    lines = [f"x{number} = {number}" for number in range(OTHER_SOURCE_LINES + 5)]

    fits = attempts_text([with_source(working(1), "\n".join(lines[:-5]))], with_source=True)
    cut = attempts_text([with_source(working(1), "\n".join(lines))], with_source=True)

    assert "more lines" not in fits
    assert lines[OTHER_SOURCE_LINES - 1] in fits.split("\n")
    assert "# … 5 more lines" in cut
    assert lines[OTHER_SOURCE_LINES - 1] in cut.split("\n")
    assert lines[OTHER_SOURCE_LINES] not in cut.split("\n")


def test_an_attempt_that_left_no_source_is_listed_without_one() -> None:
    text = attempts_text([unusable(3)], with_source=True)

    assert "- Attempt 3, from the reference: write a fast candidate\n" in text
    assert "  Result: unusable: the reply holds no code block" in text
    assert "```" not in text


# Evidence.


def test_a_status_is_said_once() -> None:
    assert outcome_text(working(1)).startswith("correct, 0.5 ms")
    assert "unusable: the reply holds no code block" == outcome_text(unusable(1))


def test_the_evidence_is_the_error_the_warnings_and_what_was_printed() -> None:
    text = evidence_text(samples.tree().node(6))

    assert text.startswith("crashed: in the verify phase: CUDA error: an illegal memory access")
    assert "Note: the build took 170 of 180 s" in text
    assert text.endswith("It printed:\n```\nfirst line of output\nlast line of output\n```")


def test_the_end_of_a_long_output_is_what_is_told() -> None:
    output = "begin\n" + "x" * 5000 + "\nthe end\n"
    node = samples.attempt(1, ROOT, Incorrect(error="wrong", output=output), "Try.")

    text = evidence_text(node)

    assert "the end\n```" in text
    assert "begin" not in text
    assert len(text) < 4100


def test_what_a_correct_candidate_printed_is_no_evidence() -> None:
    quiet = correct(0.5).model_copy(update={"output": "hello"})

    assert "hello" not in evidence_text(samples.attempt(1, ROOT, quiet, "Try."))


def test_without_output_nothing_is_said_of_it() -> None:
    assert "printed" not in evidence_text(samples.attempt(1, ROOT, failure("incorrect"), "Try."))


# Prompt files.


def test_a_fact_that_nobody_gave_is_an_error() -> None:
    with pytest.raises(KeyError, match="fault"):
        fill("again", {})


def test_what_is_filled_in_is_left_as_it_is() -> None:
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


def test_a_planner_is_told_when_little_is_left_to_gain() -> None:
    near, far = (working(1, latency_ms=share * ROOFLINE.floor_ms) for share in (1.03, 1.5))

    said = "It is within 3 % of the least time possible"
    assert said in start_text(near, numbered_lines=True)
    assert "least time possible" not in start_text(far, numbered_lines=True)


def test_what_the_compiler_wrote_is_told_as_such() -> None:
    node = working(1).model_copy(update={"role": "compiler", "plan": None})

    for text in (start_text(node, numbered_lines=False), attempts_text([node], with_source=False)):
        assert "be what torch.compile generates for the reference" in text
