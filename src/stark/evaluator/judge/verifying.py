"""Verifies a candidate: calls it on every trial and compares all results with the oracle."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Accuracy, Incorrect
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.trials import Expected, Trial
from stark.evaluator.judge.verify.oracle import Comparison, compare, fault


@dataclass(frozen=True)
class Verified:
    """Accuracy of a candidate that passed every trial."""

    accuracy: Accuracy
    budgets: tuple[float, ...]
    """Allowed relative RMS error of each result on the problem's own inputs."""


def verify(attempt: Attempt, child: Child, prepared: PreparedReference) -> Verified:
    """Call a candidate on every trial and compare its results with the oracle. Raises Verdict."""
    limit_s = attempt.limits.verify_s + prepared.slack_s
    with attempt.during("verify", limit_s), attempt.charging_memory():
        found = [
            (trial, comparison)
            for trial in prepared.trials.for_effort(attempt.effort)
            for comparison in _verify_on(trial, attempt, child, prepared)
        ]
    results = len(prepared.signature.outputs) + len(prepared.program.changes)
    nominal = [comparison.budget for trial, comparison in found if trial.regime is None]
    budgets = tuple(max(nominal[index::results]) for index in range(results))
    return Verified(_accuracy([comparison for _, comparison in found], prepared), budgets)


def _accuracy(comparisons: list[Comparison], prepared: PreparedReference) -> Accuracy:
    worst = max(comparisons, key=lambda found: found.errors.relative_rms / (found.budget or 1.0))
    return Accuracy(
        relative_rms=worst.errors.relative_rms,
        budget=worst.budget,
        reference_relative_rms=worst.reference_errors.relative_rms,
        allclose=all(found.allclose for found in comparisons),
        oracle="float64" if prepared.trials.oracle_is_float64 else "float32",
    )


def _verify_on(
    trial: Trial, attempt: Attempt, child: Child, prepared: PreparedReference
) -> list[Comparison]:
    """Verify the calls of one trial.

    The trial's tensors are freed on return, because they may fill half of a device's memory.
    """
    drawn = prepared.trials.drawn(trial)
    expected = None if prepared.expects_meanwhile else prepared.trials.expected(trial, drawn)
    comparisons = []
    for _ in range(trial.calls):
        slot = secrets.randbelow(prepared.slots)
        prepared.shared.fill_inputs(drawn, slot)
        prepared.settle()
        with child.asked({"do": "call", "slot": slot, "seed": 0}) as answer:
            # Computed while the candidate runs, which may include compiling.
            expected = expected or _expected_if_it_fits(prepared, trial, drawn)
        expected = expected or prepared.trials.expected(trial, drawn)
        results = prepared.shared.results(slot)
        changed = prepared.shared.changed_input(drawn, slot)
        odd = answer.get("odd")
        comparisons += check_results(prepared, results, changed, expected, odd, str(trial))
    return comparisons


def _expected_if_it_fits(
    prepared: PreparedReference, trial: Trial, drawn: Drawn
) -> Expected | None:
    """Return the expected outputs, or None if the running candidate leaves too little memory."""
    try:
        return prepared.trials.expected(trial, drawn)
    except (ProblemError, torch.OutOfMemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def check_results(
    prepared: PreparedReference,
    found: Sequence[torch.Tensor],
    changed: int | None,
    expected: Expected,
    odd: object,
    when: str,
) -> list[Comparison]:
    """Compare a call's results, outputs and then the inputs that the reference changes, with the oracle.

    While a candidate is timed, the results must lie in memory that it cannot write to. `changed` is the index of
    an input that the call changed and must not. `odd` lists the forms of the results (such as shapes and types)
    if these are not as expected; otherwise it is None. `when` is put before the message. Raises Verdict if anything
    is wrong.
    """
    if odd is not None:
        wanted = [f"{spec} on {prepared.device.type}" for spec in prepared.signature.outputs]
        got = ", ".join(map(str, odd)) if isinstance(odd, list) else "nothing"
        raise Verdict(Incorrect(error=f"forward returned {got}; expected {', '.join(wanted)}"))
    changes = prepared.program.changes
    names = [f"output {index}" for index in range(len(found) - len(changes))]
    names += [f"input {index} after the call" for index in changes]
    results = dict(zip(names, found, strict=True))
    comparisons, faults = [], []
    for (name, result), wanted_output in zip(results.items(), expected.outputs, strict=True):
        compared = compare(result, wanted_output)
        comparisons.append(compared)
        if not compared.passes:
            others = _others(expected, list(results), name)
            faults.append(fault(name, result, wanted_output, compared, others))
    if faults:
        raise Verdict(Incorrect(error=when + "\n".join(faults)))
    if changed is not None:
        raise Verdict(
            Incorrect(
                error=f"{when}forward changed its input {changed} in place, which the "
                "reference does not do; write to a new tensor"
            )
        )
    return comparisons


def _others(expected: Expected, results: list[str], name: str) -> dict[str, torch.Tensor]:
    """Return, by name, tensors that forward may have returned by mistake instead of a result."""
    inputs = {
        f"input {index} as it was passed": tensor
        for index, tensor in enumerate(expected.drawn.tensors)
    }
    outputs = {
        f"the expected {other}": wanted.eager
        for other, wanted in zip(results, expected.outputs, strict=True)
        if other != name
    }
    return inputs | outputs
