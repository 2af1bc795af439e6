"""One candidate on its way through the phases: how long each took, and what a failure in it means.

Knows no phase: `evaluate.py` has them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import (
    BuildFailed,
    Crashed,
    Effort,
    Evaluation,
    OutOfMemory,
    Phase,
    Rejected,
    TimedOut,
)
from stark.core.judging import Limits
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.building.compile_errors import is_compile_error
from stark.evaluator.judge.building.complaints import first_errors
from stark.evaluator.judge.problem.twin import ran_out
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.protocol import Evaluate


class Verdict(Exception):
    """Ends an evaluation early with what was decided."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation.status)
        self.evaluation = evaluation


class Attempt:
    """One candidate on its way through the phases."""

    def __init__(self, request: Evaluate) -> None:
        self.candidate: Candidate = request.candidate
        self.limits: Limits = request.limits
        self.effort: Effort = request.effort
        self.seconds: dict[Phase, float] = {}
        self.warnings: list[str] = []
        self.sandbox: tuple[str, ...] = ()
        self.phase: Phase = "static"
        self.limit_s = math.inf
        self.asked_s = 0.0
        """How long the candidate's process was waited for in this phase; the judge's own work does not count."""

    @contextmanager
    def during(self, phase: Phase, limit_s: float = math.inf) -> Iterator[None]:
        """Time a phase, and turn a child's failure in it into the verdict."""
        self.phase, self.limit_s, self.asked_s = phase, limit_s, 0.0
        begin = time.monotonic()
        try:
            yield
        except ChildFailed as failure:
            raise Verdict(self._failed(failure)) from failure
        finally:
            self.seconds[phase] = round(time.monotonic() - begin, 4)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """What the judge has too little memory for in here, it had enough for before the candidate was there: that is its verdict."""
        try:
            yield
        except (ProblemError, torch.OutOfMemoryError) as error:
            if not ran_out(error):
                raise
            reason = "beside what it holds, too little memory is left to work out what is expected"
            verdict = Verdict(OutOfMemory(phase=self.phase, error=f"{reason}: {error}"))
            raise verdict from error

    def _failed(self, failure: ChildFailed) -> Evaluation:
        match failure.kind:
            case "timed_out":
                return TimedOut(phase=self.phase, limit_s=round(self.limit_s, 1))
            case "out_of_memory":
                return OutOfMemory(phase=self.phase, error=failure.error)
            case "crashed" if is_compile_error(failure.types, failure.error):
                return BuildFailed(error=failure.error)
            case "crashed":
                error = first_errors(failure.error, self.candidate.source)
                return Crashed(phase=self.phase, error=error)
            case "forged":
                return Rejected(rule="forged-answer", error=failure.error)
            case "restless":
                return Rejected(rule="runs-while-stopped", error=failure.error)


class OnTheClock:
    """A candidate's child, whose answers of one phase have the phase's limit together."""

    def __init__(self, child: Child, attempt: Attempt) -> None:
        self._child, self._attempt = child, attempt
        self.layers = child.layers
        self.pause, self.resume, self.close = child.pause, child.resume, child.close
        self.spread, self.settle, self.loosen = child.spread, child.settle, child.loosen
        self.copy_out, self.waits_s, self.core = child.copy_out, child.waits_s, child.core

    def ask(self, request: Message, limit_s: float = math.inf) -> Message:
        """Its answer. Raises ChildFailed."""
        return self._answer(self._child.send(request), limit_s)

    @contextmanager
    def asked(self, request: Message, limit_s: float = math.inf) -> Iterator[Message]:
        """Gives its answer, which is there once the block is left: what stands in the block is done meanwhile.

        Only what is waited for after that counts as its time. Raises ChildFailed.
        """
        answer: Message = {}
        nonce = self._child.send(request)
        with self._child.watched():
            yield answer
        answer.update(self._answer(nonce, limit_s))

    def _answer(self, nonce: str, limit_s: float) -> Message:
        left_s = max(self._attempt.limit_s - self._attempt.asked_s, 1e-3)
        begin = time.monotonic()
        try:
            return self._child.answer(nonce, min(left_s, limit_s))
        finally:
            self._attempt.asked_s += time.monotonic() - begin
