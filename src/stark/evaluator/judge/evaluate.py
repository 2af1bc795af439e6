"""One evaluation, step by step: static look, build, load, verify, time, verdict.

Every way in which a candidate can fail becomes its evaluation here; anything else that goes wrong is
raised, and is ours.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from stark.core.candidate import Candidate
from stark.core.evaluation import (
    Accuracy,
    BuildFailed,
    Correct,
    Crashed,
    Evaluation,
    Incorrect,
    OutOfMemory,
    Phase,
    TimedOut,
)
from stark.evaluator.judge.builds import Builds, Built, processor_s
from stark.evaluator.judge.children import Allowance, Child, ChildFailed, child_environment
from stark.evaluator.judge.oracle import Comparison, compare
from stark.evaluator.judge.prepared import (
    Expected,
    PreparedReference,
    Trial,
    load_request,
    visible,
)
from stark.evaluator.judge.roofline import implausible
from stark.evaluator.judge.timing import Timed, time_pair
from stark.evaluator.protocol import Evaluate, Limits
from stark.languages import language

CHECKED_SHARE = 0.25
"""Share of the timed samples whose result is held against the oracle; the last one always is."""


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
        self.seconds: dict[Phase, float] = {}
        self.warnings: list[str] = []
        self.sandbox: tuple[str, ...] = ()
        self.phase: Phase = "static"

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Time a phase, and turn a child's failure in it into the verdict."""
        self.phase = phase
        begin = time.monotonic()
        try:
            yield
        except ChildFailed as failure:
            raise Verdict(self._failed(failure)) from failure
        finally:
            self.seconds[phase] = round(time.monotonic() - begin, 4)

    def _failed(self, failure: ChildFailed) -> Evaluation:
        match failure.kind:
            case "timed_out":
                limit = getattr(self.limits, f"{self.phase}_s")
                return TimedOut(phase=self.phase, limit_s=limit)
            case "out_of_memory":
                return OutOfMemory(phase=self.phase, error=failure.error)
            case "crashed":
                return Crashed(phase=self.phase, error=failure.error)


def check_statically(attempt: Attempt) -> None:
    """The language's rules, in milliseconds and without running anything."""
    with attempt.during("static"):
        fault = language(attempt.candidate.language).check(attempt.candidate.source)
    if fault is not None:
        raise Verdict(BuildFailed(error=fault))


def build(attempt: Attempt, builds: Builds) -> Built:
    """Import the candidate once without a device, so that everything it compiles is compiled."""
    attempt.sandbox = builds.layers
    with attempt.during("build"):
        built = builds.build(attempt.candidate, attempt.limits)
    if built.error is not None:
        raise Verdict(BuildFailed(error=built.error, output=built.output))
    return built


def run(attempt: Attempt, built: Built, prepared: PreparedReference) -> Evaluation:
    """Load, verify and time a candidate whose build is ready. The caller holds the device."""
    child = _start(attempt, built, prepared)
    attempt.sandbox = child.layers
    output = ""
    try:
        _load(attempt, child, built.source, prepared)
        accuracy = _verify(attempt, child, prepared)
        evaluation: Evaluation = _time(attempt, child, prepared, accuracy)
    except Verdict as verdict:
        evaluation = verdict.evaluation
    finally:
        output = child.close()
    return finished(attempt, evaluation, output)


def finished(attempt: Attempt, evaluation: Evaluation, output: str = "") -> Evaluation:
    """The evaluation with what every status carries."""
    return evaluation.model_copy(
        update={
            "seconds": attempt.seconds,
            "output": output or evaluation.output,
            "sandbox": attempt.sandbox,
            "warnings": (*attempt.warnings, *evaluation.warnings),
        }
    )


def _start(attempt: Attempt, built: Built, prepared: PreparedReference) -> Child:
    limits = attempt.limits
    language_of_it = language(attempt.candidate.language)
    extra = language_of_it.environment(built.work, architecture_of(prepared))
    on_cpu = prepared.device.type == "cpu"
    arena = prepared.shared.arena
    return prepared.forkserver.fork(
        Allowance(
            built.work,
            child_environment(built.work, {**extra, "CUDA_VISIBLE_DEVICES": visible()}),
            memory_gb=limits.memory_gb + arena.size / 1e9,
            output_kb=limits.output_kb,
            readable=(built.source,),
            bounds_address_space=on_cpu,
            cpu_s=processor_s(limits.load_s + limits.verify_s + limits.time_s),
            on_device=not on_cpu,
        ),
        arena.descriptor,
    )


def _load(attempt: Attempt, child: Child, path: Path, prepared: PreparedReference) -> None:
    with attempt.during("load"):
        prepared.shared.fill_weights()
        limit = attempt.limits.load_s
        prepared.shared.attach(child, prepared.flush_bytes, limit)
        child.ask({"do": "import", "path": str(path), "class": "ModelNew"}, limit)
        loaded = child.ask(load_request("ModelNew"), limit)
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
                f"{meaning} ({', '.join(map(str, names))}); weights are matched by name"
            )


def _verify(attempt: Attempt, child: Child, prepared: PreparedReference) -> Accuracy:
    with attempt.during("verify"):
        comparisons = [
            found
            for trial in prepared.trials
            for found in _verify_on(trial, attempt, child, prepared)
        ]
    worst = max(comparisons, key=lambda found: found.errors.relative_rms / (found.budget or 1.0))
    return Accuracy(
        relative_rms=worst.errors.relative_rms,
        budget=worst.budget,
        reference_relative_rms=worst.reference_errors.relative_rms,
        allclose=all(found.allclose for found in comparisons),
        oracle="float64" if prepared.oracle_is_float64 else "float32",
    )


def _verify_on(
    trial: Trial, attempt: Attempt, child: Child, prepared: PreparedReference
) -> list[Comparison]:
    """One call on one trial's inputs. Nothing of the trial outlives this: it may fill half a device."""
    expected = prepared.expected(trial)
    prepared.shared.fill_inputs(expected.drawn)
    _settle(prepared)
    answer = child.ask({"do": "call", "seed": 0}, attempt.limits.verify_s)
    return _compare(prepared, expected, answer.get("forms"), trial)


def _compare(
    prepared: PreparedReference, expected: Expected, forms: object, trial: Trial
) -> list[Comparison]:
    """Hold the judge's own output buffers against the oracle; ends the evaluation if they are wrong."""
    shared = prepared.shared
    wanted = [f"{spec} on {prepared.device.type}" for spec in prepared.output_specs]
    if forms != wanted:
        got = ", ".join(map(str, forms)) if isinstance(forms, list) else "nothing"
        raise Verdict(Incorrect(error=f"forward returned {got}; expected {', '.join(wanted)}"))
    comparisons = [
        compare(output, expected.outputs[index], index)
        for index, output in enumerate(shared.outputs)
    ]
    faults = [found.fault for found in comparisons if found.fault is not None]
    if faults:
        raise Verdict(Incorrect(error=str(trial) + "\n".join(faults)))
    changed = shared.changed_input(expected.drawn)
    if changed is not None:
        raise Verdict(
            Incorrect(
                error=f"it changed its input {changed} in place; the reference leaves its inputs alone"
            )
        )
    return comparisons


def _time(
    attempt: Attempt, child: Child, prepared: PreparedReference, accuracy: Accuracy
) -> Correct:
    """Time in pairs with the running reference, on inputs that change before every sample."""
    kind, limits = prepared.device.type, attempt.limits
    with attempt.during("time"):
        inputs = TimedInputs(attempt, child, prepared)
        inputs.turn()
        reference, candidate, warnings = time_pair(
            Timed(prepared.running(limits), kind, limits.time_s),
            Timed(child, kind, limits.time_s),
            limits.timing_budget_s,
            random.SystemRandom(),
            inputs.turn,
        )
        inputs.check()
    doubts = implausible(candidate.latency_ms, reference.latency_ms, prepared.roofline)
    return Correct(
        accuracy=accuracy,
        candidate=candidate,
        references={"eager": reference},
        device=prepared.sheet,
        roofline=prepared.roofline,
        warnings=(*warnings, *doubts, *prepared.warnings),
    )


class TimedInputs:
    """What a candidate is timed on: new contents at the same addresses for every sample, results looked at now and then.

    A result that was kept from an earlier call is wrong for the next contents, and the candidate
    cannot know which samples are looked at. Where the problem is too large to keep its expected
    values, the contents stay for the whole window and only the last result is looked at: drawing
    gigabytes between two samples disturbs the one that follows (by 11 % on an H200).
    """

    def __init__(self, attempt: Attempt, child: Child, prepared: PreparedReference) -> None:
        self._attempt, self._child, self._prepared = attempt, child, prepared
        self._chance = random.SystemRandom()
        self._turns = 0

    @property
    def _trial(self) -> Trial:
        return self._prepared.timed[self._turns % len(self._prepared.timed)]

    def turn(self) -> None:
        """Look at the last sample's result by chance, then write the next inputs for both programs."""
        if self._turns and not self._prepared.keeps_all:
            return
        if self._turns and self._chance.random() < CHECKED_SHARE:
            self.check()
        self._turns += 1
        self._prepared.refresh(self._trial)
        _settle(self._prepared)

    def check(self) -> None:
        """Hold what the last timed call returned against the oracle; ends the evaluation if it is wrong."""
        answer = self._child.ask({"do": "collect"}, self._attempt.limits.time_s)
        expected = self._prepared.expected(self._trial)
        _compare(self._prepared, expected, answer.get("forms"), self._trial)


def _settle(prepared: PreparedReference) -> None:
    """What the judge wrote must be in memory before a child reads it, and the memory that it worked in be free."""
    if prepared.device.type == "cuda":
        torch.cuda.synchronize(prepared.device)
        if not prepared.keeps_all:
            torch.cuda.empty_cache()


def architecture_of(prepared: PreparedReference) -> str | None:
    """The GPU architecture to build for, or None on a CPU."""
    return prepared.sheet.architecture if prepared.sheet.kind == "cuda" else None
