"""One evaluation, step by step: static look, build, load, verify, time, verdict.

Every way in which a candidate can fail becomes its evaluation here; anything else that goes wrong is
raised, and is ours.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from stark.core.errors import ProblemError, UsageError
from stark.core.evaluation import (
    Accuracy,
    BuildFailed,
    Correct,
    Crashed,
    Evaluation,
    Incorrect,
    OutOfMemory,
    Rejected,
    evidence,
)
from stark.evaluator.judge.attempt import Attempt, OnTheClock, Verdict
from stark.evaluator.judge.building.builds import Builds, Built, complaint, processor_s
from stark.evaluator.judge.contents import TimedContents
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.roofline import implausible
from stark.evaluator.judge.problem.twin import ran_out
from stark.evaluator.judge.processes.children import (
    Allowance,
)
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.profiling import ProfileRefused, profile_limit_s, take_profile
from stark.evaluator.judge.running import (
    EAGER,
    PROMOTED,
    ReferenceDied,
    RunningReference,
    load_request,
    visible,
)
from stark.evaluator.judge.timing.program import Asked, Timed
from stark.evaluator.judge.timing.rounds import time_together
from stark.evaluator.judge.trials import Expected, Trial
from stark.evaluator.judge.verify.oracle import Comparison, ExpectedTensor, compare, fault
from stark.evaluator.protocol import Evaluate
from stark.languages import language

REFERENCE_CALLS = 20
"""A phase's limit is over what so many calls of the reference take: a slow problem has slow candidates."""


def check_statically(attempt: Attempt) -> None:
    """The language's rules, in milliseconds and without running anything."""
    with attempt.during("static"):
        try:
            broken = language(attempt.candidate.language).check(attempt.candidate.source)
        except UsageError as error:  # no such language here
            broken = str(error)
    if broken is not None:
        raise Verdict(BuildFailed(error=broken))


def build(attempt: Attempt, builds: Builds) -> Built:
    """Import the candidate once without a device, so that everything it compiles is compiled."""
    attempt.sandbox = builds.layers
    with attempt.during("build", attempt.limits.build_s):
        built = builds.build(attempt.candidate, attempt.limits)
    if built.error is not None:
        raise Verdict(BuildFailed(error=built.error, output=built.output))
    return built


def run(attempt: Attempt, built: Built, prepared: PreparedReference) -> Evaluation:
    """Load, verify and time a candidate whose build is ready. The caller holds the device."""
    child = _start(attempt, built, prepared)
    attempt.sandbox = child.layers
    try:
        _load(attempt, child, built.source, prepared)
        verified = _verify(attempt, child, prepared)
        correct = _time(attempt, child, prepared, verified)
        evaluation: Evaluation = _profile(attempt, child, built, correct)
    except Verdict as verdict:
        evaluation = verdict.evaluation
    finally:
        output = child.close()
    if isinstance(evaluation, BuildFailed):  # it compiles when it is first called
        error = complaint(built, evaluation.error, output, attempt.candidate.source)
        evaluation = BuildFailed(error=error)
    return finished(attempt, evaluation, output)


def generalizes(
    request: Evaluate, built: Built, elsewhere: Iterable[tuple[str, PreparedReference]]
) -> tuple[bool | None, tuple[str, ...]]:
    """Whether a correct candidate is correct at other shapes too, and a sentence for each where it is not.

    None if there are no others. `elsewhere` gives each with its change in words.
    """
    tried, failures = 0, []
    for change, prepared in elsewhere:
        attempt = Attempt(request.model_copy(update={"effort": "search"}))
        child = _start(attempt, built, prepared)
        try:
            _load(attempt, child, built.source, prepared)
            _verify(attempt, child, prepared)
        except Verdict as verdict:
            if isinstance(verdict.evaluation, OutOfMemory):
                continue  # it may be the problem itself, which is there as well, that leaves too little
            failures.append(f"shape-specialized: {verdict.evaluation.status} with {change}")
        finally:
            child.close()
        tried += 1
    return (not failures if tried else None), tuple(failures)


def finished(attempt: Attempt, evaluation: Evaluation, output: str = "") -> Evaluation:
    """The evaluation with what every status carries. Its text is the candidate's in part, and is shown on screens."""
    update: dict[str, object] = {
        "seconds": attempt.seconds,
        "output": printable(output or evaluation.output),
        "sandbox": attempt.sandbox,
        "warnings": tuple(map(printable, (*attempt.warnings, *evaluation.warnings))),
    }
    if isinstance(evaluation, BuildFailed | Crashed | Incorrect | OutOfMemory | Rejected):
        update["error"] = printable(evaluation.error)
    return evaluation.model_copy(update=update)


def _start(attempt: Attempt, built: Built, prepared: PreparedReference) -> OnTheClock:
    limits = attempt.limits
    language_of_it = language(attempt.candidate.language)
    extra = language_of_it.environment(built.work, architecture_of(prepared))
    on_cpu = prepared.device.type == "cpu"
    arena = prepared.shared.arena
    slack_s = 3 * REFERENCE_CALLS * prepared.reference_s
    child = prepared.forkserver.fork(
        Allowance(
            built.work,
            child_environment(built.work, {**extra, "CUDA_VISIBLE_DEVICES": visible()}),
            memory_gb=limits.memory_gb + arena.size / 1e9,
            output_kb=limits.output_kb,
            readable=(built.source,),
            bounds_address_space=on_cpu,
            cpu_s=processor_s(limits.load_s + limits.verify_s + limits.time_s + slack_s),
            on_device=not on_cpu,
        ),
        arena.descriptor,
    )
    return OnTheClock(child, attempt)


def _load(attempt: Attempt, child: OnTheClock, path: Path, prepared: PreparedReference) -> None:
    with attempt.during("load", attempt.limits.load_s):
        prepared.shared.fill_weights()
        prepared.settle()
        prepared.shared.attach(child, prepared.flush_bytes, attempt.limits.load_s)
        child.ask({"do": "import", "path": str(path), "class": "ModelNew"})
        loaded = child.ask(load_request("ModelNew"))
    if loaded.get("by_order"):
        attempt.warnings.append(
            "ModelNew names its weights otherwise than the reference; they were matched by order"
        )
    for found, meaning in (
        ("unexpected", "ModelNew lacks weights that the reference has"),
        ("missing", "ModelNew has weights that the reference lacks"),
    ):
        names = loaded.get(found)
        if isinstance(names, list) and names:
            attempt.warnings.append(
                f"{meaning} ({', '.join(str(name)[:100] for name in names[:20])}); "
                "weights are matched by name"
            )


@dataclass(frozen=True)
class Verified:
    """What a candidate that is right on every trial was held to."""

    accuracy: Accuracy
    budgets: tuple[float, ...]
    """Of each result, on inputs as the problem draws them: the reference's own error decides, and nothing a candidate does."""


def _verify(attempt: Attempt, child: OnTheClock, prepared: PreparedReference) -> Verified:
    slack_s = REFERENCE_CALLS * prepared.reference_s
    with attempt.during("verify", attempt.limits.verify_s + slack_s), _beside(attempt):
        found = [
            (trial, comparison)
            for trial in prepared.trials.for_effort(attempt.effort)
            for comparison in _verify_on(trial, attempt, child, prepared)
        ]
    results = len(prepared.signature.outputs) + len(prepared.program.changes)
    usual = [comparison.budget for trial, comparison in found if trial.regime is None]
    budgets = tuple(max(usual[index::results]) for index in range(results))
    return Verified(_accuracy([comparison for _, comparison in found], prepared), budgets)


def _accuracy(comparisons: list[Comparison], prepared: PreparedReference) -> Accuracy:
    worst = max(comparisons, key=lambda found: found.errors.relative_rms / (found.budget or 1.0))
    return Accuracy(
        relative_rms=worst.errors.relative_rms,
        budget=worst.budget,
        reference_relative_rms=worst.reference_errors.relative_rms,
        allclose=all(found.allclose for found in comparisons),
        oracle="float64" if prepared.trials.oracle_is_float64 else "float32",
    )


def _verify_on(
    trial: Trial, attempt: Attempt, child: OnTheClock, prepared: PreparedReference
) -> list[Comparison]:
    """The calls on one trial's inputs. Nothing of the trial outlives this: it may fill half a device."""
    drawn = prepared.trials.drawn(trial)
    expected = None if prepared.expects_meanwhile else prepared.trials.expected(trial, drawn)
    comparisons = []
    for _ in range(trial.calls):
        slot = secrets.randbelow(prepared.slots)
        prepared.shared.fill_inputs(drawn, slot)
        prepared.settle()
        with child.asked({"do": "call", "slot": slot, "seed": 0}) as answer:
            # It may be compiling: what it should return is worked out in the meantime.
            expected = expected or _expected_if_it_fits(prepared, trial, drawn)
        expected = expected or prepared.trials.expected(trial, drawn)
        comparisons += _compare(prepared, slot, expected, answer.get("odd"), str(trial))
    return comparisons


@contextmanager
def _beside(attempt: Attempt) -> Iterator[None]:
    """What the judge has too little memory for in here, it had enough for before the candidate was there: that is its verdict."""
    try:
        yield
    except (ProblemError, torch.OutOfMemoryError) as error:
        if not ran_out(error):
            raise
        reason = "beside what it holds, too little memory is left to work out what is expected"
        raise Verdict(OutOfMemory(phase=attempt.phase, error=f"{reason}: {error}")) from error


def _expected_if_it_fits(
    prepared: PreparedReference, trial: Trial, drawn: Drawn
) -> Expected | None:
    """Expected values, or None where a running candidate leaves too little memory."""
    try:
        return prepared.trials.expected(trial, drawn)
    except (ProblemError, torch.OutOfMemoryError) as error:
        if not ran_out(error):
            raise
        return None


def _compare(
    prepared: PreparedReference, slot: int, expected: Expected, odd: object, when: str
) -> list[Comparison]:
    """Hold the judge's own output buffers against the oracle; ends the evaluation if they are wrong."""
    shared = prepared.shared
    if odd is not None:
        wanted = [f"{spec} on {prepared.device.type}" for spec in prepared.signature.outputs]
        got = ", ".join(map(str, odd)) if isinstance(odd, list) else "nothing"
        raise Verdict(Incorrect(error=f"forward returned {got}; expected {', '.join(wanted)}"))
    changes = prepared.program.changes
    results = {f"output {index}": output for index, output in enumerate(shared.outputs[slot])}
    results |= {f"input {index} after the call": shared.inputs[slot][index] for index in changes}
    comparisons, faults = [], []
    for (name, result), wanted_one in zip(results.items(), expected.outputs, strict=True):
        found = compare(result, wanted_one)
        comparisons.append(found)
        if not found.passes:
            others = _others(expected, list(results), name)
            faults.append(fault(name, result, wanted_one, found, others))
    if faults:
        raise Verdict(Incorrect(error=when + "\n".join(faults)))
    changed = shared.changed_input(expected.drawn, slot)
    if changed is not None:
        raise Verdict(
            Incorrect(
                error=f"it changed its input {changed} in place; the reference leaves its inputs alone"
            )
        )
    return comparisons


def _others(expected: Expected, results: list[str], name: str) -> dict[str, torch.Tensor]:
    """What may have been returned in place of a result, by name."""
    inputs = {
        f"input {index} as it was given": tensor
        for index, tensor in enumerate(expected.drawn.tensors)
    }
    outputs = {
        f"the expected {other}": wanted.eager
        for other, wanted in zip(results, expected.outputs, strict=True)
        if other != name
    }
    return inputs | outputs


def _time(
    attempt: Attempt, child: OnTheClock, prepared: PreparedReference, verified: Verified
) -> Correct:
    """Time in rounds with the running reference, on inputs that change before every sample."""
    kind, limits = prepared.device.type, attempt.limits

    limit_s = limits.time_s + REFERENCE_CALLS * prepared.reference_s

    def timed(program: Asked) -> Timed:
        return Timed(program, kind, limit_s, prepared.slots)

    def check(slot: int, drawn: Drawn, expected: list[ExpectedTensor], odd: object) -> None:
        _compare(prepared, slot, Expected(drawn, expected), odd, "while it was timed, ")

    with attempt.during("time", limit_s), _beside(attempt):
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
        with _beside(attempt):
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


def _profile(attempt: Attempt, child: OnTheClock, built: Built, correct: Correct) -> Correct:
    """The same with its profile. Everything that counts was measured before; without a profile it is just as correct."""
    kind, latency_ms = correct.device.kind, correct.latency_ms
    try:
        with attempt.during("profile", profile_limit_s(latency_ms)):
            child.resume()
            profile = take_profile(child, kind, latency_ms, built.kernels)
    except Verdict as verdict:
        reason = evidence(verdict.evaluation).splitlines()[0]
    except ProfileRefused as refusal:
        reason = str(refusal)
    else:
        return correct.model_copy(update={"profile": profile})
    attempt.warnings.append(f"it has no profile: {reason}")
    return correct


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


def architecture_of(prepared: PreparedReference) -> str | None:
    """The GPU architecture to build for, or None on a CPU."""
    return prepared.sheet.architecture if prepared.sheet.kind == "cuda" else None
