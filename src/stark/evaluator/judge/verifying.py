"""Verifies a candidate: calls it on every trial and compares all results with the oracle."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Accuracy, Incorrect, Matched
from stark.core.precision import CLASSES
from stark.evaluator.candidate.program import floats_of
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.regimes import FLOATS, suggestion
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.problem.values import same_values
from stark.evaluator.judge.problem.weights import other_weights
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ChildFailed
from stark.evaluator.judge.trial import Called, Trial
from stark.evaluator.judge.verify.conditioning import MOVES, is_explained
from stark.evaluator.judge.verify.errors import as_real
from stark.evaluator.judge.verify.exact import MOST_RUNS, is_right
from stark.evaluator.judge.verify.mismatch import fault
from stark.evaluator.judge.verify.oracle import Comparison, ExpectedTensor, compare, near
from stark.languages import language

MOST_STALE = 8
"""Number of weights that are tried one by one to explain a wrong result."""

MOST_FAULTS = 3
"""Number of wrong results that are described; the others are named."""

ADVICE = {
    "early": "compute all outputs in forward: a loss reads them before backward",
    "transposed": "backward assumes a contiguous cotangent: call .contiguous() on it, or use its strides",
    "expanded": "backward assumes a contiguous cotangent: call .contiguous() on it, or use its strides",
    "frozen": "look at ctx.needs_input_grad: each gradient must be right whatever other gradients are needed",
    "interleaved": "keep what backward needs in ctx, not on the module or in a buffer that the next forward overwrites",
    "twice": "backward must leave the saved tensors as they are",
    "changed": "save tensors by ctx.save_for_backward, so that PyTorch raises an error; do not read weights in backward",
    "alone": "look at ctx.needs_input_grad: each gradient must be right whatever other gradients are needed",
    "inference": "forward must return the same outputs whether or not gradients are enabled",
}
"""By mode, what usually makes a kernel fail that passes in a simple call."""

STALE = "stale weights, read before the reference's are loaded; pack them in forward"


@dataclass(frozen=True)
class Verified:
    """Accuracy of a candidate that passed every trial."""

    accuracy: Accuracy
    budgets: tuple[float, ...]
    """Allowed relative RMS error of each result on the problem's own inputs."""


def verify(attempt: Attempt, child: Child, prepared: PreparedReference) -> Verified:
    """Call a candidate on every trial and compare its results with the oracle. Raises Verdict."""
    limit_s = attempt.limits.verify_s + prepared.slack_s
    if language(attempt.candidate.language).compiles_when_called:
        first_s = attempt.limits.build_s + prepared.slack_s
        with attempt.during("verify", first_s), attempt.charging_memory():
            warm_up(child, prepared)
        if prepared.program.differentiation is not None:  # it compiles for fewer gradients too
            limit_s += attempt.limits.build_s
    compiled = "torch.compile" in attempt.candidate.source
    with attempt.during("verify", limit_s), attempt.charging_memory():
        found = [
            (trial, comparison)
            for trial in prepared.trials.for_effort(attempt.effort, compiled)
            for comparison in _verify_on(trial, child, prepared)
        ]
        if prepared.trials.replaced is not None and attempt.effort != "race":
            found += _verify_replaced(prepared.trials.replaced, child, prepared)
    results = len(prepared.signature.outputs) + len(prepared.program.changes)
    nominal = [comparison for trial, comparison in found if trial.regime is None]
    budgets = tuple(max(each.budget for each in nominal[i::results]) for i in range(results))
    # How the problem's own inputs stand by another benchmark's tolerance, if the problem states one.
    tolerance = prepared.problem.declared.tolerance
    shares = [each.matched for each in nominal if each.matched is not None]
    comparisons = [comparison for _, comparison in found]
    worst = max(comparisons, key=lambda each: each.errors.relative_rms / (each.budget or 1.0))
    accuracy = Accuracy(
        relative_rms=worst.errors.relative_rms,
        budget=worst.budget,
        reference_relative_rms=worst.reference_errors.relative_rms,
        precision=attempt.limits.precision,
        # the strictest class whose budget no output exceeds
        meets=max((each.meets or CLASSES[-1] for each in comparisons), key=CLASSES.index),
        allclose=all(comparison.allclose for comparison in comparisons),
        oracle="float64" if prepared.trials.expectations.oracle_is_float64 else "float32",
        stated=tolerance and Matched(tolerance=tolerance, share=min(shares)),
    )
    return Verified(accuracy, budgets)


def warm_up(child: Child, prepared: PreparedReference, calls: int = 1) -> None:
    """Make calls that may compile, tune or record graphs, with a phase's deadline. Their results do not matter."""
    trials = prepared.trials
    prepared.shared.fill_inputs(trials.drawn(trials.nominal[0]), 0)
    prepared.settle()
    for _ in range(calls):
        child.ask({"do": "call", "slot": 0, "seed": 0})


def _verify_replaced(
    trial: Trial, child: Child, prepared: PreparedReference
) -> list[tuple[Trial, Comparison]]:
    """Verify a call with other weights: nothing may be kept that was computed from the former ones. Then restore them."""
    with other_weights(prepared.program.model, trial.seed):
        prepared.shared.replace_weights(child)
        found = [(trial, each) for each in _verify_on(trial, child, prepared)]
    prepared.shared.replace_weights(child)
    return found


def verify_on(
    trial: Trial, prepared: PreparedReference, call: Callable[[Drawn], Called]
) -> list[Comparison]:
    """Verify the calls of one trial, whose tensors may fill half of a device and are freed on return. Raises Verdict."""
    drawn = prepared.trials.drawn(trial)
    judged = Judged(prepared, drawn, trial)
    comparisons: list[Comparison] = []
    for number in range(trial.calls):
        found = call(drawn)
        try:
            comparisons += judged.as_reference(found) or judged.check(found, str(trial))
        except Verdict as verdict:
            evaluation = verdict.evaluation
            if found.odd is not None or not isinstance(evaluation, Incorrect):
                raise
            hints = _hints(trial, judged, found, number, call)
            error = "\n".join((evaluation.error, *hints))
            raise Verdict(evaluation.model_copy(update={"error": error})) from verdict
    return comparisons


def _verify_on(trial: Trial, child: Child, prepared: PreparedReference) -> list[Comparison]:
    """Verify the calls of one trial by the candidate's process."""

    def call(drawn: Drawn) -> Called:
        slot = secrets.randbelow(prepared.room.slots)
        prepared.shared.fill_inputs(drawn, slot)
        prepared.settle()
        request = {"do": "call", "slot": slot, "seed": 0, "mode": trial.mode}
        if trial.regime == FLOATS:
            request["floats"] = floats_of(drawn.arguments)
        try:
            odd = child.ask(request).get("odd")
        except ChildFailed as failure:
            if trial.mode is not None:
                failure.error = str(trial) + failure.error
            raise
        results = prepared.shared.results(slot)
        changed = prepared.shared.changed_input(drawn.tensors, prepared.shared.inputs[slot])
        return Called(results, changed, odd)

    return verify_on(trial, prepared, call)


def _hints(
    trial: Trial, judged: Judged, found: Called, number: int, call: Callable[[Drawn], Called]
) -> Iterator[str]:
    """Yield what other calls say about a failure: the same call repeated, and those on the problem's own inputs."""
    if trial.mode is not None:
        yield f"a simple forward and backward pass; {ADVICE[trial.mode]}"
        return
    if number > 0 or (judged.prepared.room.keeps_all and _differs(found, judged, call)):
        before = "an earlier call was correct" if number else "another call gave other results"
        yield f"{before} on the same inputs: a race, memory that is not initialized, or state kept between calls"
    elif trial.regime is not None:
        compared = list(map(compare, found.results, judged.expected))
        nonfinite = any(
            one.errors.nonfinite_mismatches > one.reference_errors.nonfinite_mismatches
            for one in compared
        )
        yield suggestion(trial.regime, nonfinite)


def _differs(found: Called, judged: Judged, call: Callable[[Drawn], Called]) -> bool:
    """Whether another call on the same inputs gives other results. A call that fails says nothing."""
    first = [result.clone() for result in found.results]
    try:
        second = call(judged.drawn)
    except (ChildFailed, Verdict):
        return False
    return second.odd is None and any(
        not same_values(one, other) and not near(one, other, right.budget)
        for one, other, right in zip(first, second.results, judged.expected, strict=True)
    )


@dataclass(frozen=True)
class Judged:
    """Inputs, and what is right of the results of calls on them."""

    prepared: PreparedReference
    drawn: Drawn
    trial: Trial

    @cached_property
    def expected(self) -> Sequence[ExpectedTensor]:
        """What the oracle expects. Raises torch.OutOfMemoryError."""
        return self.prepared.trials.expected(self.trial, self.drawn)

    def as_reference(self, called: Called) -> list[Comparison] | None:
        """What the oracle has said before of the reference's results, if the call's are the same to the bit.

        Where results are too large to be kept, this saves computing the oracle again.
        """
        own = self.prepared.trials.own.get(self.trial.simple)
        if own is None or called.odd is not None or called.changed is not None:
            return None
        theirs = map(as_real, self.prepared.program.run(self.drawn))
        same = all(map(same_values, map(as_real, called.results), theirs))
        return own if same and all(each.passes for each in own) else None

    def check(
        self, called: Called, when: str = "while the candidate was timed, "
    ) -> list[Comparison]:
        """Compare what a call leaves with the oracle. `when` is put before the message. Raises Verdict if anything is wrong."""
        found, changed, names = called.results, called.changed, self.prepared.result_names
        if called.odd is not None:
            error = _odd_results(called.odd, self.prepared)
            raise Verdict(Incorrect(error=when + error if isinstance(called.odd, dict) else error))
        pairs = zip(found, self.expected, strict=True)
        found = [right.decided(result) for result, right in pairs]
        comparisons = [self._compared(index, result) for index, result in enumerate(found)]
        wrong = [index for index, compared in enumerate(comparisons) if not compared.passes]
        faults = [
            fault(names[index], found[index], self.expected[index], self._others(index))
            for index in wrong[:MOST_FAULTS]
        ]
        if others := [names[index] for index in wrong[MOST_FAULTS:]]:
            faults.append(f"also wrong: {', '.join(others)}")
        if faults:
            raise Verdict(Incorrect(error=when + "\n".join(faults)))
        if changed is not None:
            name = self.prepared.input_name(changed)
            alone = self.prepared.program.differentiation is None
            what = f"forward changed its {name}" if alone else f"the call changed {name}"
            advice = "which the reference does not do; write to a new tensor"
            raise Verdict(Incorrect(error=f"{when}{what} in place, {advice}"))
        return comparisons

    def _compared(self, index: int, result: torch.Tensor) -> Comparison:
        """Compare one result with the oracle. Elements, lines and layers may be wrong where the problem is ill-conditioned."""
        right = self.expected[index]
        compared = compare(result, right)
        if compared.passes or not compared.passes_as_a_whole:
            return compared
        moved = partial(self.prepared.trials.expectations.moved, self.drawn, index)
        try:
            if right.exact:
                further = partial(moved, MOST_RUNS, MOVES, ties=False)
                explained = is_right(result, right.eager, right.oracle, further)
            else:
                explained = is_explained(result, right, moved)
        except (ProblemError, torch.OutOfMemoryError) as error:
            if isinstance(error, ProblemError) and is_out_of_memory(error):
                raise
            return compared  # as on a matrix that has moved to a singular one
        return replace(compared, meets=right.terms.precision) if explained else compared

    def _others(self, index: int) -> dict[str, torch.Tensor]:
        """Return, by name, tensors that forward may have returned by mistake instead of this result."""
        prepared, names, right = self.prepared, self.prepared.result_names, self.expected[index]
        others = {
            f"{prepared.input_name(place)} as it was passed": each
            for place, each in enumerate(self.drawn.tensors)
        }
        for name, each in zip(names, self.expected, strict=True):
            if each is not right:
                others[f"the expected {name}"] = each.eager
        if not prepared.room.keeps_all:
            return others  # the others would take memory
        kept = prepared.trials.kept.values()
        earlier = [outputs[index].eager for inputs, outputs in kept if inputs is not self.drawn]
        for number, eager in enumerate(earlier, 1):
            others[f"the expected {names[index]} of other, earlier inputs ({number})"] = eager
        weights = list(prepared.program.model.state_dict())
        for stale in (weights, *([one] for one in weights[:MOST_STALE] if len(weights) > 1)):
            try:
                initial = as_real(prepared.program.run_as_constructed(self.drawn, stale)[index])
            except ProblemError:
                break
            if not near(initial, right.eager, right.budget):
                which = "all weights" if stale is weights else f"the weight {stale[0]}"
                others[f"the result with {which} as __init__ made them: {STALE}"] = initial
        return others


def _odd_results(odd: object, prepared: PreparedReference) -> str:
    """Describe results whose forms, or gradients whose presence, differ from the reference's."""
    differentiation, specs = prepared.program.differentiation, prepared.signature.outputs
    if differentiation is not None:
        if isinstance(odd, dict):
            return differentiation.fault(odd)
        specs = specs[: differentiation.wanted.outputs]
    wanted = [f"{spec} on {prepared.device.type}" for spec in specs]
    got = ", ".join(map(str, odd)) if isinstance(odd, list) else "nothing"
    return f"forward returned {got}; expected {', '.join(wanted)}"
