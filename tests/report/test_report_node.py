from __future__ import annotations

import pytest
from report_samples import RUN, reference
from rich.console import Console, RenderableType

from stark.core.candidate import Candidate
from stark.core.errors import UsageError
from stark.core.evaluation import STATUSES, Correct, explain
from stark.core.node import Node
from stark.core.plan import Anchor, Edit, Plan
from stark.report.node import evaluation_table, node_of, node_text
from stark.report.view import RunView
from stark.testing.nodes import PROFILE, correct, failure, working

ANCHORED = Node(
    id=2,
    parent=1,
    action="improve",
    role="code",
    plan=Plan(
        action="edit",
        strategy="Unroll the loop.",
        anchors=(Anchor(name="loop", first_line=1, last_line=1, instruction="Unroll by four."),),
    ),
    edits=(Edit(anchor="loop", before="# attempt 1", after="# attempt 2, unrolled"),),
    candidate=Candidate(language="triton", source="# attempt 2, unrolled\nclass ModelNew: ...\n"),
    evaluation=correct(0.25).model_copy(
        update={"output": "compiled\n", "warnings": ("It warns.",), "sandbox": ("seccomp",)}
    ),
)
VIEW = RunView(RUN, reference(), (working(1), ANCHORED), ())


def text(renderable: RenderableType) -> str:
    console = Console(width=200, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_anchors_come_with_their_edits() -> None:
    said = text(node_text(VIEW, ANCHORED))

    for part in ("anchor loop", "lines 1 to 1", "Unroll by four.", "+# attempt 2, unrolled"):
        assert part in said
    assert 2 == said.count("-# attempt 1")


def test_output_and_warnings_are_shown() -> None:
    said = text(node_text(VIEW, ANCHORED))

    assert "end of its output" in said and "compiled" in said and "It warns." in said
    assert "seccomp" in said


def test_a_profile_is_shown_with_what_binds() -> None:
    profiled = correct(0.5).model_copy(update={"profile": PROFILE})

    said = text(evaluation_table(profiled))

    assert "profile" in said and "bottleneck: latency: neither memory" in said
    assert "- 75% scale_kernel: 4096 blocks of 256 threads" in said
    assert "bottleneck" not in text(evaluation_table(correct(0.5)))


@pytest.mark.parametrize("status", [name for name in STATUSES if name != "correct"])
def test_every_failure_shows_its_evidence(status: str) -> None:
    evaluation = failure(status)

    said = text(evaluation_table(evaluation))

    assert status.replace("_", " ") in said
    assert explain(evaluation).split(": ")[-1].split()[-1] in said


def test_a_correct_one_shows_every_reference() -> None:
    evaluation = correct(0.5)
    assert isinstance(evaluation, Correct)

    said = text(evaluation_table(evaluation))

    assert "2.00x vs eager" in said and "1.60x vs compile" in said


def test_the_root_is_no_attempt() -> None:
    with pytest.raises(UsageError, match="has no finished attempt 0; it has 1 to 2"):
        node_of(VIEW, 0)
