"""What is right on given inputs: the reference's results in float64, and how far a candidate's may be from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from stark.core.precision import CLASSES, Precision, floor_of, looser, rounding_of
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.twin import Twin
from stark.evaluator.judge.problem.values import is_inexact
from stark.evaluator.judge.problem.weights import nudging
from stark.evaluator.judge.verify.conditioning import DRAWS, nudged, without_ties
from stark.evaluator.judge.verify.errors import as_real
from stark.evaluator.judge.verify.exact import differing
from stark.evaluator.judge.verify.oracle import ExpectedTensor, Terms, apart, dtype_of, expect

GRANTED_SHARE, MOST_GRANTED = 0.1, 1e-2
"""In a regime that makes results small, an error passes that is absolutely at most this share of what passes on the
problem's own inputs, and relatively at most MOST_GRANTED. An approximation with a small absolute error is no fault, and what
this regime is for, such as a missing epsilon, has larger errors."""

REGIME_ERROR_LIMIT = 1e-2
"""A regime is skipped if the reference's own relative RMS error exceeds this."""

NOISE = 0.1
"""A gradient whose own relative RMS error in the reference is larger is nothing but rounding: it is zero in exact arithmetic,
such as that of a bias before a softmax or a normalization."""

NOISE_FACTOR = 10.0
"""Such a gradient may have an error of so many times the reference's, or the floor of the largest gradient's size."""

HARDER, COARSER = 2.0, 64.0
"""Inputs are no harder than the problem's own if the reference's error is at most HARDER times as large as on those, or at most
the budget by COARSER, where errors of all admitted arithmetic are small."""

INSTEAD = "so candidates are compared with the reference's own outputs instead"
NO_FLOAT64 = f"the reference does not run in float64, {INSTEAD}"
NO_ROOM = f"the reference does not fit into memory in float64, {INSTEAD}"

ORDERS = 8
"""Number of orders in which equal zeros are taken. An element that depends on the order is hardly ever the same in all."""


class Allowed(NamedTuple):
    """The error budget of one output and the reference's own error, both as relative RMS, and the budgets as RMS errors."""

    budget: float
    reference_error: float
    absolute: Mapping[Precision, float]
    """For each class."""

    is_zero: bool
    """Whether each exact value is zero."""

    is_finite: bool
    """Whether each value is finite, exact or as the reference computes it."""

    has_far_layers: bool
    """Whether values are so small that they cannot come of arithmetic at the size of the others."""

    is_other_in_float64: bool
    """Whether integers or booleans are others in float64, in more than a few elements."""


class Expectations:
    """The expected outputs of one problem. What its own inputs teach about them holds for all others."""

    def __init__(
        self, program: Program, signature: Signature, keeps_all: bool, terms: Terms
    ) -> None:
        self._program, self._signature, self._terms = program, signature, terms
        self._twin = Twin(program, save_memory=not keeps_all)
        self._keeps_all = keeps_all
        """Whether the expected outputs of all trials fit into memory."""

        differentiation = program.differentiation
        count = 0 if differentiation is None else sum(differentiation.wanted.present)
        begin = len(signature.outputs) - len(program.state) - count
        self._gradients = range(begin, begin + count)
        """The results that are gradients, behind the outputs."""

        self._noise: frozenset[int] = frozenset()
        """The results that are gradients and nothing but rounding."""

        self._own: dict[int, tuple[Allowed, ...]] = {}
        """What the nominal trials allow each output, so regimes do too."""

        self.oracle_is_float64 = True
        self.warnings: tuple[str, ...] = ()
        """What a user should know about the verification of every candidate."""

    @property
    def error_budgets(self) -> tuple[float | None, ...]:
        """The error budget of each output, the smallest of the nominal trials; None if it must equal the reference's."""
        return tuple(min(each.budget for each in draws) or None for draws in self._own.values())

    def learn(self, draws: Sequence[Sequence[Allowed]]) -> None:
        """Learn from the problem's own inputs what passes on others."""
        self._own = dict(enumerate(zip(*draws, strict=True)))
        self.warnings += self._beyond_budget([each for draw in draws for each in draw])

    def find_noise(self, draws: Sequence[Sequence[Allowed]]) -> bool:
        """Find the gradients that are nothing but rounding. Returns whether there are any."""
        self._noise = frozenset(
            index
            for index in self._gradients
            if all(draw[index].is_zero or draw[index].reference_error > NOISE for draw in draws)
        )
        return bool(self._noise)

    def of(self, drawn: Drawn, bounded: bool = True) -> list[ExpectedTensor]:
        """Compute the expected outputs for these inputs. Raises torch.OutOfMemoryError.

        `bounded` is false for a regime: its error budget has no limit, or the judge would demand more of a candidate
        on hard inputs than the reference can do.
        """
        eager = self._program.run(drawn)
        oracle = self._twin.outputs(drawn, eager) if self.oracle_is_float64 else None
        if oracle is None and self.oracle_is_float64 and not self.error_budgets:
            self.without_oracle(NO_FLOAT64)
        terms = replace(self._terms, bounded=bounded)
        moves = self._moves(drawn, oracle, eager)
        undecided = [None] * len(eager) if bounded else self._undecided(drawn, eager)
        found = []
        for place, (exact, ours, far) in enumerate(zip(oracle or eager, eager, moves, strict=True)):
            each = replace(expect(exact, ours, terms), moves=far)
            if not bounded:
                own = self._own.get(place, ())
                passes = {kind: min(draw.absolute[kind] for draw in own) for kind in CLASSES if own}
                granted = {
                    kind: min(GRANTED_SHARE * error / each.scale, MOST_GRANTED)
                    for kind, error in passes.items()
                }
                layered = any(draw.has_far_layers for draw in own)
                each = replace(each, layered=layered, granted=granted, undecided=undecided[place])
            found.append(each)
        return self._with_noise(found)

    def _with_noise(self, found: list[ExpectedTensor]) -> list[ExpectedTensor]:
        """Grant gradients that are nothing but rounding an error that is small beside the other gradients."""
        known = (found[index].scale for index in self._gradients if index not in self._noise)
        largest = max(known, default=0.0)
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
        if self._keeps_all and oracle is not None:
            moved = self._twin.outputs(_rounded(drawn), eager)
            if moved is not None:
                return [each.relative_rms for each in map(apart, moved, oracle)]
        return [0.0] * len(eager)

    def moved(
        self, drawn: Drawn, index: int, runs: int = DRAWS, times: float = 1.0, ties: bool = True
    ) -> Iterator[torch.Tensor]:
        """Yield results of the reference for one output, after inputs and weights have moved by up to `times` the class's rounding.

        Without `ties`, zeros among the inputs move, too. Raises torch.OutOfMemoryError.
        """
        precision = looser(self._terms.precision, self._terms.own)
        for seed in range(runs):
            generator = torch.Generator(self._program.device).manual_seed(seed)

            def nudge(tensor: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
                if tensor.is_complex():
                    return torch.view_as_complex(nudge(as_real(tensor), generator))
                if not tensor.is_floating_point():
                    return tensor
                return nudged(tensor, times * rounding_of(precision, dtype_of(tensor)), generator)

            inputs = drawn if ties else _without_ties(drawn, seed)
            near = Drawn(
                list(map(nudge, inputs.tensors)), drawn.arguments, tuple(map(nudge, drawn.state))
            )
            with nudging(self._program.model, nudge):
                outputs = self._program.run(near)
            yield outputs[index]

    def _undecided(self, drawn: Drawn, eager: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Where, in outputs of integers or booleans, it matters which of equal zeros among the inputs is taken first.

        A regime has such zeros, and the problem may have none.
        """
        tied = any(each.is_floating_point() and bool((each == 0).any()) for each in drawn.tensors)
        exact = [place for place, each in enumerate(eager) if tied and not is_inexact(each)]
        found = {place: torch.zeros_like(eager[place], dtype=torch.bool) for place in exact}
        first: dict[int, torch.Tensor] = {}
        for seed in range(ORDERS) if exact else ():
            results = self._program.run(_without_ties(drawn, seed))
            for place in exact:  # kept without the other results, which may be large
                found[place] |= results[place] != first.setdefault(place, results[place])
        return [found.get(place) for place in range(len(eager))]

    def without_oracle(self, warning: str) -> None:
        """Let the reference's own outputs replace the oracle."""
        self.oracle_is_float64, self.warnings = False, (warning,)

    def allowed(self, outputs: Sequence[ExpectedTensor]) -> list[Allowed]:
        """The error budgets of a nominal trial's outputs. Keeps no tensors."""
        return [
            Allowed(
                each.budget,
                each.eager_errors.relative_rms,
                {kind: each.budget_in(kind) * each.scale for kind in CLASSES},
                bool(self._gradients) and not bool(each.oracle.any()),
                each.is_finite,
                any(layer.is_far_in(each.terms.precision) for layer in each.layers),
                each.exact and not is_accurate(each),
            )
            for each in outputs[: len(self._signature.outputs)]
        ]

    def are_usable(self, outputs: Sequence[ExpectedTensor], as_own: bool, alike: bool) -> bool:
        """Whether the reference is finite and accurate; `as_own`: as a kernel must be; `alike`: about as on the problem's own inputs."""
        return all(
            (is_accurate(each) or any(draw.is_other_in_float64 for draw in own))
            and (each.is_finite or not all(draw.is_finite for draw in own))
            and (each.exact or not as_own or each.eager_errors.relative_rms <= each.budget)
            and (each.exact or not alike or each.eager_errors.relative_rms <= _most(each, own))
            for index, each in enumerate(outputs)
            for own in [self._own.get(index, ())]
        )

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


def _most(expected: ExpectedTensor, own: Sequence[Allowed]) -> float:
    """The largest error that the reference may have on inputs that are no harder than the problem's own."""
    error = max((draw.reference_error for draw in own), default=expected.budget)
    return min(expected.budget, max(HARDER * error, expected.budget / COARSER))


def _rounded(drawn: Drawn) -> Drawn:
    """The draw in float64, each number half a unit in its last place higher or lower; for narrower types, a float32's."""
    tensors: list[torch.Tensor] = []
    for tensor in drawn.tensors:
        if is_inexact(tensor):
            parts = as_real(tensor)
            generator = torch.Generator(tensor.device).manual_seed(len(tensors))
            up = torch.rand(parts.shape, generator=generator, device=tensor.device).round_()
            unit = min(torch.finfo(tensor.dtype).eps, torch.finfo(torch.float32).eps)
            moved = up.double().mul_(unit).add_(1 - unit / 2).mul_(parts)
            tensor = torch.view_as_complex(moved) if tensor.is_complex() else moved
        tensors.append(tensor)
    return replace(drawn, tensors=tensors)


def _without_ties(drawn: Drawn, seed: int) -> Drawn:
    """The draw with other zeros (`without_ties`)."""
    generators = (torch.Generator(each.device).manual_seed(seed) for each in drawn.tensors)
    return replace(drawn, tensors=list(map(without_ties, drawn.tensors, generators)))


def is_accurate(output: ExpectedTensor) -> bool:
    """Whether the reference's own output is close to the oracle where both are finite; of integers and booleans, in nearly all."""
    if output.exact:
        return differing(output.eager, output.oracle) is not None
    return output.eager_errors.relative_rms < max(
        REGIME_ERROR_LIMIT,
        floor_of(output.terms.precision, output.dtype),
        output.granted.get(output.terms.precision, 0.0),
    )
