"""An evaluation in English: the evidence, the speedups with their uncertainty, and the roofline."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stark.core.device import Roofline
from stark.core.evaluation import (
    Correct,
    Crashed,
    Evaluation,
    OutOfMemory,
    Rejected,
    TimedOut,
    Unusable,
    beats_roofline,
)
from stark.core.measurement import Measurement, Speedup
from stark.explain.numbers import counted, first_line, milliseconds
from stark.explain.profile import profile_lines


def explain(evaluation: Evaluation) -> str:
    """Everything that a reader needs, the most useful first."""
    lines = [evidence(evaluation)]
    if isinstance(evaluation, Correct):
        if evaluation.profiled is not None:
            lines += profile_lines(evaluation.profiled)
        if evaluation.sanitized:
            lines.append(f"compute-sanitizer found nothing: {', '.join(evaluation.sanitized)}")
    return "\n".join([*lines, *(f"Note: {warning}" for warning in evaluation.warnings)])


def evidence(evaluation: Evaluation) -> str:
    """What decided the status, in a few lines."""
    match evaluation:
        case Correct():
            return "\n".join(_measured(evaluation))
        case TimedOut():
            return f"the {evaluation.phase} phase did not end within {evaluation.limit_s:g} s"
        case Unusable():
            return evaluation.reason
        case Crashed() | OutOfMemory():
            return f"in the {evaluation.phase} phase: {evaluation.error}"
        case Rejected():
            return f"rule {evaluation.rule}: {evaluation.error}"
        case _:
            return evaluation.error


def reason(evaluation: Evaluation) -> str:
    """Why it failed, in one line; empty if it is correct."""
    if isinstance(evaluation, Correct):
        return ""
    text = evidence(evaluation)
    fault = next((line for line in text.splitlines() if "error: " in line), None)
    # Compilers print other lines first, and their build folder before the file's name.
    return re.sub(r"^\S*/", "", fault.strip()) if fault else first_line(text)


def status(evaluation: Evaluation) -> str:
    """The status as words."""
    return evaluation.status.replace("_", " ")


def verdict(correct: Correct) -> str:
    """The speedup against eager and its meaning; before the final check a win is unconfirmed."""
    speedup = correct.speedup_vs("eager")
    unconfirmed = correct.effort == "search" and speedup.low > 1 and not speedup.too_noisy
    return _with_meaning(speedup, ": ") + (", if it is confirmed" if unconfirmed else "")


def checked(evaluation: Evaluation) -> str:
    """The result of a final check, in one line."""
    if isinstance(evaluation, Correct):
        return ", ".join(map(speedup_text, map(evaluation.speedup_vs, evaluation.references)))
    return f"{status(evaluation)}: {reason(evaluation)}"


def speedup_text(speedup: Speedup) -> str:
    """`2.00x vs eager [1.98, 2.02]`, or `2.00x vs eager, too noisy`."""
    return _speedup(speedup, f" vs {speedup.reference}")


def speedup_cell(speedup: Speedup) -> str:
    """The same for a table whose header names the reference: `2.00x [1.98, 2.02]`."""
    return _speedup(speedup, "")


def measured(measurement: Measurement) -> str:
    """A latency and how it was measured."""
    samples = counted(len(measurement.samples_ms), "sample")
    median = f"median of {samples} of {counted(measurement.calls_per_sample, 'call')}"
    how = f"{median}, {measurement.cache} cache, {measurement.clock.replace('_', ' ')}"
    return f"{milliseconds(measurement.latency_ms)} ({how})"


def roofline_text(correct: Correct) -> str:
    """How close it is to the roofline, or that it is faster."""
    roof = correct.roofline
    if beats_roofline(roof, correct.latency_ms):
        return f"{faster_than(roof)} ({roof.floor_ms:.4g} ms)"
    limit = f"{roof.floor_ms:.4g} ms at best"
    if correct.bound == "launch":
        limit += f", and launching one kernel costs {correct.device.launch_ms:.4g} ms"
    return f"{correct.roofline_fraction:.0%} of the roofline ({correct.bound}-bound: {limit})"


def faster_than(roofline: Roofline) -> str:
    """What it means that a measured time is below the roofline."""
    memory = roofline.bound == "memory"
    cause = "data stays in a cache" if memory else "it computes in another arithmetic"
    name = "memory" if memory else roofline.arithmetic
    return f"faster than the {name} roofline: {cause}, or the measurement is off"


def _speedup(speedup: Speedup, versus: str) -> str:
    interval = f" [{speedup.low:.2f}, {speedup.high:.2f}]"
    return f"{speedup.ratio:.2f}x{versus}{', too noisy' if speedup.too_noisy else interval}"


def _with_meaning(speedup: Speedup, separator: str) -> str:
    """The speedup and what its interval says; one that is too noisy says nothing."""
    if speedup.too_noisy:
        return speedup_text(speedup)
    meaning = "faster" if speedup.low > 1 else "no difference that can be measured"
    meaning = "slower than the reference" if speedup.high < 1 else meaning
    return f"{speedup_text(speedup)}{separator}{meaning}"


def _measured(correct: Correct) -> Iterator[str]:
    """The speedup against every reference, eager first, then the roofline."""
    names = sorted(correct.references, key=lambda name: name != "eager")
    first, *more = (_with_meaning(correct.speedup_vs(name), ", ") for name in names)
    yield f"correct, {correct.latency_ms:.4g} ms: {first}"
    yield from more
    yield roofline_text(correct)
