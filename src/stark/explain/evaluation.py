"""An evaluation in English: the evidence, the speedups with their uncertainty, and the roofline."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal

from stark.core.cases import Weighing, least
from stark.core.device import Roofline
from stark.core.evaluation import (
    Accuracy,
    Correct,
    Crashed,
    Evaluation,
    Matched,
    OutOfMemory,
    Rejected,
    TimedOut,
    Unusable,
)
from stark.core.measurement import Measurement, Speedup
from stark.core.reference import Reference
from stark.explain.numbers import counted, first_line, milliseconds
from stark.explain.profile import profile_lines

DRIFTED = 1.1
"""Two times of the reference that differ by more than this factor are both shown."""

ABOUT = 0.8
"""A time that is at least this share of another one is about as long."""

BESIDE_NOTE = (
    "a speedup is the median of paired ratios to eager's time beside the kernel, not a ratio of two medians; that time is "
    f"shown where it differs from the reference's, measured alone, by more than {DRIFTED - 1:.0%}"
)
"""Why `eager_beside` differs from the reference's time, and a speedup from the ratio of the times in a table."""


def explain(
    evaluation: Evaluation,
    reference: Reference | None = None,
    on_roofline: Evaluation | None = None,
) -> str:
    """Everything that a reader needs, the most useful first. `reference` is the one whose time the reader knows.

    `on_roofline` is the evaluation with the run's roofline in place of its own, which the profile is relative to.
    """
    lines = [evidence(on_roofline or evaluation, reference)]
    if isinstance(evaluation, Correct):
        lines += profiles(evaluation)
        if found := sanitized_text(evaluation):
            lines.append(found)
    return "\n".join([*lines, *(f"Note: {warning}" for warning in evaluation.warnings)])


def profiles(correct: Correct) -> Iterator[str]:
    """Where the time goes, for each case if there are several; nothing without a profile."""
    if correct.profiled is not None and correct.weighing is None:
        yield from profile_lines(correct.profiled)
    for case, each in correct.cases.items():
        if each.profiled is not None:
            yield f"case {case}:"
            yield from (f"  {line}" for line in profile_lines(each.profiled))


def sanitized_text(correct: Correct) -> str:
    """Which checks for memory errors found nothing; empty if none ran."""
    if not correct.sanitized:
        return ""
    if correct.device.kind == "cpu":
        return f"{' and '.join(correct.sanitized)} found no errors"
    return f"compute-sanitizer found no errors: {', '.join(correct.sanitized)}"


def evidence(evaluation: Evaluation, reference: Reference | None = None) -> str:
    """What decided the status, in a few lines. A failure in one of several cases begins with the case."""
    return _in_case(evaluation, _evidence(evaluation, reference))


def _in_case(evaluation: Evaluation, text: str) -> str:
    return text if evaluation.case is None else f"case {evaluation.case}: {text}"


def _evidence(evaluation: Evaluation, reference: Reference | None = None) -> str:
    match evaluation:
        case Correct(weighing=weighing) if weighing is not None:
            return "\n".join(_over_cases(evaluation, weighing, reference))
        case Correct():
            names = sorted(evaluation.references, key=lambda name: name != "eager")
            first, *others = (verdict(evaluation, name) for name in names)
            then = eager_beside(evaluation, None if reference is None else reference.latency_ms)
            correct = f"correct, {evaluation.latency_ms:.4g} ms{then}: {first}"
            return "\n".join(
                [correct, *others, roofline_text(evaluation), accuracy_text(evaluation.accuracy)]
            )
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


def _over_cases(correct: Correct, weighing: Weighing, reference: Reference | None) -> Iterator[str]:
    """The objective against each reference, then each case, and the case that is behind."""
    names = sorted(correct.references, key=lambda name: name != "eager")
    first, *others = (verdict(correct, name) for name in names)
    yield f"correct, {objective_text(weighing)}: {first}"
    yield from others
    yield from case_lines(correct, reference)
    speedups = correct.speedups_vs()
    behind = least(speedups)
    rest = (speedup for case, speedup in speedups.items() if case != behind)
    if all(speedups[behind].high < speedup.low for speedup in rest) and len(speedups) > 1:
        yield f"{behind} has the smallest speedup of all cases"


def case_lines(correct: Correct, reference: Reference | None = None) -> Iterator[str]:
    """Each case's weight, times and error, if there are cases."""
    if correct.weighing is None:
        return
    for case, each in correct.cases.items():
        weight = correct.weighing.weights[case]
        speedups = (speedup_text(each.speedup_vs(name)) for name in each.references)
        own = reference.cases.get(case) if reference is not None else None
        then = eager_beside(each, None if own is None else own.latency_ms)
        yield (
            f"- {case} (weight {weight:g}): {each.latency_ms:.4g} ms{then}, {', '.join(speedups)}; "
            f"{roofline_text(each)}; {accuracy_text(each.accuracy)}"
        )


def objective_text(weighing: Weighing) -> str:
    """How the cases' speedups become one."""
    cases = counted(len(weighing.weights), "case")
    if weighing.objective == "worst":
        return f"worst of {cases}"
    weighted = "weighted " if len(set(weighing.weights.values())) > 1 else ""
    return f"{weighted}geometric mean of {cases}"


def reason(evaluation: Evaluation) -> str:
    """Why the candidate failed, in one line; empty if it is correct."""
    if isinstance(evaluation, Correct):
        return ""
    text = _evidence(evaluation)
    fault = next((line for line in text.splitlines() if "error: " in line), None)
    # Compilers print other lines first, and their build folder before the file's name.
    found = re.sub(r"^\S*/", "", fault.strip()) if fault else first_line(text)
    return _in_case(evaluation, found)


def status(evaluation: Evaluation) -> str:
    """The status as words."""
    return evaluation.status.replace("_", " ")


def verdict(correct: Correct, reference: str = "eager") -> str:
    """The speedup and, unless it is too noisy, what its interval means. Before the final check, a win is unconfirmed."""
    speedup = correct.speedup_vs(reference)
    unconfirmed = " (unconfirmed)" if correct.effort == "search" else ""
    meanings: dict[Meaning, str] = {
        "noisy": "",
        "faster": f", faster{unconfirmed}",
        "slower": ", slower than the reference",
        "same": ", no measurable difference",
    }
    return speedup_text(speedup) + meanings[meaning(speedup)]


Meaning = Literal["noisy", "faster", "slower", "same"]


def meaning(speedup: Speedup) -> Meaning:
    """What the 95 % interval of a speedup says."""
    if speedup.too_noisy:
        return "noisy"
    if speedup.low > 1:
        return "faster"
    return "slower" if speedup.high < 1 else "same"


def checked(evaluation: Evaluation) -> str:
    """The result of a final check, in one line."""
    if isinstance(evaluation, Correct):
        speedups = map(speedup_text, map(evaluation.speedup_vs, evaluation.references))
        return f"{', '.join(speedups)}; {accuracy_text(evaluation.accuracy)}"
    return f"{status(evaluation)}: {reason(evaluation)}"


def speedup_text(speedup: Speedup, named: bool = True) -> str:
    """`2.00x vs eager [1.98, 2.02]`, or `3.28x vs eager [1.20, 5.00], too noisy`; no `vs eager` if `named` is false."""
    versus = f" vs {speedup.reference}" if named else ""
    places = 2 if speedup.too_noisy else _decimals(speedup)
    interval = f"[{speedup.low:.{places}f}, {speedup.high:.{places}f}]"
    noisy = ", too noisy" if speedup.too_noisy else ""
    return f"{speedup.ratio:.{places}f}x{versus} {interval}{noisy}"


def ratio_text(speedup: Speedup) -> str:
    """The ratio alone, for a table: `2.00x`, or `noisy 2.00x`."""
    return f"{'noisy ' if speedup.too_noisy else ''}{speedup.ratio:.2f}x"


def shapes_text(correct: Correct) -> str:
    """Which other shapes the final check tried, so that nobody concludes more; empty before the final check."""
    if correct.effort == "search":
        return ""
    if not correct.shapes_tried:
        return "" if correct.generalizes is not None else "no other shapes were tried"
    tried = ", ".join(correct.shapes_tried)
    result = "also correct" if correct.generalizes else "not always correct"
    return f"{result} with {tried}; no other shapes were tried"


def eager_beside(correct: Correct, own_ms: float | None) -> str:
    """` (eager beside it 71.4 ms)`: eager mode's time beside the candidate's, which gave the speedup; follows a speedup or a time.

    Empty if it is close to `own_ms`, the reference's time that the reader knows; None if the reader knows none.
    """
    if not own_ms or "eager" not in correct.references:
        return ""
    then_ms = correct.reference_ms("eager")
    if abs(math.log(then_ms / own_ms)) <= math.log(DRIFTED):
        return ""
    return f" (eager beside it {milliseconds(then_ms)})"


def measured(measurement: Measurement) -> str:
    """A latency and how it was measured."""
    samples = counted(len(measurement.samples_ms), "sample")
    median = f"median of {samples} of {counted(measurement.calls_per_sample, 'call')}"
    clock = "the judge's clock" if measurement.clock == "judge_wall" else "events on the device"
    how = f"{median}, {measurement.cache} cache, timed by {clock}"
    return f"{milliseconds(measurement.latency_ms)} ({how})"


def accuracy_text(accuracy: Accuracy) -> str:
    """`error 3e-07 (reference 2e-07, allowed 2e-05; meets reference)`: relative RMS errors, and the class they meet.

    The class says how large the error is, not which arithmetic the kernel uses.
    """
    met = "" if accuracy.meets is None else f"; meets {accuracy.meets}"
    reference = f"reference {accuracy.reference_relative_rms:.2g}"
    ours = f"error {accuracy.relative_rms:.2g} ({reference}, allowed {accuracy.budget:.2g}{met})"
    return ours if accuracy.stated is None else f"{ours}; {_stated_text(accuracy.stated)}"


def _stated_text(stated: Matched) -> str:
    """The tolerance of the problem's own benchmark, and whether it accepts the outputs, beside the judge's budget."""
    asked = stated.tolerance
    return (
        f"the problem's benchmark would {'accept' if stated.passes else 'refuse'} it: {100 * stated.share:.6g} % of elements "
        f"are within {asked.absolute:g} + {asked.relative:g} |reference|, and it asks for {100 * asked.matched:g} %"
    )


def precision_met(correct: Correct) -> str:
    """The strictest precision class that the kernel's error meets, for a table."""
    return correct.accuracy.meets or "not recorded"


def roofline_text(correct: Correct) -> str:
    """How close the kernel is to the roofline, or why the roofline is unknown."""
    if correct.weighing is not None:
        return "; ".join(f"{case}: {roofline_text(each)}" for case, each in correct.cases.items())
    roof, share = correct.roofline, correct.roofline_fraction
    if share is None:
        own = roof.is_beaten_by(correct.latency_ms)
        return f"roofline unknown: {why_unknown(roof, 'the kernel' if own else 'a reference')}"
    limit = f"estimate {roof.floor_ms:.4g} ms"
    if correct.bound == "launch":
        launch = f"launching one kernel costs {correct.device.launch_ms:.4g} ms"
        return f"{share:.0%} of the roofline (launch-bound: {limit}, and {launch})"
    return f"{share:.0%} of the roofline ({bound_text(roof)}: {limit})"


def bound_text(roofline: Roofline) -> str:
    """`memory-bound`, `compute-bound`, or both if they take about as long."""
    less, more = sorted((roofline.memory_ms, roofline.compute_ms))
    if less >= ABOUT * more:
        return "memory- and compute-bound"
    return f"{roofline.bound}-bound"


def roofline_share(correct: Correct) -> str:
    """The share of the roofline, for a table."""
    share = correct.roofline_fraction
    return "unknown" if share is None else f"{share:.0%}"


def why_unknown(roofline: Roofline, faster: str) -> str:
    """Why the roofline is unknown, if not because it is not confirmed, then because the program `faster` is."""
    if not roofline.is_confirmed:
        rate = "bandwidth" if roofline.bound == "memory" else "peak"
        return f"too few judges have measured this {rate} yet, which other programs may have slowed down"
    return f"{faster} is {_faster_than(roofline)}"


def _faster_than(roofline: Roofline) -> str:
    """That a time is below the estimate of the roofline, and the likely reasons. Follows `is`."""
    memory = roofline.bound == "memory"
    cause = (
        "data stays in a cache or less is read"
        if memory
        else "it does less arithmetic, or in lower precision"
    )
    estimate = (
        f"the {'memory' if memory else roofline.arithmetic} estimate of {roofline.floor_ms:.4g} ms"
    )
    return f"faster than {estimate} ({cause}, or a measurement is off)"


def _decimals(speedup: Speedup) -> int:
    """The fewest decimals, from two to six, with which no end of the interval is rounded to 1; two if six are too few."""
    ends = [end for end in (speedup.low, speedup.high) if end != 1]
    visible = (places for places in range(2, 7) if all(round(end, places) != 1 for end in ends))
    return next(visible, 2)
