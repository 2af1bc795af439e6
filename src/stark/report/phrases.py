"""Numbers and statuses in words, the same everywhere: times, prices, tokens, statuses."""

from __future__ import annotations

import re

from stark.core.counted import counted
from stark.core.evaluation import Correct, Evaluation
from stark.core.evaluation import evidence as evidence_of
from stark.core.measurement import Measurement
from stark.core.node import COMPILER, Node
from stark.core.reference import Reference
from stark.core.run import Run
from stark.core.usage import Budget, Usage

RECORDED = "recorded:"
"""What stands before a model's name in a run whose replies come from a recording."""

REPLAYED = "replies are recorded, from {models}; builds, checks and timings are live"

STATUS_STYLES = {
    "correct": "green",
    "incorrect": "red",
    "build_failed": "red",
    "crashed": "red",
    "timed_out": "yellow",
    "out_of_memory": "yellow",
    "rejected": "bold magenta",
    "unusable": "yellow",
}


def milliseconds(value: float) -> str:
    """A latency with three significant digits, in the unit that reads best."""
    if value < 1.0:
        return f"{_three_digits(value * 1000)} µs"
    return f"{_three_digits(value)} ms" if value < 1000.0 else f"{value / 1000:.2f} s"


def duration(seconds: float) -> str:
    """A stretch of time as a clock shows it: `0:07`, `12:30`, `1:02:05`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def status(evaluation: Evaluation) -> str:
    """The status as words."""
    return evaluation.status.replace("_", " ")


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def evidence(evaluation: Evaluation) -> str:
    """Why it failed, in one line; nothing for a correct one, whose numbers speak."""
    if isinstance(evaluation, Correct):
        return ""
    text = evidence_of(evaluation)
    fault = next((line for line in text.splitlines() if "error: " in line), None)
    # A compiler puts its build folder before the file, and other lines before its complaint.
    return re.sub(r"^\S*/", "", fault.strip()) if fault else first_line(text)


def idea(node: Node) -> str:
    """The first line of the strategy, if there is one."""
    if node.role == COMPILER:
        return "what torch.compile generates"
    return first_line(node.plan.strategy) if node.plan else ""


def origin(node: Node) -> str:
    """What the attempt set out to do."""
    start = "the reference" if node.parent == 0 else f"attempt {node.parent}"
    return f"{'repair' if node.action == 'debug' else 'improve'} {start}"


def checked(evaluation: Evaluation) -> str:
    """What a final check found, in a line."""
    if isinstance(evaluation, Correct):
        return ", ".join(str(evaluation.speedup_vs(name)) for name in evaluation.references)
    return f"{status(evaluation)}: {evidence(evaluation)}"


def verdict(correct: Correct) -> str:
    """The speedup against eager, and in words what its interval says; a win is one only after the final check."""
    speedup = correct.speedup_vs("eager")
    if speedup.low > 1 and correct.effort == "search":
        return f"{speedup}: {speedup.meaning}, if it is confirmed"
    return f"{speedup}: {speedup.meaning}"


def price(usage: Usage) -> str:
    """Dollars; an unknown price is said to be unknown."""
    return "price unknown" if usage.dollars is None else f"${usage.dollars:.2f}"


def tokens(usage: Usage) -> str:
    """Input and output tokens together."""
    return "tokens unknown" if usage.tokens is None else f"{usage.tokens:,} tokens"


def is_replay(run: Run) -> bool:
    """Whether the run's replies come from a recording."""
    return any(entry.model.startswith(RECORDED) for entry in run.config.models.values())


def replay_line(run: Run) -> str:
    """What is recorded and what is not, in a replay."""
    specs = dict.fromkeys(
        entry.model.removeprefix(RECORDED) for entry in run.config.models.values()
    )
    return REPLAYED.format(models=", ".join(specs))


def budget_line(budget: Budget) -> str:
    """The limits there are."""
    limits = [counted(budget.attempts, "attempt")]
    if budget.tokens is not None:
        limits.append(f"{budget.tokens:,} tokens")
    if budget.dollars is not None:
        limits.append(f"${budget.dollars:.2f}")
    if budget.minutes is not None:
        limits.append(f"{budget.minutes:g} minutes")
    return ", ".join(limits)


def reference_line(reference: Reference) -> str:
    """The reference's time and how fast it could be at best."""
    roof = reference.roofline
    return (
        f"{milliseconds(reference.eager.latency_ms)} in eager mode; at best "
        f"{milliseconds(roof.floor_ms)} ({roof.bound}-bound roofline)"
    )


def measured(measurement: Measurement) -> str:
    """A measurement and how it was made."""
    return (
        f"{milliseconds(measurement.latency_ms)} (median of {counted(len(measurement.samples_ms), 'sample')} "
        f"of {counted(measurement.calls_per_sample, 'call')}, {measurement.cache} cache, "
        f"{measurement.clock.replace('_', ' ')})"
    )


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
