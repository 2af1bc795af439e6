"""Tracks a candidate through the phases of its evaluation: limits, time spent and failures.

`evaluate.py` defines the phases.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import (
    BuildFailed,
    Crashed,
    Evaluation,
    OutOfMemory,
    Phase,
    Rejected,
    TimedOut,
)
from stark.evaluator.judge.building.complaints import first_errors, is_compile_error
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.protocol import Evaluate


class Verdict(Exception):
    """Ends an evaluation early with its result."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation.status)
        self.evaluation = evaluation


class Cancelled(Exception):
    """Nobody waits for the evaluation any more."""


class Attempt:
    """The state of one evaluation: the candidate, its limits, the time spent and the warnings."""

    def __init__(self, request: Evaluate, patience: Patience) -> None:
        self.request, self.candidate = request, request.candidate
        self.limits, self.effort = request.limits, request.effort
        self.seconds: dict[Phase, float] = {}
        self.warnings: list[str] = []
        self.sandbox: tuple[str, ...] = ()
        self.output = ""
        """What the candidate's latest process printed."""

        self.phase: Phase = "static"
        self.limit_s = math.inf
        self.patience = patience
        """How long the judge still waits for the candidate's processes in this phase."""

    @contextmanager
    def during(self, phase: Phase, limit_s: float = math.inf) -> Iterator[None]:
        """Time a phase and turn a failure of the candidate's process into a Verdict. Raises Cancelled."""
        if self.patience.ended:
            raise Cancelled
        self.phase = phase
        self.limit_s = self.patience.left_s = limit_s
        begin = time.monotonic()
        try:
            yield
        except ChildFailed as failure:
            raise Verdict(self._evaluation_of(failure)) from failure
        finally:
            taken_s = time.monotonic() - begin
            # The last entry is the phase that ended last.
            self.seconds[phase] = round(self.seconds.pop(phase, 0.0) + taken_s, 4)

    @contextmanager
    def charging_memory(self) -> Iterator[None]:
        """Blame the candidate if the judge or a reference, which had enough memory before, runs out of it. Raises Verdict."""
        try:
            yield
        except (ProblemError, ReferenceDied, torch.OutOfMemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = "the candidate leaves the judge and the reference too little memory"
            found = OutOfMemory(phase=self.phase, error=f"{reason}; allocate less: {error}")
            raise Verdict(found) from error

    def _evaluation_of(self, failure: ChildFailed) -> Evaluation:
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
