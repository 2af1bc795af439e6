"""Runs tools on a candidate that was found correct: NVIDIA's on a GPU, the compiler's sanitizers on a CPU.

Nsight Compute adds counters to the profile. Errors that a sanitizer finds make the candidate
incorrect. A tool that cannot run causes a warning and does not change the verdict. After a tool had
to be killed, no further tool is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from stark.core.evaluation import Correct, Evaluation, Incorrect
from stark.core.judging import Tools
from stark.evaluator.judge.tools import memory_errors, sanitizer
from stark.evaluator.judge.tools.counters import Counters
from stark.evaluator.judge.tools.running import NotRun, Target

Step = Callable[[Correct, Target], Evaluation]

ON_A_GPU_ONLY = "Nsight Compute was not run: it needs an NVIDIA GPU"


def examined(correct: Correct, tools: Tools, target: Target, counters: Counters) -> Evaluation:
    """The evaluation after the tools have run. The sanitizers run only in final checks (effort `promote`)."""
    on_cpu = correct.device.kind == "cpu"
    if on_cpu and tools.counters:
        correct = _warned(correct, ON_A_GPU_ONLY)
    final = correct.effort == "promote"
    steps = (
        _cpu_steps(tools, target, final) if on_cpu else _gpu_steps(tools, target, counters, final)
    )
    if not steps:
        return correct
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
    taken_s = found.seconds.get("tools", 0.0) + time.monotonic() - begin
    seconds = {**found.seconds, "tools": round(taken_s, 4)}
    return found.model_copy(update={"seconds": seconds})


def _cpu_steps(tools: Tools, target: Target, final: bool) -> dict[str, Step]:
    """On a CPU, C++ is checked unless that is turned off."""
    if final and tools.sanitizer is not False and target.language == "cpp":
        return {" and ".join(memory_errors.CHECKS): _memory_checked}
    return {}


def _gpu_steps(tools: Tools, target: Target, counters: Counters, final: bool) -> dict[str, Step]:
    """On a GPU, only what was asked for is run."""
    steps: dict[str, Step] = {}
    if tools.counters:
        steps["Nsight Compute"] = partial(_counted, counters)
    if final and tools.sanitizer:
        for check in sanitizer.checks(target.language):
            steps[f"compute-sanitizer's {check}"] = partial(_sanitized, check)
    return steps


def _counted(counters: Counters, correct: Correct, target: Target) -> Evaluation:
    """The evaluation with counters in its profile."""
    if correct.profile is None:
        return correct
    profile = correct.profile.model_copy(update={"counters": counters.of(target)})
    return correct.model_copy(update={"profile": profile})


def _sanitized(check: str, correct: Correct, target: Target) -> Evaluation:
    """The evaluation after one of compute-sanitizer's checks."""
    findings = sanitizer.findings(target, check)
    return _judged(correct, findings, f"compute-sanitizer's {check}", (check,))


def _memory_checked(correct: Correct, target: Target) -> Evaluation:
    """The evaluation after the compiler's sanitizers."""
    findings = memory_errors.findings(target)
    tool = "a check for memory errors and undefined arithmetic"
    return _judged(correct, findings, tool, memory_errors.CHECKS)


def _judged(
    correct: Correct, findings: list[str], tool: str, checks: tuple[str, ...]
) -> Evaluation:
    """Incorrect if there are findings; otherwise the evaluation with the checks in `sanitized`."""
    if not findings:
        return correct.model_copy(update={"sanitized": (*correct.sanitized, *checks)})
    found = f"its outputs are correct, but {tool} found:"
    kept = {"seconds", "output", "warnings", "sandbox"}
    return Incorrect(error="\n".join([found, *findings]), **correct.model_dump(include=kept))


def _warned(correct: Correct, warning: str) -> Correct:
    return correct.model_copy(update={"warnings": (*correct.warnings, warning)})
