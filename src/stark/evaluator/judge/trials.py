"""Defines the trials that candidates are verified on: secret inputs and their expected outputs.

Expected outputs are kept between candidates if memory allows. Otherwise they are computed again for
each candidate.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Effort
from stark.evaluator.judge.problem.degenerate import passing
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.regimes import REGIMES, changed
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.twin import Twin, is_out_of_memory, run_twin
from stark.evaluator.judge.room import Room
from stark.evaluator.judge.verify.oracle import (
    ExpectedErrors,
    ExpectedTensor,
    as_real,
    chunks,
    error_budget,
    expect,
)

PROMOTE_DRAWS, PROMOTE_CALLS = 3, 3
"""Number of extra draws at effort `promote`, and number of calls on each of these draws.

Several calls are made because a race condition makes only some calls fail.
"""

REGIME_ERROR_LIMIT = 1e-2
"""A regime is skipped if the reference's own relative RMS error exceeds this."""

NO_FLOAT64 = (
    "the reference does not run in float64, so candidates are compared with the reference's "
    "own outputs instead"
)
NO_ROOM = (
    "the reference does not fit into memory in float64, so candidates are compared with "
    "the reference's own outputs instead"
)


@dataclass(frozen=True)
class Trial:
    """Inputs to verify on: a secret seed, and the regime that transforms the inputs drawn from the seed."""

    seed: int
    regime: str | None = None
    """None for the problem's own inputs, untransformed."""

    calls: int = 1
    kept: bool = True
    """Whether later candidates use this trial too. Only then may its expected outputs be kept in memory."""

    @classmethod
    def fresh(cls, regime: str | None = None, calls: int = 1, kept: bool = True) -> Trial:
        """Create a trial with a new secret seed."""
        return cls(secrets.randbits(48), regime, calls, kept)

    def __str__(self) -> str:
        return f"with {self.regime} inputs, " if self.regime else ""


@dataclass(frozen=True)
class Expected:
    """A draw and its expected outputs."""

    drawn: Drawn
    outputs: list[ExpectedTensor]


class Trials:
    """Trials of one problem and their expected outputs."""

    def __init__(
        self, program: Program, signature: Signature, room: Room, nominal: Sequence[Trial]
    ) -> None:
        self._program, self._signature, self._room = program, signature, room
        self.nominal = nominal
        """Trials on the problem's own inputs."""

        self.always = list(nominal)
        """Trials that every candidate is verified on."""

        self.oracle_is_float64 = True
        self.short_of_memory = False
        """Whether a trial or the oracle was omitted for lack of memory."""

        self.warnings: tuple[str, ...] = ()
        self._kept: dict[Trial, Expected] = {}
        self._errors: dict[Trial, list[ExpectedErrors]] = {}
        """The reference's errors on every trial that later candidates use too.

        They are stored even if the expected outputs are too large to keep.
        """

        self._slices: dict[str | None, int] = {}
        """Number of slices in which the oracle was last computed, by regime.

        The key None stands for the problem's own inputs.
        """

    def find_oracle(self, drawn: Drawn, outputs: list[torch.Tensor]) -> None:
        """Try to compute a float64 oracle. If that fails, the reference's own outputs replace it."""
        if self._twin(drawn, outputs).outputs is None:
            self._without_oracle(NO_ROOM if self.short_of_memory else NO_FLOAT64)

    def expect_nominal(self) -> None:
        """Compute the expected outputs of the nominal trials before any candidate takes memory."""
        try:
            for trial in self.nominal:
                self.expected(trial)
        except torch.OutOfMemoryError:
            if not self.oracle_is_float64:
                raise
            self.short_of_memory = True
            self._without_oracle(NO_ROOM)

    def add_regimes(self, regimes: Sequence[str]) -> None:
        """Verify every candidate also in these regimes, except where the reference is inaccurate."""
        self.always += self._usable(regimes)
        self.warnings += self._degenerate()

    def for_effort(self, effort: Effort) -> Iterator[Trial]:
        """Yield the trials for one candidate.

        Effort `promote` adds new draws with repeated calls, and all remaining regimes.
        """
        yield from self.always
        if effort == "promote":
            for _ in range(PROMOTE_DRAWS):
                yield Trial.fresh(calls=PROMOTE_CALLS, kept=False)
            tried = {trial.regime for trial in self.always}
            others = [regime for regime in REGIMES if regime not in tried]
            yield from self._usable(others, kept=False)

    def fresh_inputs(self) -> Iterator[Drawn]:
        """Yield inputs for timing. All are new, so no candidate sees inputs that a later one will get."""
        while True:
            yield self.drawn(Trial.fresh())

    def drawn(self, trial: Trial) -> Drawn:
        """Return a trial's inputs, which are the same on every call."""
        if trial in self._kept:
            return self._kept[trial].drawn
        drawn = self._program.draw(trial.seed)
        self._signature.check(drawn, self._program)
        return drawn if trial.regime is None else changed(drawn, trial.regime, trial.seed)

    def expected(self, trial: Trial, drawn: Drawn | None = None) -> Expected:
        """Return a trial's inputs and expected outputs.

        Both are kept for later candidates if `trial.kept` and if they fit. `drawn` is the trial's
        inputs, if the caller has drawn them already. Raises torch.OutOfMemoryError.
        """
        if trial in self._kept:
            return self._kept[trial]
        drawn = drawn or self.drawn(trial)
        outputs = self.expected_of(drawn, trial.regime, self._errors.get(trial))
        expected = Expected(drawn, outputs)
        if trial.kept:
            self._errors[trial] = [output.errors for output in expected.outputs]
            if self._room.keeps_all:
                self._kept[trial] = expected
        return expected

    def expected_of(
        self,
        drawn: Drawn,
        regime: str | None = None,
        known: list[ExpectedErrors] | None = None,
    ) -> list[ExpectedTensor]:
        """Compute the expected outputs for these inputs.

        `known` holds the reference's errors if they were measured before. Raises torch.OutOfMemoryError
        if memory does not suffice for the oracle.
        """
        eager = self._program.run(drawn)
        twin = self._twin(drawn, eager, regime) if self.oracle_is_float64 else Twin(None)
        if not twin.fits:
            name = self._program.problem.name
            raise torch.OutOfMemoryError(f"{name}: no memory is left for the float64 oracle")
        errors: Sequence[ExpectedErrors | None] = known or [None] * len(eager)
        return [expect(*each) for each in zip(twin.outputs or eager, eager, errors, strict=True)]

    def error_budgets(self) -> tuple[float | None, ...]:
        """Return the error budget of each output: the smallest over the nominal trials.

        The budget is None for an output that must equal the reference's exactly. The tuple is empty before
        `expect_nominal`.
        """
        measured = [self._errors[trial] for trial in self.nominal if trial in self._errors]
        if not measured:
            return ()
        budgets: list[float | None] = []
        for spec, *found in zip(self._signature.outputs, *measured, strict=False):
            compared = as_real(torch.empty(0, dtype=getattr(torch, spec.dtype)))
            exact = not compared.is_floating_point()
            least = min(error_budget(compared.dtype, errors.eager) for errors in found)
            budgets.append(None if exact else least)
        return tuple(budgets)

    @property
    def kept(self) -> int:
        """Number of trials whose expected outputs are kept between candidates."""
        return len(self._kept)

    def close(self) -> None:
        """Free the kept outputs."""
        self._kept.clear()

    def _without_oracle(self, warning: str) -> None:
        self.oracle_is_float64, self.warnings = False, (warning,)
        self._kept.clear()
        self._errors.clear()

    def _twin(self, drawn: Drawn, eager: list[torch.Tensor], regime: str | None = None) -> Twin:
        """Compute the oracle for these inputs, or determine why there is none."""
        verified = self._slices.get(regime, 1)
        twin = run_twin(self._program, drawn, eager, not self._room.keeps_all, verified)
        self.short_of_memory |= not twin.fits
        self._slices[regime] = twin.slices
        return twin

    def _usable(self, regimes: Sequence[str], kept: bool = True) -> Iterator[Trial]:
        """Yield a trial for each regime in which the reference is finite and accurate."""
        tried = (Trial.fresh(regime, kept=kept) for regime in regimes)
        return (trial for trial in tried if self._is_usable(trial))

    def _is_usable(self, trial: Trial) -> bool:
        """Whether the reference is finite and accurate on these inputs."""
        try:
            outputs = self.expected(trial).outputs
        except (ProblemError, torch.OutOfMemoryError) as error:
            if not trial.kept and is_out_of_memory(error):
                raise  # a running candidate must not be able to prevent a trial by taking memory
            self._forget(trial)
            self.short_of_memory |= is_out_of_memory(error)
            return False
        accurate = all(map(_is_accurate, outputs))
        if not accurate:
            self._forget(trial)
        return accurate

    def _forget(self, trial: Trial) -> None:
        self._kept.pop(trial, None)
        self._errors.pop(trial, None)

    def _degenerate(self) -> tuple[str, ...]:
        """Return a warning if a null solver (a trivial answer, such as zeros) passes every trial."""
        first, *rest = self.always
        left = self._passing(first, None)
        for trial in rest:
            if left:
                left = self._passing(trial, left)
        if not left:
            return ()
        return (f"the problem is degenerate: {' and '.join(left)} would pass as a correct output",)

    def _passing(self, trial: Trial, among: list[str] | None) -> list[str]:
        expected = self.expected(trial)
        return passing(expected.drawn, expected.outputs, among)


def _is_accurate(output: ExpectedTensor) -> bool:
    """Whether the oracle is finite and the reference's own output is close to the oracle."""
    if not output.oracle.is_floating_point():
        return True
    return (
        all(bool(piece.isfinite().all()) for (piece,) in chunks(output.oracle))
        and not output.eager_errors.nonfinite_mismatches
        and output.eager_errors.relative_rms < REGIME_ERROR_LIMIT
    )
