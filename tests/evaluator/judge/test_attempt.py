"""What a candidate's phase has time for, and what does not count as its time."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import OutOfMemory
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.processes.child import Child, Patience
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.protocol import Evaluate

LIMIT_S = 0.05


class AtOnce(Child):
    """A child that has answered by the time anybody looks."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.allowed_s: list[float] = []

    def send(self, request: dict[str, Any]) -> str:
        return "its name"

    def _receive(self, limit_s: float) -> dict[str, Any]:
        self.allowed_s.append(limit_s)
        return {"ok": True, "nonce": "its name"}


def asked(limits: Limits) -> Attempt:
    candidate = Candidate(language="cpp", source="class ModelNew: ...")
    problem = Problem(name="x", source="")
    return Attempt(
        Evaluate(id="1", problem=problem, candidate=candidate, limits=limits), Patience()
    )


def test_what_the_judge_does_between_requests_is_not_its_time() -> None:
    attempt = asked(Limits(verify_s=LIMIT_S))
    child = AtOnce(attempt.patience)

    with attempt.during("verify", LIMIT_S):
        child.ask({"do": "call"})
        time.sleep(2 * LIMIT_S)
        child.ask({"do": "call"})

    assert min(child.allowed_s) > LIMIT_S / 2


def test_a_candidate_beside_which_the_judge_has_no_memory_is_out_of_memory() -> None:
    attempt = asked(Limits())

    with pytest.raises(Verdict) as ended, attempt.during("verify"), attempt.charging_memory():
        raise torch.OutOfMemoryError("none left")
    with pytest.raises(ProblemError, match="line 3"), attempt.charging_memory():
        raise ProblemError("line 3: it raises")
    with pytest.raises(ReferenceDied, match="killed"), attempt.charging_memory():
        raise ReferenceDied("killed", ChildFailed("crashed", "killed"))

    assert isinstance(ended.value.evaluation, OutOfMemory)
    assert "verify" == ended.value.evaluation.phase


def test_a_reference_that_has_no_memory_beside_a_candidate_blames_the_candidate() -> None:
    attempt = asked(Limits())

    with pytest.raises(Verdict) as ended, attempt.during("time"), attempt.charging_memory():
        raise ReferenceDied("failed", ChildFailed("out_of_memory", "tried to allocate 40 GB"))

    assert isinstance(ended.value.evaluation, OutOfMemory)
    assert "leaves the judge and the reference too little memory" in ended.value.evaluation.error
