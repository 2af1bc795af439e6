"""Runs and evaluations as names with texts, one fact each: what terminals, documents and pages list."""

from __future__ import annotations

from collections.abc import Iterator

from stark.core.device import Device
from stark.core.evaluation import Correct, Evaluation
from stark.core.reference import Reference
from stark.explain.evaluation import (
    accuracy_text,
    evidence,
    measured,
    objective_text,
    roofline_text,
    sanitized_text,
    shapes_text,
    speedup_text,
    verdict,
)
from stark.explain.lesson import lessons_line
from stark.explain.numbers import first_line, milliseconds
from stark.explain.profile import bottleneck_text, profile_lines
from stark.explain.run import budget_line, models_line, reference_line, replay_line
from stark.report.view import RunView

WARNING = "warning"
"""The name of a fact that readers must not overlook."""

Facts = Iterator[tuple[str, str]]


def run_facts(view: RunView) -> Facts:
    """A run's configuration, its device and its reference."""
    run, config, reference = view.run, view.run.config, view.reference
    yield "run", f"{run.id}, {run.created:%Y-%m-%d %H:%M} UTC, STARK {run.version}"
    yield "problem", run.problem.name
    used = {node.candidate.language: None for node in view.nodes if node.candidate is not None}
    languages = " and ".join(used) if len(used) > 1 else config.language
    yield "strategy", f"{config.strategy.name}, in {languages}, seed {config.seed}"
    yield "models", models_line(run)
    if run.is_replay:
        yield "replay", replay_line(run)
    yield "budget", budget_line(config.budget)
    yield "precision", config.limits.precision
    if config.lessons:
        yield "lessons", lessons_line(config.lessons)
    if reference is None:
        yield "reference", "not measured yet"
        return
    yield "device", device_line(reference.device)
    software = (f"{name} {its}" for name, its in reference.versions.items() if name != "compilers")
    yield "software", ", ".join(software)
    yield "executor", first_line(config.executor)
    yield from _reference_facts(reference)
    yield from ((WARNING, warning) for warning in reference.warnings)


def device_line(device: Device) -> str:
    """The device with its size."""
    return f"{device.name} ({device.architecture}), {device.size}"


def _reference_facts(reference: Reference) -> Facts:
    """The reference's time, roofline and bottleneck; with several cases, those of each."""
    if reference.weighing is None:
        each = {"reference": reference}
    else:
        each = {f"- {case}": found for case, found in reference.cases.items()}
        yield "reference", f"{milliseconds(reference.latency_ms)} in eager mode (geometric mean)"
        yield "objective", objective_text(reference.weighing)
    for name, found in each.items():
        yield name, reference_line(found)
        if found.profiled is not None:
            yield "", bottleneck_text(found.profiled)


def evaluation_facts(evaluation: Evaluation) -> Facts:
    """All evidence of an evaluation, besides its status and its output."""
    if isinstance(evaluation, Correct):
        yield from _measurements(evaluation)
    else:
        yield "evidence", evidence(evaluation)
    if evaluation.seconds:
        yield "seconds", ", ".join(f"{phase} {s:.2g}" for phase, s in evaluation.seconds.items())
    if evaluation.sandbox:
        yield "sandbox", ", ".join(evaluation.sandbox)
    yield from ((WARNING, warning) for warning in evaluation.warnings)


def _measurements(correct: Correct) -> Facts:
    """What was measured; with several cases, first over all of them, then in each."""
    weighing = correct.weighing
    if weighing is None:
        yield "latency", measured(correct.candidate)
    else:
        yield "objective", objective_text(weighing)
        yield "latency", f"{milliseconds(correct.latency_ms)} (geometric mean)"
    how = "median of paired ratios" if weighing is None else objective_text(weighing)
    for name in correct.references:
        speedup = correct.speedup_vs(name)
        text = verdict(correct) if name == "eager" else speedup_text(speedup)
        yield name, f"{milliseconds(correct.reference_ms(name))} beside the kernel; {how}: {text}"
    if weighing is None:
        yield from _limits(correct)
        return
    for case, each in correct.cases.items():
        yield f"case {case}", f"weight {weighing.weights[case]:g}"
        yield from _measurements(each)


def _limits(correct: Correct) -> Facts:
    """The roofline, the accuracy, the profile and the device of one case."""
    roof, accuracy = correct.roofline, correct.accuracy
    work = f"{roof.least_bytes / 1e6:.4g} MB, {roof.flops / 1e9:.4g} GFLOP in {roof.own_arithmetic}"
    yield "roofline", f"{roofline_text(correct)}; at least {work}"
    against = f"relative RMS, against the reference in {accuracy.oracle}"
    allclose = f"KernelBench's allclose {'passes' if accuracy.allclose else 'fails'}"
    yield "accuracy", f"{accuracy_text(accuracy)}; {against}; {allclose}"
    yield "precision", f"{accuracy.precision} was asked for"
    if shapes := shapes_text(correct):
        yield "other shapes", shapes
    if sanitized := sanitized_text(correct):
        yield "memory", sanitized
    if correct.profiled is not None:
        yield "profile", "\n".join(profile_lines(correct.profiled))
    yield "device", device_line(correct.device)
