"""Runs tools on a candidate that was found correct: NVIDIA's on a GPU, the compiler's sanitizers on a CPU.

Nsight Compute adds counters to the profile. Errors that a sanitizer finds make the candidate
incorrect. A tool that cannot run causes a warning and does not change the verdict. After a tool had
to be killed, no further tool is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from stark.core.evaluation import Correct, Evaluation, Incorrect
from stark.core.judging import Tools
from stark.evaluator.judge.tools import memory_errors, sanitizer
from stark.evaluator.judge.tools.counters import Counters
from stark.evaluator.judge.tools.running import NotRun, Target

Step = Callable[[Correct], Evaluation]


def examined(correct: Correct, tools: Tools, target: Target, counters: Counters) -> Evaluation:
    """The evaluation after the tools have run. The sanitizers run only in final checks (effort `promote`)."""
    if correct.device.kind == "cpu" and tools.counters:
        correct = _warned(correct, "Nsight Compute was not run: it needs an NVIDIA GPU")
    steps = dict(_steps(correct, tools, target, counters))
    if not steps:
        return correct
    begin = time.monotonic()
    found: Evaluation = correct
    for name, step in steps.items():
        try:
            found = step(correct)
        except NotRun as reason:
            rest = ", and no further tool was run" if reason.ended else ""
            found = _warned(correct, f"{name} gave no result{rest}: {reason}")
            if reason.ended:
                break
        if not isinstance(found, Correct):
            break
        correct = found
    taken_s = found.seconds.get("tools", 0.0) + time.monotonic() - begin
    return found.model_copy(update={"seconds": found.seconds | {"tools": round(taken_s, 4)}})


def _steps(
    correct: Correct, tools: Tools, target: Target, counters: Counters
) -> Iterator[tuple[str, Step]]:
    """What is run, by name: on a GPU what was asked for; on a CPU, C++ is checked unless that is turned off."""
    final = correct.effort == "promote"
    if correct.device.kind == "cpu":
        if final and tools.sanitizer is not False and target.language == "cpp":
            tool = "a check for memory errors and undefined arithmetic"
            checks, finding = memory_errors.CHECKS, partial(memory_errors.findings, target)
            yield " and ".join(checks), partial(_checked, finding, tool, checks)
        return
    if tools.counters and correct.profile is not None:
        yield "Nsight Compute", partial(_counted, target, counters)
    for check in sanitizer.checks(target.language) if final and tools.sanitizer else ():
        tool, finding = f"compute-sanitizer's {check}", partial(sanitizer.findings, target, check)
        yield tool, partial(_checked, finding, tool, (check,))


def _counted(target: Target, counters: Counters, correct: Correct) -> Evaluation:
    assert correct.profile is not None
    profile = correct.profile.model_copy(update={"counters": counters.of(target)})
    return correct.model_copy(update={"profile": profile})


def _checked(
    find: Callable[[], list[str]], tool: str, checks: tuple[str, ...], correct: Correct
) -> Evaluation:
    """Incorrect if there are findings; otherwise the evaluation with the checks in `sanitized`."""
    findings = find()
    if not findings:
        return correct.model_copy(update={"sanitized": (*correct.sanitized, *checks)})
    found = f"its outputs are correct, but {tool} found:"
    kept = {"seconds", "output", "warnings", "sandbox"}
    return Incorrect(error="\n".join([found, *findings]), **correct.model_dump(include=kept))


def _warned(correct: Correct, warning: str) -> Correct:
    return correct.model_copy(update={"warnings": (*correct.warnings, warning)})
