"""How fast a candidate is: timed in turns with the references, looked at while it is, and held to what is possible."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Rejected
from stark.evaluator.judge.attempt import Attempt, OnTheClock, Verdict
from stark.evaluator.judge.contents import TimedContents
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.roofline import implausible
from stark.evaluator.judge.running import EAGER, PROMOTED, ReferenceDied, RunningReference
from stark.evaluator.judge.timing.program import Timed, TimedProcess
from stark.evaluator.judge.timing.rounds import time_together
from stark.evaluator.judge.trials import Expected
from stark.evaluator.judge.verify.oracle import ExpectedTensor
from stark.evaluator.judge.verifying import Verified, check_results


def measure(
    attempt: Attempt, child: OnTheClock, prepared: PreparedReference, verified: Verified
) -> Correct:
    """Time it in rounds with the running references, on inputs that change before every sample. Raises Verdict."""
    kind, limits = prepared.device.type, attempt.limits

    limit_s = limits.time_s + prepared.slack_s

    def timed(program: TimedProcess) -> Timed:
        return Timed(program, kind, limit_s, prepared.slots)

    def check(slot: int, drawn: Drawn, expected: list[ExpectedTensor], odd: object) -> None:
        check_results(prepared, slot, Expected(drawn, expected), odd, "while it was timed, ")

    with attempt.during("time", limit_s), attempt.beside():
        child.pause()  # one that crowds the machine must not keep a reference from starting
        running = _references(attempt, prepared)
        child.resume()
        contents = TimedContents(
            prepared, child, list(running.values()), limit_s, verified.budgets, check
        )
        with _sparing(running.values(), limit_s):
            candidate, references, warnings = time_together(
                timed(child),
                {name: timed(one) for name, one in running.items()},
                limits.timing_budget_s * len(running),
                random.SystemRandom(),
                contents,
            )
    doubts = implausible(candidate.latency_ms, references[EAGER].latency_ms, prepared.roofline)
    if doubts:
        with attempt.beside():
            _check_possible(candidate.latency_ms, prepared)
    return Correct(
        accuracy=verified.accuracy,
        candidate=candidate,
        references=references,
        device=prepared.sheet,
        roofline=prepared.roofline,
        effort=attempt.effort,
        warnings=(*warnings, *doubts, *prepared.trials.warnings),
    )


@contextmanager
def _sparing(running: Iterable[RunningReference], limit_s: float) -> Iterator[None]:
    """The references give back what they keep at hand once they were timed: it may be what the next candidate needs."""
    try:
        yield
    finally:
        with suppress(ReferenceDied):  # whoever asks it next is told
            for reference in running:
                reference.resume()
                reference.give_back(limit_s)


def _check_possible(latency_ms: float, prepared: PreparedReference) -> None:
    """End the evaluation where the results cannot have been written in this time."""
    least_ms = prepared.least_ms()
    if latency_ms < least_ms:
        raise Verdict(
            Rejected(
                rule="faster-than-memory",
                error=f"{latency_ms:.4g} ms a call, in which this device cannot even write the results ({least_ms:.4g} ms at the "
                "very least): they were not computed while it was timed",
            )
        )


def _references(attempt: Attempt, prepared: PreparedReference) -> dict[str, RunningReference]:
    """What the candidate is timed against: eager first, and at `promote` the compilers that can run the problem."""
    running = {EAGER: prepared.running(EAGER, attempt.limits)}
    names = PROMOTED[prepared.device.type] if attempt.effort == "promote" else []
    for name in names:
        try:
            running[name] = prepared.running(name, attempt.limits)
        except ProblemError as error:
            attempt.warnings.append(f"not measured against {name}: {error}")
    return running
