from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from stark.core.candidate import Candidate
from stark.core.evaluation import STATUSES
from stark.core.node import ROOT, Node, Selection
from support.nodes import correct, failing, failure, unusable, working

CANDIDATE = Candidate(language="triton", source="class ModelNew: ...\n")


def node(**changes: Any) -> Node:
    values = {
        "id": 2,
        "parent": 1,
        "action": "improve",
        "role": "code",
        "candidate": CANDIDATE,
        "evaluation": failure("crashed"),
    }
    return Node.model_validate(values | changes)


@pytest.mark.parametrize("status", STATUSES)
def test_a_node_lacks_a_candidate_exactly_when_its_reply_was_unusable(status: str) -> None:
    evaluation = correct(0.5) if status == "correct" else failure(status)
    fitting, wrong = (None, CANDIDATE) if status == "unusable" else (CANDIDATE, None)

    assert status == node(evaluation=evaluation, candidate=fitting).evaluation.status
    with pytest.raises(ValidationError, match="no candidate if and only if"):
        node(evaluation=evaluation, candidate=wrong)


@pytest.mark.parametrize("parent", [2, 3])
def test_a_node_starts_from_an_earlier_one(parent: int) -> None:
    with pytest.raises(ValidationError, match="parent must have a lower id"):
        node(parent=parent)


@pytest.mark.parametrize("changes", [{"id": 0}, {"parent": -1}, {"action": "invent"}])
def test_what_is_no_node_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        node(**changes)


def test_a_node_that_works_has_a_latency_and_a_speedup() -> None:
    found = working(1, latency_ms=0.25)

    assert found.works
    assert pytest.approx(0.25) == found.latency_ms
    assert pytest.approx(4.0) == found.speedup_vs_eager


@pytest.mark.parametrize("failed", [failing(1), unusable(1)])
def test_a_node_that_failed_has_neither(failed: Node) -> None:
    assert (False, None, None) == (failed.works, failed.latency_ms, failed.speedup_vs_eager)


def test_a_node_comes_back_from_json_as_it_was() -> None:
    for before in (working(3, 1), failing(3, 1, "timed_out", "debug"), unusable(1)):
        assert before == Node.model_validate_json(before.model_dump_json())


def test_a_selection_starts_from_the_root_or_an_attempt() -> None:
    assert ROOT == Selection(parent=ROOT, action="improve").parent
    with pytest.raises(ValidationError):
        Selection(parent=-1, action="improve")


def test_candidates_are_known_by_language_and_source() -> None:
    same = Candidate(language="triton", source=CANDIDATE.source)
    others = [
        Candidate(language="cuda", source=CANDIDATE.source),
        Candidate(language="triton", source=""),
    ]

    assert CANDIDATE.digest == same.digest
    assert 3 == len({CANDIDATE.digest, *(other.digest for other in others)})
    assert (
        Candidate(language="ab", source="c").digest != Candidate(language="a", source="bc").digest
    )
