from __future__ import annotations

import pytest
from report_samples import RUN, reference, text_of
from rich.table import Table

from stark.core.call import Call, Cut, Fit, Message, Reply
from stark.core.candidate import Candidate
from stark.core.errors import UsageError
from stark.core.evaluation import STATUSES, Correct, Evaluation
from stark.core.node import Node
from stark.core.plan import Anchor, Edit, Plan
from stark.core.usage import Usage
from stark.explain.evaluation import explain
from stark.report.attempt_document import judgement, node_document
from stark.report.document import run_document
from stark.report.node import judgement_table, node_of, node_text
from stark.report.run import run_text
from stark.report.view import RunView
from support.nodes import PROFILE, correct, failure, working

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


def table_of(evaluation: Evaluation) -> Table:
    return judgement_table(judgement(evaluation, None))


def test_anchors_come_with_their_instructions_and_the_changes_once() -> None:
    said = text_of(node_text(node_document(VIEW, ANCHORED)))

    for part in ("anchor loop", "lines 1 to 1", "Unroll by four.", "+# attempt 2, unrolled"):
        assert part in said
    assert 1 == said.count("-# attempt 1")


def test_a_repair_names_no_lines_of_the_source_that_its_plan_was_made_for() -> None:
    repair = ANCHORED.model_copy(
        update={"id": 3, "parent": 2, "action": "debug", "role": "debug", "edits": ()}
    )
    view = RunView(RUN, reference(), (working(1), ANCHORED, repair), ())

    said = text_of(node_text(node_document(view, repair)))

    assert "plan of attempt 2: edit" in said and "changes to attempt 2" in said
    assert "anchor loop\nUnroll by four." in said
    assert "lines 1 to 1" not in said
    assert "plan: edit" in text_of(node_text(node_document(view, ANCHORED)))


def test_what_a_prompt_left_out_is_shown_with_its_call() -> None:
    fit = Fit(limit_tokens=900, tokens=880, cuts=(Cut(attempt=1, kept="outcome"),))
    asked = (Message(speaker="user", text="Improve it."),)
    cut = Call(
        attempt=2,
        turn=0,
        role="code",
        messages=asked,
        reply=Reply(text="Done.", model="scripted", usage=Usage()),
        fit=fit,
    )
    whole = cut.model_copy(update={"turn": 1, "fit": None})
    view = RunView(RUN, reference(), (working(1), ANCHORED), (cut, whole))

    said = text_of(node_text(node_document(view, ANCHORED)))

    assert 1 == said.count("cut to about 880 tokens (limit 900); left out: the source of 1")
    assert "1. code  scripted: 11 characters sent, 5 received" in said
    assert "1 of 2 prompts were cut to fit 32,000 tokens" in text_of(
        run_text(run_document(view), 100)
    )


def test_a_call_lists_ends_of_sources_that_were_cut_and_attempts_that_were_named() -> None:
    asked = "- Attempt 1: wide loads\n```python\nimport torch\n# … 56 more lines\n```\nattempt 7 differs"
    call = Call(
        attempt=2,
        turn=0,
        role="code",
        messages=(Message(speaker="user", text=asked),),
        reply=Reply(text="Done.", model="scripted", usage=Usage()),
    )

    document = node_document(RunView(RUN, reference(), (working(1), ANCHORED), (call,)), ANCHORED)

    assert ("56 lines at the end of attempt 1's source cut",) == document.cuts
    assert (1,) == document.told_of
    assert node_document(VIEW, ANCHORED).told_of is None


def test_an_attempt_that_asked_no_model_has_nothing_to_say_of_one() -> None:
    assert "models" not in text_of(node_text(node_document(VIEW, ANCHORED)))


def test_output_and_warnings_are_shown() -> None:
    said = text_of(node_text(node_document(VIEW, ANCHORED)))

    assert "end of the output" in said and "compiled" in said and "It warns." in said
    assert "seccomp" in said


def test_a_profile_is_shown_with_what_binds() -> None:
    profiled = correct(0.5).model_copy(update={"profile": PROFILE})

    said = text_of(table_of(profiled))

    assert "profile" in said and "bottleneck: latency in scale_kernel" in said
    assert "- 75% scale_kernel: 4096 blocks of 256 threads" in said
    assert "bottleneck" not in text_of(table_of(correct(0.5)))


@pytest.mark.parametrize("status", [name for name in STATUSES if name != "correct"])
def test_every_failure_shows_its_evidence(status: str) -> None:
    evaluation = failure(status)

    said = text_of(table_of(evaluation))

    assert status.replace("_", " ") in said
    assert explain(evaluation).split(": ")[-1].split()[-1] in said


def test_a_correct_one_shows_every_reference() -> None:
    evaluation = correct(0.5)
    assert isinstance(evaluation, Correct)

    said = text_of(table_of(evaluation))

    assert "2.00x vs eager" in said and "1.60x vs compile" in said


def test_the_root_is_no_attempt() -> None:
    with pytest.raises(UsageError, match="has no finished attempt 0; it has 1 to 2"):
        node_of(VIEW, 0)
