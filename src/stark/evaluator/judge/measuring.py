"""Times a candidate in rounds with the references, checks results, rejects impossible times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Rejected
from stark.core.judging import Limits
from stark.core.measurement import Measurement
from stark.evaluator.judge.agreement import Check
from stark.evaluator.judge.attempt import Attempt, LimitedChild, Verdict
from stark.evaluator.judge.contents import TimedContents
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.roofline import implausible
from stark.evaluator.judge.processes.failures import ReferenceDied
from stark.evaluator.judge.running import EAGER, PROMOTE_REFERENCES, RunningReference
from stark.evaluator.judge.timing import gated, rounds
from stark.evaluator.judge.timing.program import Timed
from stark.evaluator.judge.trials import Expected
from stark.evaluator.judge.verify.oracle import ExpectedTensor
from stark.evaluator.judge.verifying import Verified, check_results
from stark.evaluator.judge.visit_contents import VisitContents


def measure(
    attempt: Attempt,
    child: LimitedChild,
    running: dict[str, RunningReference],
    prepared: PreparedReference,
    verified: Verified,
) -> Correct:
    """Time a verified candidate in rounds with the references, on fresh inputs in every round.

    Raises Verdict.
    """
    limits = attempt.limits
    limit_s = limits.time_s + prepared.slack_s

    def check(slot: int, drawn: Drawn, expected: list[ExpectedTensor], odd: object) -> None:
        check_results(
            prepared, slot, Expected(drawn, expected), odd, "while the candidate was timed, "
        )

    with attempt.during("time", limit_s), attempt.charging_memory():
        time_all = _time_on_cpu if prepared.device.type == "cpu" else _time_on_gpu
        with _freeing_memory(running.values(), limit_s):
            candidate, references, warnings = time_all(
                child, running, prepared, limits, verified.budgets, check
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


Times = tuple[Measurement, dict[str, Measurement], tuple[str, ...]]
"""The candidate's measurement, the references' by name, and warnings."""


def _time_on_cpu(
    child: LimitedChild,
    running: dict[str, RunningReference],
    prepared: PreparedReference,
    limits: Limits,
    budgets: Sequence[float],
    check: Check,
) -> Times:
    references = [(reference, reference.shared) for reference in running.values()]
    limit_s = limits.time_s + prepared.slack_s
    ours, theirs = gated.time_together(
        gated.Gated(child, limit_s),
        {name: gated.Gated(reference, limit_s) for name, reference in running.items()},
        limits.timing_budget_s * len(running),
        prepared.room.visit_calls,
        random.SystemRandom(),
        VisitContents(prepared, child, references, budgets, check),
    )
    return ours, theirs, ()


def _time_on_gpu(
    child: LimitedChild,
    running: dict[str, RunningReference],
    prepared: PreparedReference,
    limits: Limits,
    budgets: Sequence[float],
    check: Check,
) -> Times:
    limit_s = limits.time_s + prepared.slack_s
    return rounds.time_together(
        Timed(child, limit_s, prepared.slots),
        {name: Timed(reference, limit_s, prepared.slots) for name, reference in running.items()},
        limits.timing_budget_s * len(running),
        random.SystemRandom(),
        TimedContents(prepared, list(running.values()), limit_s, budgets, check),
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


def start_references(attempt: Attempt, prepared: PreparedReference) -> dict[str, RunningReference]:
    """Start the eager reference and, at effort `promote`, those compiled references that can run.

    Call it while no candidate runs, which could keep them from starting.
    """
    running = {EAGER: prepared.running(EAGER, attempt.limits)}
    names = PROMOTE_REFERENCES[prepared.device.type] if attempt.effort == "promote" else []
    for name in names:
        try:
            running[name] = prepared.running(name, attempt.limits)
        except ProblemError as error:
            attempt.warnings.append(f"not timed against the {name} reference: {error}")
    return running
