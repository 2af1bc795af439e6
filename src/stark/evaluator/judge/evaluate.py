"""One evaluation, step by step: static look, build, load, verify, time, verdict.

Every way in which a candidate can fail becomes its evaluation here; anything else that goes wrong is
raised, and is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stark.core.errors import UsageError
from stark.core.evaluation import (
    BuildFailed,
    Correct,
    Crashed,
    Evaluation,
    Incorrect,
    OutOfMemory,
    Rejected,
)
from stark.evaluator.judge.attempt import Attempt, OnTheClock, Verdict
from stark.evaluator.judge.building.builds import Builds, Built, complaint, processor_s
from stark.evaluator.judge.measuring import measure
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.profiling import ProfileRefused, profile_limit_s, take_profile
from stark.evaluator.judge.running import (
    load_request,
    visible,
)
from stark.evaluator.judge.verifying import verify
from stark.evaluator.protocol import Evaluate
from stark.explain.evaluation import evidence
from stark.languages import language


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
        verified = verify(attempt, child, prepared)
        correct = measure(attempt, child, prepared, verified)
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
            verify(attempt, child, prepared)
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
    extra = language_of_it.environment(built.work, prepared.architecture)
    on_cpu = prepared.device.type == "cpu"
    arena = prepared.shared.arena
    child = prepared.forkserver.fork(
        Allowance(
            built.work,
            child_environment(built.work, {**extra, "CUDA_VISIBLE_DEVICES": visible()}),
            memory_gb=limits.memory_gb + arena.size / 1e9,
            output_kb=limits.output_kb,
            readable=(built.source,),
            bounds_address_space=on_cpu,
            cpu_s=processor_s(
                limits.load_s + limits.verify_s + limits.time_s + 3 * prepared.slack_s
            ),
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
