"""Runs one evaluation step by step: static check, build, load, verify, time, profile.

Every failure of a candidate becomes an `Evaluation`. Any other exception is a fault of the judge.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from stark.core.device import Device
from stark.core.errors import UsageError
from stark.core.evaluation import (
    BuildFailed,
    Correct,
    Crashed,
    Evaluation,
    EvaluationBase,
    Incorrect,
    OutOfMemory,
    Rejected,
    Untimed,
    Unusable,
)
from stark.core.profile import Profile
from stark.core.tunable import tunables
from stark.evaluator.candidate.confine import Place
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.building.builds import Builds, Built, complaint, processor_s
from stark.evaluator.judge.building.packing import Received
from stark.evaluator.judge.measuring import CpuClock, DeviceClock, correct, start_references
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.profiling import ProfileRefused, profile_limit_s, take_profile
from stark.evaluator.judge.running import queues, visible
from stark.evaluator.judge.verifying import verify
from stark.explain.evaluation import evidence
from stark.languages import language

Result = TypeVar("Result", bound=EvaluationBase)

SHAPES_S = 5.0
"""Seconds after which two other shapes are enough, however many there are."""


def check_statically(attempt: Attempt, device: Device) -> None:
    """Check the language's rules without running the candidate. Raises Verdict."""
    with attempt.during("static"):
        try:
            written_in = language(attempt.candidate.language)
            attempt.warnings += tunables(attempt.candidate.source).ignored
            violation = written_in.check(attempt.candidate.source)
        except UsageError as error:  # this judge does not know the language
            raise Verdict(BuildFailed(error=str(error))) from error
    if device.kind not in written_in.device_kinds:
        raise Verdict(Unusable(reason=f"{device.name} cannot run {written_in.name}"))
    if violation is not None:
        raise Verdict(BuildFailed(error=violation))


def build(attempt: Attempt, builds: Builds, away: Received | None) -> Built:
    """Compile the candidate's kernels by importing it once, without a device. Raises Verdict."""
    with attempt.during("build", attempt.limits.build_s):
        problem = attempt.request.problem.source
        built = builds.build(attempt.candidate, attempt.limits, attempt.patience, away, problem)
    if built.error is not None:
        raise Verdict(BuildFailed(error=built.error, output=built.output))
    return built


def run(attempt: Attempt, built: Built, prepared: PreparedReference) -> Evaluation | Untimed:
    """Load and verify a built candidate, then time and profile it if that was asked for. The caller must hold the device."""
    measure = _measured if attempt.request.timed else _checked
    try:
        evaluation: Evaluation | Untimed = measure(attempt, built, prepared)
    except Verdict as verdict:
        evaluation = verdict.evaluation
    if isinstance(evaluation, BuildFailed):  # a JIT compiler failed at the first call
        error = complaint(built, evaluation.error, attempt.output, attempt.candidate.source)
        evaluation = BuildFailed(error=error)
    return finished(attempt, evaluation)


def _checked(attempt: Attempt, built: Built, prepared: PreparedReference) -> Untimed:
    with _running(attempt, built, prepared) as child:
        verified = verify(attempt, child, prepared)
    return Untimed(accuracy=verified.accuracy, warnings=prepared.trials.expectations.warnings)


def _measured(attempt: Attempt, built: Built, prepared: PreparedReference) -> Correct:
    running = start_references(attempt, prepared)
    kind = CpuClock if prepared.device.type == "cpu" else DeviceClock
    clock = kind(attempt, running, prepared)
    with _running(attempt, built, prepared) as child:
        verified = verify(attempt, child, prepared)
        latency_ms = clock.time(child, verified)
        profile = _profile(attempt, child, built, prepared.sheet.kind, latency_ms)
    said = attempt.output
    measured = clock.end(lambda: _running(attempt, built, prepared))
    attempt.output = said  # of the process that was verified
    return correct(attempt, measured, prepared, verified, profile)


def at_other_shapes(
    attempt: Attempt,
    correct: Correct,
    built: Built,
    variants: Iterable[tuple[str, PreparedReference]],
) -> Correct:
    """Add what `variants`, each with its changed constant, say of other shapes: those tried, and a warning per failure."""
    tried, failures, begin = [], [], time.monotonic()
    request = attempt.request.model_copy(update={"effort": "search"})
    for change, prepared in variants:
        another = Attempt(request, attempt.patience)
        try:
            with _running(another, built, prepared) as child:
                verify(another, child, prepared)
        except Verdict as verdict:
            if isinstance(verdict.evaluation, OutOfMemory):
                continue  # the original problem, which is loaded too, may take the memory
            failures.append(f"shape-specialized: {verdict.evaluation.status} with {change}")
        tried.append(change)
        if len(tried) > 1 and time.monotonic() - begin > SHAPES_S:
            break
    update = {
        "generalizes": not failures if tried else None,
        "shapes_tried": tuple(tried),
        "warnings": (*correct.warnings, *failures),
    }
    return correct.model_copy(update=update)


def finished(attempt: Attempt, evaluation: Result) -> Result:
    """Add the fields that every status has, and make text from the candidate safe to print."""
    update: dict[str, object] = {
        "seconds": attempt.seconds,
        "output": printable(attempt.output or evaluation.output),
        "sandbox": attempt.sandbox,
        "warnings": tuple(map(printable, dict.fromkeys((*attempt.warnings, *evaluation.warnings)))),
    }
    if isinstance(evaluation, BuildFailed | Crashed | Incorrect | OutOfMemory | Rejected):
        update["error"] = printable(evaluation.error)
    return evaluation.model_copy(update=update)


@contextmanager
def _running(attempt: Attempt, built: Built, prepared: PreparedReference) -> Iterator[Child]:
    """A new process of the candidate, loaded, in the `with` block. Raises Verdict."""
    limits = attempt.limits
    extra = {
        **language(attempt.candidate.language).environment(built.work, prepared.architecture),
        **queues(attempt.request.problem.source, attempt.candidate.source),
        "CUDA_VISIBLE_DEVICES": visible(prepared.device),
    }
    arena = prepared.shared.arena
    memory_gb = limits.memory_gb + arena.size / 1e9
    seconds = limits.load_s + limits.verify_s + limits.time_s + 3 * prepared.slack_s
    place = Place(
        str(built.work),
        child_environment(built.work, extra),
        readable=(str(built.source), *map(str, prepared.shared.files)),
        memory_bytes=int(memory_gb * 1e9) if prepared.device.type == "cpu" else None,
        cpu_s=processor_s(seconds),
    )
    allowed = Allowance(place, memory_gb, limits.output_kb)
    child = prepared.forkserver.fork(allowed, arena.descriptor)
    child.patience = attempt.patience
    try:
        _load(attempt, child, built.source, prepared)
        yield child
    finally:
        attempt.output = child.close()


def _load(attempt: Attempt, child: Child, path: Path, prepared: PreparedReference) -> None:
    with attempt.during("load", attempt.limits.load_s):
        prepared.shared.renew()
        prepared.settle()
        loaded = prepared.shared.load(child, path, "ModelNew", attempt.limits.load_s)
    if lacks := loaded.get("unchanged"):
        first = str(lacks[0] if isinstance(lacks, list) else lacks)[:100]
        advice = "register it under this name, and let forward change it as the reference does"
        error = f"ModelNew lacks {first}, which the reference's forward changes; {advice}"
        raise Verdict(Incorrect(error=error))
    if loaded.get("by_order"):
        attempt.warnings.append(
            "the weights of ModelNew have other names than the reference's; "
            "they were matched by order"
        )
    for found, meaning in (
        ("unexpected", "ModelNew lacks weights that the reference has"),
        ("missing", "ModelNew has weights that the reference lacks"),
    ):
        names = loaded.get(found)
        if isinstance(names, list) and names:
            shown = ", ".join(str(name)[:100] for name in names[:20])
            attempt.warnings.append(f"{meaning} ({shown}); weights are matched by name")


def _profile(
    attempt: Attempt, child: Child, built: Built, kind: Literal["cuda", "cpu"], latency_ms: float
) -> Profile | None:
    """Take a profile, or add a warning if none can be taken. A race needs none."""
    if attempt.effort == "race":
        return None
    try:
        with attempt.during("profile", profile_limit_s(latency_ms)):
            child.go_on()
            return take_profile(child, kind, latency_ms, built.output)
    except Verdict as verdict:
        reason = evidence(verdict.evaluation).splitlines()[0]
    except ProfileRefused as refusal:
        reason = str(refusal)
    attempt.warnings.append(f"no profile was taken: {reason}")
    return None
