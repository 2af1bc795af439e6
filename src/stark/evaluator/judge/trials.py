"""Defines the trials that candidates are verified on: secret inputs and their expected outputs.

Expected outputs are kept between candidates if memory allows. Otherwise they are computed again for
each candidate.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Effort
from stark.core.precision import CLASSES, Precision, floor_of, looser, rounding_of
from stark.evaluator.judge.problem.constants import STEPS, constant, redrawn
from stark.evaluator.judge.problem.degenerate import passing
from stark.evaluator.judge.problem.indices import drawn_anew, free
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.regimes import CONSTANTS, INDICES, REGIMES, changed
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.twin import Twin, is_out_of_memory
from stark.evaluator.judge.problem.values import ChangesMore
from stark.evaluator.judge.problem.weights import nudging, variable
from stark.evaluator.judge.verify.conditioning import DRAWS, nudged
from stark.evaluator.judge.verify.errors import as_real
from stark.evaluator.judge.verify.oracle import (
    ExpectedTensor,
    Terms,
    apart,
    expect,
    near,
)

PROMOTE_DRAWS, PROMOTE_CALLS = 3, 3
"""Number of extra draws at effort `promote`, and number of calls on each of these draws.

Several calls are made because a race condition makes only some calls fail.
"""

REGIMES_S = 1.0
"""Seconds for the regimes of a large problem, at least one of which is tried. A final check tries the others."""

GRANTED_SHARE, MOST_GRANTED = 0.1, 1e-2
"""In a regime that makes results small, an error passes that is absolutely at most this share of what passes on the
problem's own inputs, and relatively at most MOST_GRANTED. An approximation with a small absolute error is no fault, and what
this regime is for, such as a missing epsilon, has larger errors."""

REGIME_ERROR_LIMIT = 1e-2
"""A regime is skipped if the reference's own relative RMS error exceeds this."""

UNSEEN_SHARE: dict[Effort, float] = {"race": 0.0, "search": 0.1, "promote": 1.0}
"""Share of the calls in a regime among timed ones whose inputs are new. Of the others, which verification had too, the expected
outputs may be known already, which saves time."""

MODES_S = 1.0
"""Seconds for the other ways of calling (`candidate/backward.py`) in a search, at least one of which is tried. A final check
tries all."""

WAYS = {
    "early": "before backward ran, ",
    "transposed": "with a cotangent in other strides, as after a transpose, ",
    "expanded": "with an expanded cotangent of stride 0, as from sum(), ",
    "frozen": "while only inputs, or only parameters, required gradients, ",
    "interleaved": "with another forward between forward and backward, ",
    "twice": "in the second backward with retain_graph=True, ",
    "changed": "after an input or a parameter changed in place between forward and backward, ",
    "alone": "while only one input or parameter required a gradient, ",
    "inference": "under torch.no_grad(), ",
}
"""By mode, when a result was wrong. Those first that kernels have failed in."""

WITH_ONE_FORWARD = ("early", "transposed", "expanded", "twice")
"""The modes of a problem that changes inputs in place, which a second forward would change again."""

NOISE = 0.1
"""A gradient whose own relative RMS error in the reference is larger is nothing but rounding: it is zero in exact arithmetic,
such as that of a bias before a softmax or a normalization."""

NOISE_FACTOR = 10.0
"""Such a gradient may have an error of so many times the reference's, or the floor of the largest gradient's size."""

REPLACED = (
    "after its weights were replaced by load_state_dict (compute nothing from weights that is kept for later calls, or "
    "compute it again when a weight's `_version` has changed), "
)

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
    replaced: bool = False
    """Whether the model has other weights meanwhile, made from the seed."""

    mode: str | None = None
    """One of WAYS, in which a candidate is called; None for a simple call."""

    @classmethod
    def fresh(cls, regime: str | None = None, calls: int = 1, replaced: bool = False) -> Trial:
        """Create a trial with a new secret seed."""
        return cls(secrets.randbits(48), regime, calls, replaced)

    def __str__(self) -> str:
        if self.replaced:
            return REPLACED
        if self.mode is not None:
            return WAYS[self.mode]
        return f"with {self.regime} inputs, " if self.regime else ""


class Allowed(NamedTuple):
    """The error budget of one output and the reference's own error, both as relative RMS, and the budgets as RMS errors."""

    budget: float
    reference_error: float
    absolute: Mapping[Precision, float]
    """For each class."""

    is_zero: bool
    """Whether each exact value is zero."""

    is_finite: bool
    """Whether each exact value is finite."""

    has_far_layers: bool
    """See `ExpectedTensor`."""


class Trials:
    """Trials of one problem and their expected outputs."""

    def __init__(
        self,
        program: Program,
        signature: Signature,
        keeps_all: bool,
        nominal: Sequence[Trial],
        terms: Terms,
    ) -> None:
        self._program, self._signature, self._terms = program, signature, terms
        self._twin = Twin(program, save_memory=not keeps_all)
        self._keeps_all = keeps_all
        """Whether the expected outputs of all trials fit into memory."""

        self.nominal = nominal
        """Trials on the problem's own inputs."""

        self.always = list(nominal)
        """Trials that every candidate is verified on."""

        self.replaced = Trial.fresh(replaced=True) if variable(program.model) else None
        """The trial with other weights, if the model has any. It counts on the caller to replace them."""

        differentiation = program.differentiation
        self._gradients = 0 if differentiation is None else sum(differentiation.wanted.present)
        """The number of results that are gradients."""

        self._noise: frozenset[int] = frozenset()
        """The results that are gradients and nothing but rounding."""

        self._masked: frozenset[int] = frozenset()
        """The results that have infinite values or NaN on the problem's own inputs, so may have them in regimes too."""

        self._layered: frozenset[int] = frozenset()
        """The results that have far layers on the problem's own inputs, so are judged by them in regimes too."""

        self._fit: dict[str, bool] = {}
        """By mode, whether the reference itself is right in it."""

        self._ranges: dict[int, int] = {}
        """The inputs that INDICES draws anew."""

        self._constants: tuple[int, ...] = ()
        """The inputs that the problem does not draw and that other trials than the nominal ones change."""

        self._step = 0.0
        """By how much."""

        self.error_budgets: tuple[float | None, ...] = ()
        """The error budget of each output, the smallest of the nominal trials; None if it must equal the reference's."""

        self._absolute: tuple[Mapping[Precision, float], ...] = ()
        """The RMS error of each output that passes on the problem's own inputs, for each class."""

        self.oracle_is_float64 = True
        self.short_of_memory = False
        """Whether a trial or the oracle was omitted for lack of memory."""

        self.warnings: tuple[str, ...] = ()
        self.kept: dict[Trial, tuple[Drawn, list[ExpectedTensor]]] = {}
        """Inputs and expected outputs that are kept between candidates."""

    def expect_nominal(self) -> None:
        """Compute the expected outputs of the nominal trials before any candidate takes memory.

        If the float64 oracle does not fit, the reference's own outputs replace it.
        """
        try:
            outputs = [self._allowed(trial) for trial in self.nominal]
        except torch.OutOfMemoryError:
            if not self.oracle_is_float64:
                raise
            self._without_oracle(NO_ROOM)
            outputs = [self._allowed(trial) for trial in self.nominal]
        if self._find_noise(outputs):
            self.kept.clear()
            outputs = [self._allowed(trial) for trial in self.nominal]
        self._masked = frozenset(
            index for draw in outputs for index, each in enumerate(draw) if not each.is_finite
        )
        self._layered = frozenset(
            index for draw in outputs for index, each in enumerate(draw) if each.has_far_layers
        )
        self._absolute = tuple(
            {kind: min(each.absolute[kind] for each in draws) for kind in CLASSES}
            for draws in zip(*outputs, strict=True)
        )
        self.error_budgets = tuple(
            min(each.budget for each in draws) or None for draws in zip(*outputs, strict=True)
        )
        self.warnings += self._beyond_budget([each for draw in outputs for each in draw])

    @property
    def _first_gradient(self) -> int:
        """The place of the first gradient among the results, behind the outputs."""
        return len(self._signature.outputs) - len(self._program.state) - self._gradients

    def _find_noise(self, draws: Sequence[Sequence[Allowed]]) -> bool:
        """Find the gradients that are nothing but rounding. Returns whether there are any."""
        begin = self._first_gradient
        self._noise = frozenset(
            index
            for index, each in enumerate(zip(*draws, strict=True))
            if begin <= index < begin + self._gradients
            and all(draw.is_zero or draw.reference_error > NOISE for draw in each)
        )
        return bool(self._noise)

    def add_regimes(self) -> None:
        """Verify every candidate also in regimes, except where the reference is inaccurate.

        Where expected outputs are computed anew for each candidate, in as many as take `REGIMES_S`.
        """
        begin = time.monotonic()
        if self._signature.has_integers:
            self._ranges = free(self._program, *map(self.drawn, self.nominal[:2]))
        self._find_constants()
        for trial in self._usable(self._regimes(), keep=True):
            self.always.append(trial)
            if not self._keeps_all and time.monotonic() - begin > REGIMES_S:
                break
        self.warnings += self._degenerate()

    def _find_constants(self) -> None:
        """Find the inputs that the problem does not draw, and by how much they may change. Verify candidates on a change."""
        self._constants = constant(*map(self.drawn, self.nominal[:2]))
        for step in STEPS if self._constants else ():
            self._step = step
            for trial in self._usable([CONSTANTS], keep=True):
                self.always.append(trial)
                return
        self._constants = ()

    def for_effort(self, effort: Effort) -> Iterator[Trial]:
        """Yield the trials for one candidate.

        Effort `promote` adds new draws with repeated calls, and all remaining regimes. A race takes the problem's own
        inputs alone, since its winner is verified on all others.
        """
        if effort == "race":
            yield from self.nominal
            return
        yield from self.always
        yield from self._ways(effort)
        if effort == "promote":
            for _ in range(PROMOTE_DRAWS):
                yield Trial.fresh(calls=PROMOTE_CALLS)
            tried = {trial.regime for trial in self.always}
            yield from self._usable([each for each in self._regimes() if each not in tried])

    @property
    def kinds(self) -> list[Trial]:
        """One trial of each kind of inputs that every candidate is verified on: the problem's own, and regimes."""
        return [self.nominal[0], *self.always[len(self.nominal) :]]

    def among_timed(self, trial: Trial, effort: Effort) -> Trial:
        """A trial of the same kind for a call among timed ones.

        Its inputs may be new, since a candidate could be right only where it remembers the inputs from verification. The
        problem's own always are. Those of a regime are by chance, if the reference accepts them (`says_something`).
        """
        other = Trial.fresh(trial.regime)
        if trial.regime is not None:
            if random.SystemRandom().random() >= UNSEEN_SHARE[effort]:
                return trial
            try:
                self._program.run(self.drawn(other))
            except (ProblemError, torch.OutOfMemoryError):
                return trial
        return other

    def says_something(self, trial: Trial, outputs: Sequence[ExpectedTensor]) -> bool:
        """Whether the reference is finite and accurate on a trial's inputs, so that other results are wrong."""
        return trial in self.always or trial.regime is None or self._is_usable(trial, outputs)

    def _ways(self, effort: Effort) -> Iterator[Trial]:
        """Yield a trial for each way of calling, if gradients are judged."""
        if self._program.differentiation is None:
            return
        begin = time.monotonic()
        for mode in WITH_ONE_FORWARD if self._program.changes else WAYS:
            trial = replace(self.nominal[-1], mode=mode)
            if self._is_fit(mode, trial):
                yield trial
            if effort == "search" and time.monotonic() - begin > MODES_S:
                return

    def _is_fit(self, mode: str, trial: Trial) -> bool:
        """Whether the reference itself is right in a way of calling. It is tried once for each problem.

        For example, torch.utils.checkpoint computes again from an input that has changed meanwhile, and no error is raised.
        """
        if mode not in self._fit:
            drawn = self.drawn(trial)
            expected = self.expected(trial, drawn, keep=True)
            try:
                found = self._program.run(drawn, mode=mode)
            except ProblemError as error:
                if is_out_of_memory(error):
                    raise
                found = []
            self._fit[mode] = len(found) == len(expected) and all(
                (mode != "expanded" or (_is_accurate(each) and each.is_finite))
                and near(as_real(one), each.eager, each.budget + each.eager_errors.relative_rms)
                for one, each in zip(found, expected, strict=True)
            )
        return self._fit[mode]

    def _regimes(self) -> list[str]:
        """The harshest first."""
        return [*([INDICES] if self._ranges else []), *REGIMES]

    def drawn(self, trial: Trial) -> Drawn:
        """Return a trial's inputs, which are the same on every call."""
        trial = _simple(trial)
        if trial in self.kept:
            return self.kept[trial][0]
        drawn = self._program.draw(trial.seed)
        self._signature.check(drawn, self._program)
        if trial.mode == "expanded":
            return self._program.with_expanded_cotangents(drawn)
        own = any(trial.seed == each.seed for each in self.nominal)
        if trial.regime == CONSTANTS or (trial.regime is None and not own and not trial.replaced):
            return redrawn(drawn, self._constants, self._step, trial.seed)
        if trial.regime is None:
            return drawn
        if trial.regime == INDICES:
            return drawn_anew(drawn, self._ranges, trial.seed)
        return changed(drawn, trial.regime, trial.seed)

    def expected(
        self, trial: Trial, drawn: Drawn | None = None, keep: bool = False
    ) -> list[ExpectedTensor]:
        """Return a trial's expected outputs.

        `drawn` is the trial's inputs, if the caller has drawn them already. With `keep`, both are kept for later
        candidates if they fit. Raises torch.OutOfMemoryError.
        """
        trial = _simple(trial)
        if trial in self.kept:
            return self.kept[trial][1]
        drawn = drawn or self.drawn(trial)
        outputs = self.expected_of(drawn, bounded=trial.regime in (None, CONSTANTS))
        if (keep or trial.replaced) and self._keeps_all:
            self.kept[trial] = drawn, outputs
        return outputs

    def expected_of(self, drawn: Drawn, bounded: bool = True) -> list[ExpectedTensor]:
        """Compute the expected outputs for these inputs. Raises torch.OutOfMemoryError.

        `bounded` is false for a regime: its error budget has no limit, or the judge would demand more of a candidate
        on hard inputs than the reference can do.
        If the reference does not run in float64, its own outputs replace the oracle.
        """
        eager = self._program.run(drawn)
        oracle = self._twin.outputs(drawn, eager) if self.oracle_is_float64 else None
        if oracle is None and self.oracle_is_float64 and not self.error_budgets:
            self._without_oracle(NO_FLOAT64)
        terms = replace(self._terms, bounded=bounded)
        moves = self._moves(drawn, oracle, eager)
        found = [
            replace(
                expect(exact, ours, terms), moves=far, layered=bounded or place in self._layered
            )
            for place, (exact, ours, far) in enumerate(
                zip(oracle or eager, eager, moves, strict=True)
            )
        ]
        if not bounded and self._absolute:
            granted = [
                {
                    kind: min(GRANTED_SHARE * passes / each.scale, MOST_GRANTED)
                    for kind, passes in absolute.items()
                }
                for each, absolute in zip(found, self._absolute, strict=False)
            ]
            found[: len(granted)] = [
                replace(each, granted=grant) for each, grant in zip(found, granted, strict=False)
            ]
        return self._with_noise(found)

    def _with_noise(self, found: list[ExpectedTensor]) -> list[ExpectedTensor]:
        """Grant gradients that are nothing but rounding an error that is small beside the other gradients."""
        if not self._noise:
            return found
        begin = self._first_gradient
        largest = max(
            (found[i].scale for i in range(begin, begin + self._gradients) if i not in self._noise),
            default=0.0,
        )
        for index in self._noise:
            each = found[index]
            own, share = NOISE_FACTOR * each.eager_errors.relative_rms, largest / each.scale
            granted = {kind: max(own, floor_of(kind, each.dtype) * share) for kind in CLASSES}
            found[index] = replace(each, granted=granted)
        return found

    def _moves(
        self, drawn: Drawn, oracle: Sequence[torch.Tensor] | None, eager: list[torch.Tensor]
    ) -> list[float]:
        """How far the exact results move when inputs move by their own rounding. A large problem has no room for this."""
        moved = None
        if self._keeps_all and oracle is not None:
            moved = self._twin.outputs(_rounded(drawn), eager)
        if moved is None or oracle is None:
            return [0.0] * len(eager)
        pairs = zip(moved, oracle, strict=True)
        return [apart(one, other) for one, other in pairs]

    def moved(self, drawn: Drawn, index: int) -> Iterator[torch.Tensor]:
        """Yield the reference's own results for one output, each after inputs and weights have moved by the class's rounding.

        Raises torch.OutOfMemoryError.
        """
        precision = looser(self._terms.precision, self._terms.own)
        for seed in range(DRAWS):
            generator = torch.Generator(self._program.device).manual_seed(seed)

            def nudge(tensor: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
                if not tensor.is_floating_point():
                    return tensor
                dtype = str(tensor.dtype).removeprefix("torch.")
                return nudged(tensor, rounding_of(precision, dtype), generator)

            near = Drawn([nudge(tensor) for tensor in drawn.tensors], drawn.arguments)
            with nudging(self._program.model, nudge):
                outputs = self._program.run(near)
            yield outputs[index]

    def _without_oracle(self, warning: str) -> None:
        self.oracle_is_float64, self.warnings = False, (warning,)
        self.short_of_memory |= warning == NO_ROOM
        self.kept.clear()

    def _allowed(self, trial: Trial) -> list[Allowed]:
        """The error budgets of a nominal trial's outputs. Keeps no tensors."""
        outputs = self.expected(trial, keep=True)[: len(self._signature.outputs)]
        return [
            Allowed(
                each.budget,
                each.eager_errors.relative_rms,
                {kind: each.budget_in(kind) * each.scale for kind in CLASSES},
                bool(self._gradients) and not bool(each.oracle.any()),
                each.is_finite,
                each.has_far_layers,
            )
            for each in outputs
        ]

    def _beyond_budget(self, outputs: Sequence[Allowed]) -> tuple[str, ...]:
        """Return a warning if the reference itself would fail, because its own error is above a budget's limit."""
        beyond = [each for each in outputs if each.reference_error > each.budget > 0]
        if not beyond:
            return ()
        worst = max(beyond, key=lambda each: each.reference_error / each.budget)
        return (
            f"the reference's own relative RMS error, {worst.reference_error:.2g}, is above the largest that the "
            f"precision {self._terms.precision} allows, {worst.budget:.2g}, so a candidate must be more accurate than "
            "the reference; use a better conditioned reference, or choose a looser precision",
        )

    def _usable(self, regimes: Sequence[str], keep: bool = False) -> Iterator[Trial]:
        """Yield a trial for each regime in which the reference is finite and accurate."""
        for trial in map(Trial.fresh, regimes):
            try:
                usable = self._is_usable(trial, self.expected(trial, keep=keep))
            except (ProblemError, torch.OutOfMemoryError) as error:
                if keep and isinstance(error, ChangesMore):
                    raise
                if not keep and is_out_of_memory(error):
                    raise  # a running candidate must not be able to prevent a trial by taking memory
                self.short_of_memory |= is_out_of_memory(error)
                continue
            if usable:
                yield trial
            else:
                self.kept.pop(trial, None)

    def _is_usable(self, trial: Trial, outputs: Sequence[ExpectedTensor]) -> bool:
        return all(
            _is_accurate(each)
            and (index in self._masked or each.is_finite)
            and (trial.regime != CONSTANTS or _would_pass(each))
            for index, each in enumerate(outputs)
        )

    def _degenerate(self) -> tuple[str, ...]:
        """Return a warning if a null solver (a trivial answer, such as zeros) passes every trial."""
        left: list[str] | None = None
        for place, trial in enumerate(self.always):
            others = self._kept_outputs(self.always[1 if place == 0 else 0])
            found = passing(self.drawn(trial), self.expected(trial), others)
            left = [name for name in found if left is None or name in left]
            if not left:
                return ()
        return (
            f"the problem is degenerate: {' and '.join(left or ())} would pass as a correct output",
        )

    def _kept_outputs(self, trial: Trial) -> list[ExpectedTensor] | None:
        return self.kept[trial][1] if trial in self.kept else None


def _rounded(drawn: Drawn) -> Drawn:
    """The draw in float64, with each number half a float32's unit in the last place higher or lower.

    Of float64, half its own unit. Narrower types are computed with in float32.
    """
    tensors: list[torch.Tensor] = []
    for tensor in drawn.tensors:
        if tensor.is_floating_point():
            generator = torch.Generator(tensor.device).manual_seed(len(tensors))
            up = torch.randint(2, tensor.shape, generator=generator, device=tensor.device) * 2 - 1
            unit = min(torch.finfo(tensor.dtype).eps, torch.finfo(torch.float32).eps)
            tensor = tensor.double() * (1 + unit / 2 * up)
        tensors.append(tensor)
    return Drawn(tensors, drawn.arguments)


def _simple(trial: Trial) -> Trial:
    """The trial with the same inputs and expected outputs in which the candidate is simply called."""
    return trial if trial.mode == "expanded" else replace(trial, mode=None)


def _is_accurate(output: ExpectedTensor) -> bool:
    """Whether the reference's own output is close to the oracle, and as finite."""
    if not output.oracle.is_floating_point():
        return True
    return not output.eager_errors.nonfinite_mismatches and output.eager_errors.relative_rms < max(
        REGIME_ERROR_LIMIT, output.floor, output.granted.get(output.terms.precision, 0.0)
    )


def _would_pass(output: ExpectedTensor) -> bool:
    """Whether the reference's own output is within the budget."""
    return output.exact or output.eager_errors.relative_rms <= output.budget
