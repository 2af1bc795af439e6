"""Times a candidate in rounds with the references, checks results, rejects impossible times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Rejected
from stark.evaluator.judge.attempt import Attempt, LimitedChild, Verdict
from stark.evaluator.judge.contents import TimedContents
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.roofline import implausible
from stark.evaluator.judge.running import EAGER, PROMOTE_REFERENCES, ReferenceDied, RunningReference
from stark.evaluator.judge.timing.program import Timed, TimedProcess
from stark.evaluator.judge.timing.rounds import time_together
from stark.evaluator.judge.trials import Expected
from stark.evaluator.judge.verify.oracle import ExpectedTensor
from stark.evaluator.judge.verifying import Verified, check_results


def measure(
    attempt: Attempt, child: LimitedChild, prepared: PreparedReference, verified: Verified
) -> Correct:
    """Time a verified candidate in rounds with the references, on fresh inputs in every round.

    Raises Verdict.
    """
    kind, limits = prepared.device.type, attempt.limits

    limit_s = limits.time_s + prepared.slack_s

    def timed(program: TimedProcess) -> Timed:
        return Timed(program, kind, limit_s, prepared.slots)

    def check(slot: int, drawn: Drawn, expected: list[ExpectedTensor], odd: object) -> None:
        check_results(
            prepared, slot, Expected(drawn, expected), odd, "while the candidate was timed, "
        )

    with attempt.during("time", limit_s), attempt.charging_memory():
        child.pause()  # a candidate's busy threads must not delay the start of a reference
        running = _references(attempt, prepared)
        child.resume()
        contents = TimedContents(
            prepared, child, list(running.values()), limit_s, verified.budgets, check
        )
        with _freeing_memory(running.values(), limit_s):
            candidate, references, warnings = time_together(
                timed(child),
                {name: timed(one) for name, one in running.items()},
                limits.timing_budget_s * len(running),
                random.SystemRandom(),
                contents,
            )
    doubts = implausible(candidate.latency_ms, references[EAGER].latency_ms, prepared.roofline)
    if doubts:
        with attempt.charging_memory():
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
def _freeing_memory(running: Iterable[RunningReference], limit_s: float) -> Iterator[None]:
    """Make the references free their cached memory after timing, because the next candidate may need it."""
    try:
        yield
    finally:
        with suppress(ReferenceDied):  # its next request raises again
            for reference in running:
                reference.resume()
                reference.give_back(limit_s)


def _check_possible(latency_ms: float, prepared: PreparedReference) -> None:
    """Raise Verdict if writing a call's results to memory takes longer than `latency_ms`."""
    least_ms = prepared.least_ms()
    if latency_ms < least_ms:
        raise Verdict(
            Rejected(
                rule="faster-than-memory",
                error=f"a call took {latency_ms:.4g} ms, but writing its results alone takes this "
                f"device at least {least_ms:.4g} ms: they were not computed in the timed region; "
                "compute them in every call",
            )
        )


def _references(attempt: Attempt, prepared: PreparedReference) -> dict[str, RunningReference]:
    """Start the eager reference and, at effort `promote`, those compiled references that can run."""
    running = {EAGER: prepared.running(EAGER, attempt.limits)}
    names = PROMOTE_REFERENCES[prepared.device.type] if attempt.effort == "promote" else []
    for name in names:
        try:
            running[name] = prepared.running(name, attempt.limits)
        except ProblemError as error:
            attempt.warnings.append(f"not timed against the {name} reference: {error}")
    return running
