"""What the candidates of a problem are verified on: inputs from secret seeds, and what the reference makes of them.

Values are kept between candidates where there is room, and worked out anew for each where there is not. Knows no candidate.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Effort
from stark.evaluator.judge.problem.degenerate import Answer, null_solvers, passing
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.regimes import REGIMES, changed
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.twin import Twin, ran_out, run_twin
from stark.evaluator.judge.room import Room
from stark.evaluator.judge.verify.oracle import (
    ExpectedErrors,
    ExpectedTensor,
    as_real,
    chunks,
    error_budget,
    expect,
)

MORE_TRIALS, REPEATS = 3, 3
"""Fresh draws at `promote`, and how often each is run: a race shows on some calls only."""

REGIME_ERROR_LIMIT = 1e-2
"""A regime in which the reference's own relative error is beyond this says nothing about a candidate."""

NO_FLOAT64 = "the reference does not run in float64, so candidates are held against its own outputs"
NO_ROOM = "the reference does not fit into memory in float64, so candidates are held against its own outputs"


@dataclass(frozen=True)
class Trial:
    """Which inputs to verify on: a secret seed, and the regime that its draw is put into."""

    seed: int
    regime: str | None = None
    """None for the problem's own inputs as they are drawn."""

    calls: int = 1
    kept: bool = True
    """Whether what is expected of it is of use to the next candidate."""

    @classmethod
    def fresh(cls, regime: str | None = None, calls: int = 1, kept: bool = True) -> Trial:
        """A trial that nobody saw before."""
        return cls(secrets.randbits(48), regime, calls, kept)

    def __str__(self) -> str:
        return f"with {self.regime} inputs, " if self.regime else ""


@dataclass(frozen=True)
class Expected:
    """A drawn set of inputs and what the reference makes of it."""

    drawn: Drawn
    outputs: list[ExpectedTensor]


class Trials:
    """The trials of one problem."""

    def __init__(
        self, program: Program, signature: Signature, room: Room, nominal: Sequence[Trial]
    ) -> None:
        self._program, self._signature, self._room = program, signature, room
        self.nominal = nominal
        """On the problem's own inputs."""

        self.always = list(nominal)
        """On which every candidate is verified."""

        self.oracle_is_float64 = True
        self.short_of_memory = False
        """Whether something was left out that more memory would have allowed."""

        self.warnings: tuple[str, ...] = ()
        self._kept: dict[Trial, Expected] = {}
        self._errors: dict[Trial, list[ExpectedErrors]] = {}
        """Of the trials that every candidate is verified on; kept where what they belong to is too large to be."""

        self._slices: dict[str | None, int] = {}
        """Into how many the inputs of a regime, or the problem's own, were cut when their oracle was last computed."""

    def find_oracle(self, drawn: Drawn, outputs: list[torch.Tensor]) -> None:
        """Learn from inputs, and what the reference made of them, whether there is an oracle."""
        if self._twin(drawn, outputs).outputs is None:
            self._without_oracle(NO_ROOM if self.short_of_memory else NO_FLOAT64)

    def expect_nominal(self) -> None:
        """Measure what candidates are held to now, while none of them takes memory from the oracle."""
        try:
            for trial in self.nominal:
                self.expected(trial)
        except torch.OutOfMemoryError:
            if not self.oracle_is_float64:
                raise
            self.short_of_memory = True
            self._without_oracle(NO_ROOM)

    def choose(self, regimes: Sequence[str]) -> None:
        """Verify every candidate in those of the regimes in which the reference makes sense."""
        self.always += self._sensible(regimes)
        self.warnings += self._degenerate()

    def for_effort(self, effort: Effort) -> Iterator[Trial]:
        """What a candidate is verified on; `promote` adds fresh draws, repeats them, and tries every regime."""
        yield from self.always
        if effort == "promote":
            for _ in range(MORE_TRIALS):
                yield Trial.fresh(calls=REPEATS, kept=False)
            tried = {trial.regime for trial in self.always}
            others = [regime for regime in REGIMES if regime not in tried]
            yield from self._sensible(others, kept=False)

    def unseen(self) -> Iterator[Drawn]:
        """Inputs to time on, none of them twice: what one candidate printed about them must not serve the next."""
        while True:
            yield self.drawn(Trial.fresh())

    def drawn(self, trial: Trial) -> Drawn:
        """A trial's inputs; the same every time."""
        if trial in self._kept:
            return self._kept[trial].drawn
        drawn = self._program.draw(trial.seed)
        self._signature.check(drawn, self._program)
        return drawn if trial.regime is None else changed(drawn, trial.regime, trial.seed)

    def expected(self, trial: Trial, drawn: Drawn | None = None) -> Expected:
        """Inputs and expected values for a trial; kept between candidates where they are small enough.

        `drawn` are its inputs, where they are at hand.
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
        """What the reference makes of these inputs. `known` is what was measured of it before, if it was.

        Raises torch.OutOfMemoryError where there is an oracle, and no memory for it now.
        """
        eager = self._program.run(drawn)
        twin = self._twin(drawn, eager, regime) if self.oracle_is_float64 else Twin(None)
        if not twin.fits:
            name = self._program.problem.name
            raise torch.OutOfMemoryError(f"{name}: no memory is left for the oracle")
        errors: Sequence[ExpectedErrors | None] = known or [None] * len(eager)
        return [expect(*each) for each in zip(twin.outputs or eager, eager, errors, strict=True)]

    def error_budgets(self) -> tuple[float | None, ...]:
        """The error budget of each output on the problem's own inputs; None for an output that must be equal.

        Of several trials the smallest counts. Empty before `expect_nominal`.
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
        """How many have their values kept between candidates."""
        return len(self._kept)

    def close(self) -> None:
        """Forget the values."""
        self._kept.clear()

    def _without_oracle(self, warning: str) -> None:
        self.oracle_is_float64, self.warnings = False, (warning,)
        self._kept.clear()
        self._errors.clear()

    def _twin(self, drawn: Drawn, eager: list[torch.Tensor], regime: str | None = None) -> Twin:
        """The oracle for these inputs, or why there is none."""
        agreed = self._slices.get(regime, 1)
        twin = run_twin(self._program, drawn, eager, not self._room.keeps_all, agreed)
        self.short_of_memory |= not twin.fits
        self._slices[regime] = twin.slices
        return twin

    def _sensible(self, regimes: Sequence[str], kept: bool = True) -> Iterator[Trial]:
        """Trials in those of the regimes in which the reference itself makes sense."""
        tried = (Trial.fresh(regime, kept=kept) for regime in regimes)
        return (trial for trial in tried if self._makes_sense(trial))

    def _makes_sense(self, trial: Trial) -> bool:
        """Whether the reference is finite and accurate on these inputs."""
        try:
            outputs = self.expected(trial).outputs
        except (ProblemError, torch.OutOfMemoryError) as error:
            if not trial.kept and ran_out(error):
                raise  # a candidate is there, and may not choose what it is tried on
            self._forget(trial)
            self.short_of_memory |= ran_out(error)
            return False
        sound = all(map(_is_sound, outputs))
        if not sound:
            self._forget(trial)
        return sound

    def _forget(self, trial: Trial) -> None:
        self._kept.pop(trial, None)
        self._errors.pop(trial, None)

    def _degenerate(self) -> tuple[str, ...]:
        """Which answers that need no work pass on every trial, in a sentence."""
        first, *rest = self.always
        left = self._passing(first, None)
        for trial in rest:
            if left:
                left = self._passing(trial, left)
        if not left:
            return ()
        return (f"the problem is degenerate: {' and '.join(left)} would pass as its answer",)

    def _passing(self, trial: Trial, solvers: dict[str, Answer] | None) -> dict[str, Answer]:
        """Those of the solvers, or of all there are, that pass on a trial."""
        expected = self.expected(trial)
        if solvers is None:
            solvers = null_solvers(expected.drawn, expected.outputs)
        return passing(expected.drawn, expected.outputs, solvers)


def _is_sound(output: ExpectedTensor) -> bool:
    """Whether a result is finite and what the reference computes is near it."""
    if not output.oracle.is_floating_point():
        return True
    return (
        all(bool(piece.isfinite().all()) for (piece,) in chunks(output.oracle))
        and not output.eager_errors.unlike
        and output.eager_errors.relative_rms < REGIME_ERROR_LIMIT
    )
