"""Runs the requested NVIDIA tools on a candidate that was found correct.

Nsight Compute adds counters to the profile. Errors that compute-sanitizer finds make the candidate
incorrect. A tool that cannot run causes a warning and does not change the verdict. After a tool had
to be killed, no further tool is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from stark.core.evaluation import Correct, Evaluation, Incorrect
from stark.core.judging import Tools
from stark.evaluator.judge.tools import sanitizer
from stark.evaluator.judge.tools.counters import Counters
from stark.evaluator.judge.tools.running import NotRun, Target

ON_A_GPU_ONLY = "Nsight Compute and compute-sanitizer were not run: they need an NVIDIA GPU"


def examined(correct: Correct, tools: Tools, target: Target, counters: Counters) -> Evaluation:
    """The evaluation after the requested tools have run. The sanitizer runs only in final checks (effort `promote`)."""
    steps: dict[str, Callable[[Correct, Target], Evaluation]] = {}
    if tools.counters:
        steps["Nsight Compute"] = partial(_counted, counters)
    if tools.sanitizer and correct.effort == "promote":
        for check in sanitizer.checks(target.language):
            steps[f"compute-sanitizer's {check}"] = partial(_sanitized, check)
    if not steps:
        return correct
    if correct.device.kind == "cpu":
        return _warned(correct, ON_A_GPU_ONLY)
    begin = time.monotonic()
    found: Evaluation = correct
    for name, step in steps.items():
        try:
            found = step(correct, target)
        except NotRun as reason:
            rest = ", and no further tool was run" if reason.ended else ""
            found = _warned(correct, f"{name} gave no result{rest}: {reason}")
            if reason.ended:
                break
        if not isinstance(found, Correct):
            break
        correct = found
    seconds = {**found.seconds, "tools": round(time.monotonic() - begin, 4)}
    return found.model_copy(update={"seconds": seconds})


def _counted(counters: Counters, correct: Correct, target: Target) -> Evaluation:
    """The evaluation with counters in its profile."""
    if correct.profile is None:
        return correct
    profile = correct.profile.model_copy(update={"counters": counters.of(target)})
    return correct.model_copy(update={"profile": profile})


def _sanitized(check: str, correct: Correct, target: Target) -> Evaluation:
    """The evaluation after one of the sanitizer's checks: Incorrect if it finds errors."""
    findings = sanitizer.findings(target, check)
    if not findings:
        return correct.model_copy(update={"sanitized": (*correct.sanitized, check)})
    found = f"its outputs are correct, but compute-sanitizer's {check} found:"
    kept = {"seconds", "output", "warnings", "sandbox"}
    return Incorrect(error="\n".join([found, *findings]), **correct.model_dump(include=kept))


def _warned(correct: Correct, warning: str) -> Correct:
    return correct.model_copy(update={"warnings": (*correct.warnings, warning)})
