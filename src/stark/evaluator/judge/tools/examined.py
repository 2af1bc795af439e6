"""Runs the requested NVIDIA tools on a candidate that was found correct.

Nsight Compute adds counters to the profile. Errors that compute-sanitizer finds make the candidate
incorrect. A tool that cannot run causes a warning and does not change the verdict. After a tool had
to be killed, no further tool is started.
"""

from __future__ import annotations

import time

from stark.core.evaluation import Correct, Evaluation, Incorrect
from stark.core.judging import Tools
from stark.evaluator.judge.tools import sanitizer
from stark.evaluator.judge.tools.counters import kernel_counters
from stark.evaluator.judge.tools.running import NotRun, Target

ON_A_GPU_ONLY = "Nsight Compute and compute-sanitizer were not run: they need an NVIDIA GPU"


def examined(correct: Correct, tools: Tools, target: Target) -> Evaluation:
    """The evaluation after the requested tools have run. The sanitizer runs only in final checks (effort `promote`)."""
    sanitizing = tools.sanitizer and correct.effort == "promote"
    if not (tools.counters or sanitizing):
        return correct
    if correct.device.kind == "cpu":
        return _warned(correct, ON_A_GPU_ONLY)
    begin = time.monotonic()
    found: Evaluation = correct
    try:
        if tools.counters:
            correct = found = _counted(correct, target)
        if sanitizing:
            found = _sanitized(correct, target)
    except NotRun as reason:
        found = _warned(correct, f"Nsight Compute was killed, so no other tool was run: {reason}")
    seconds = {**found.seconds, "tools": round(time.monotonic() - begin, 4)}
    return found.model_copy(update={"seconds": seconds})


def _counted(correct: Correct, target: Target) -> Correct:
    """The evaluation with counters in its profile. Raises NotRun if the tool had to be killed."""
    if correct.profile is None:
        return correct
    try:
        counters = kernel_counters(target)
    except NotRun as reason:
        if reason.ended:
            raise
        return _warned(correct, f"Nsight Compute reported no counters: {reason}")
    profile = correct.profile.model_copy(update={"counters": counters})
    return correct.model_copy(update={"profile": profile})


def _sanitized(correct: Correct, target: Target) -> Evaluation:
    """The evaluation after the sanitizer's checks: Incorrect as soon as one of them finds errors."""
    clean: list[str] = []
    for check in sanitizer.checks(target.language):
        try:
            findings = sanitizer.findings(target, check)
        except NotRun as reason:
            correct = _warned(correct, f"compute-sanitizer's {check} gave no result: {reason}")
            if reason.ended:
                break
            continue
        if findings:
            error = "\n".join(
                [f"its outputs are correct, but compute-sanitizer's {check} found:", *findings]
            )
            kept = {"seconds", "output", "warnings", "sandbox"}
            return Incorrect(error=error, **correct.model_dump(include=kept))
        clean.append(check)
    return correct.model_copy(update={"sanitized": tuple(clean)})


def _warned(correct: Correct, warning: str) -> Correct:
    return correct.model_copy(update={"warnings": (*correct.warnings, warning)})
