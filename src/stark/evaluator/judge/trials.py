"""Which trials candidates are verified on, in a search, in a final check and among timed calls.

Expected outputs are kept between candidates if memory allows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import torch

from stark.core.errors import ProblemError
from stark.core.evaluation import Effort
from stark.evaluator.judge.expectations import NO_ROOM, Allowed, Expectations, is_accurate
from stark.evaluator.judge.problem.degenerate import passing
from stark.evaluator.judge.problem.indices import free
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.nearby import STEPS, USED, changeable
from stark.evaluator.judge.problem.regimes import (
    CONSTANTS,
    EXCHANGED,
    FLOATS,
    INDICES,
    OUTLIERS,
    REGIMES,
    SIGNS,
    changed,
)
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.problem.values import ChangesMore, is_inexact
from stark.evaluator.judge.problem.weights import variable
from stark.evaluator.judge.room import TRIALS
from stark.evaluator.judge.trial import WAYS, Trial
from stark.evaluator.judge.verify.errors import as_real
from stark.evaluator.judge.verify.oracle import Comparison, ExpectedTensor, Terms, compare, near

PROMOTE_DRAWS, PROMOTE_CALLS = 3, 3
"""Number of extra draws at effort `promote`, and of calls on each: a race condition makes only some calls fail."""

REGIMES_S = 1.0
"""Seconds for the regimes of a large problem, at least one of which is tried. A final check tries the others."""

SMALL_BYTES = 1 << 27
"""Inputs and outputs that take so much may be kept more often than planned (`room.TRIALS`)."""

MOST_ALONE, ALONE_S = 4, 0.5
"""How many inputs, the largest, and about how long, a regime is tried with in parts that the reference does not bear as a whole."""

NEARBY_TRIED = 5
"""How often slight changes are tried if the problem does not draw all inputs. Otherwise once: they are much like other draws."""

APART_S = 10.0
"""Seconds after which such inputs are not tried apart any more, where the reference does not bear a change of all."""

AS_OWN = (CONSTANTS, EXCHANGED, FLOATS)
"""The regimes whose inputs are no harder than the problem's own, so results must be as accurate."""

UNSEEN_SHARE: dict[Effort, float] = {"race": 0.0, "search": 0.1, "promote": 1.0}
"""Share of the calls in a regime among timed ones whose inputs are new. Of the others, which verification had too, the expected
outputs may be known already, which saves time."""

EXCHANGES = 2
"""Trials with exchanged elements, which may be few or many (`exchanged.py`)."""

MODES_S = 1.0
"""Seconds for the other ways of calling (`candidate/backward.py`) of a large problem in a search, at least one of which is
tried. Otherwise all are: the clock of a busy machine must not decide what a candidate is held to."""

WITH_ONE_FORWARD = ("early", "transposed", "expanded", "twice")
"""The modes of a problem that changes inputs in place, which a second forward would change again."""


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
        self._program, self._signature, self._keeps_all = program, signature, keeps_all
        self.expectations = Expectations(program, signature, keeps_all, terms)
        self.nominal = nominal
        """Trials on the problem's own inputs."""

        self.always = list(nominal)
        """Trials that every candidate is verified on."""

        self.replaced = Trial.fresh(replaced=True) if variable(program.model) else None
        """The trial with other weights, if the model has any. It counts on the caller to replace them."""

        self._with_floats: list[Trial] = []
        """The trial with other floats among the arguments, if there are any. Timed calls always have the problem's own."""

        self._fit: dict[str, bool] = {}
        """By mode, whether the reference itself is right in it."""

        self._changeable: dict[str, dict[int, float]] = {}
        """By regime, the harshest first, the inputs that it changes, the largest first (`regimes.changed`)."""

        self._nearby: dict[int, float] = {}
        """The inputs that other trials than the nominal ones change slightly, and by how much."""

        self.short_of_memory = False
        """Whether a trial or the oracle was omitted for lack of memory."""

        self._passing_first: list[str] | None = None
        """The null solvers that pass the first trial, if its expected outputs are not kept."""

        self.kept: dict[Trial, tuple[Drawn, list[ExpectedTensor]]] = {}
        """Inputs and expected outputs that are kept between candidates."""

        self.own: dict[Trial, list[Comparison]] = {}
        """What the oracle says of the reference's own results, where these are too large to be kept."""

    def expect_nominal(self) -> None:
        """Compute what the nominal trials expect. If the float64 oracle does not fit, the reference's outputs replace it."""
        ours = self.expectations
        try:
            outputs = self._expect_nominal()
        except torch.OutOfMemoryError:
            if not ours.oracle_is_float64:
                raise
            ours.without_oracle(NO_ROOM)
            self.short_of_memory = True
            outputs = self._expect_nominal()
        if ours.find_noise(outputs):
            outputs = self._expect_nominal()
        ours.learn(outputs)

    def _expect_nominal(self) -> list[list[Allowed]]:
        self.kept.clear()
        return [self._allowed(trial) for trial in self.nominal]

    def _allowed(self, trial: Trial) -> list[Allowed]:
        drawn = self.drawn(trial)
        outputs = self.expected(trial, drawn, keep=True)
        if trial is self.nominal[0] and not self._keeps_all:
            self._passing_first = passing(drawn, outputs, None)
        return self.expectations.allowed(outputs)

    def add_regimes(self) -> None:
        """Verify candidates also in regimes where the reference is accurate; if nothing is kept, in as many as take `REGIMES_S`."""
        begin = time.monotonic()
        self._changeable = self._regimes(self._find_constants())
        for regime in self._changeable:
            if regime == SIGNS and self.always[-1].regime == "mixed" and not self.always[-1].places:
                continue
            for _ in range(EXCHANGES if regime == EXCHANGED else 1):
                self.always += self._in_regime(regime, keep=True)
            if not self._keeps_all and time.monotonic() - begin > REGIMES_S:
                break
        if self._signature.has_floats:
            self._with_floats = self._in_regime(FLOATS, keep=True)
        self.expectations.warnings += self._null_solvers()

    def _regimes(self, constants: Collection[int]) -> dict[str, dict[int, float]]:
        """By regime, the inputs that it changes, if `constants` are those that the problem does not draw."""
        tensors = self._signature.drawn.tensors
        largest = sorted(range(len(tensors)), key=lambda place: -tensors[place].numel())
        inexact = [place for place in largest if is_inexact(tensors[place])]
        # A part that is zero in one of several factors would lie on the branch cut of an angle, a root or a logarithm.
        real = [place for place in inexact if not tensors[place].is_complex()]
        drawn = map(self.drawn, self.nominal[:2])
        below = free(self._program, *drawn) if self._signature.has_integers else {}
        found: dict[str, dict[int, float]] = {
            INDICES: {place: below[place] for place in largest if place in below}
        }
        for regime in REGIMES:
            found[regime] = dict.fromkeys(real if regime in ("mixed", SIGNS) else inexact, 0.0)
        for regime in (EXCHANGED, OUTLIERS):
            found[regime] = {place: 0.0 for place in inexact if place not in constants}
        return {name: places for name, places in found.items() if places or name in REGIMES}

    def _find_constants(self) -> list[int]:
        """Find by how much each input may change, and return those that the problem does not draw. A trial changes them too."""
        nominal = [self._program.with_state(self.drawn(trial)) for trial in self.nominal[:2]]
        inputs, weights = len(self._signature.drawn.tensors), variable(self._program.model)
        state = [inputs + i for i, name in enumerate(self._program.state) if name in weights]
        found = changeable(*nominal)
        places = [place for place in found if place < inputs or place in state]
        constants = [place for place in places if found[place]]
        self._nearby = {}
        steps = self._bearing({}, places, NEARBY_TRIED if constants else 1, time.monotonic())
        self._nearby = {place: USED * step for place, step in steps.items()}
        if self._nearby.keys() & constants:
            self.always += self._in_regime(CONSTANTS, keep=True)
        return constants

    def _bearing(
        self, known: dict[int, float], places: Sequence[int], tries: int, begin: float
    ) -> dict[int, float]:
        """The largest steps that the reference bears at these places, together or else of each half, besides what is known."""
        for step in STEPS if places else ():
            self._nearby = known | dict.fromkeys(places, step)
            if all(self._bears_a_change() for _ in range(tries)):
                return self._nearby
        if len(places) < 2 or time.monotonic() - begin > APART_S:
            return known
        half = len(places) // 2
        known = self._bearing(known, places[:half], tries, begin)
        return self._bearing(known, places[half:], tries, begin)

    def _bears_a_change(self) -> bool:
        """Whether the reference is finite and accurate with a new seed."""
        trial = Trial.fresh(CONSTANTS)
        borne = self._bears(trial, keep=True)
        self.kept.pop(trial, None)
        return borne

    def for_effort(self, effort: Effort, compiled: bool = False) -> Iterator[Trial]:
        """Yield the trials for one candidate. A race takes the problem's own inputs alone: its winner is verified on all.

        What `torch.compile` made of a candidate (`compiled`) is slower after a call with other floats. Only a final check
        makes one: it times other processes too.
        """
        if effort == "race":
            yield from self.nominal
            return
        yield from self.always
        if not compiled or effort == "promote":
            yield from self._with_floats
        yield from self._ways(effort)
        if effort == "promote":
            for _ in range(PROMOTE_DRAWS):
                yield Trial.fresh(calls=PROMOTE_CALLS)
            tried = {trial.regime for trial in self.always}
            for regime in self._changeable:
                if regime not in tried:
                    yield from self._in_regime(regime)

    @property
    def kinds(self) -> list[Trial]:
        """One trial of each kind of inputs that every candidate is verified on: the problem's own, and regimes."""
        return [self.nominal[0], *self.always[len(self.nominal) :]]

    def among_timed(self, trial: Trial, effort: Effort) -> Trial:
        """A trial of the same kind for a call among timed ones.

        Its inputs may be new, since a candidate could be right only where it remembers the inputs from verification. The
        problem's own always are. Those of a regime are by chance, if the reference accepts them (`says_something`).
        """
        other = replace(trial, seed=Trial.fresh().seed)
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
        begin, limited = time.monotonic(), effort == "search" and not self._keeps_all
        for mode in WITH_ONE_FORWARD if self._program.changes else WAYS:
            trial = replace(self.nominal[-1], mode=mode)
            if self._is_fit(mode, trial):
                yield trial
            if limited and time.monotonic() - begin > MODES_S:
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
                (mode != "expanded" or (is_accurate(each) and each.is_finite))
                and near(as_real(one), each.eager, each.budget + each.eager_errors.relative_rms)
                for one, each in zip(found, expected, strict=True)
            )
        return self._fit[mode]

    def drawn(self, trial: Trial) -> Drawn:
        """Return a trial's inputs, which are the same on every call."""
        trial = trial.simple
        if trial in self.kept:
            return self.kept[trial][0]
        drawn = self._program.draw(trial.seed)
        self._signature.check(drawn, self._program)
        if trial.mode == "expanded":
            return self._program.with_expanded_cotangents(drawn)
        own = any(trial.seed == each.seed for each in self.nominal)
        if trial.regime is None and (own or trial.replaced):
            return drawn
        if trial.regime in (None, CONSTANTS):
            drawn = self._program.with_state(drawn)
            return changed(drawn, CONSTANTS, trial.seed, self._nearby)
        found = self._changeable.get(trial.regime, {})
        places = {place: found[place] for place in trial.places or found}
        return changed(drawn, trial.regime, trial.seed, places)

    def expected(
        self, trial: Trial, drawn: Drawn | None = None, keep: bool = False
    ) -> list[ExpectedTensor]:
        """A trial's expected outputs. With `keep`, inputs and outputs are kept if they fit. Raises torch.OutOfMemoryError."""
        trial = trial.simple
        if trial in self.kept:
            return self.kept[trial][1]
        drawn = drawn or self.drawn(trial)
        outputs = self.expectations.of(drawn, bounded=trial.regime in (None, *AS_OWN))
        if (keep or trial.replaced) and self._keeps_all:
            self.kept[trial] = drawn, outputs
        elif keep:
            self.own[trial] = [compare(each.eager, each) for each in outputs]
        return outputs

    def _in_regime(self, regime: str, keep: bool = False) -> list[Trial]:
        """The trials of a regime in which the reference is finite and accurate: one with all inputs changed, if it bears that.

        Otherwise up to two, each with inputs changed that it bears together: the angle of a cosine is NaN in most
        regimes, and no other input would ever be in one.
        """
        trial = Trial.fresh(regime)
        if self._bears(trial, keep):
            return [trial]
        left = [*self._changeable.get(regime, {})][:MOST_ALONE]
        end = time.monotonic() + ALONE_S
        first = self._together(regime, left, end, keep) if len(left) > 1 else ()
        others = [place for trial in first for place in left if place not in (trial.places or ())]
        small = self._signature.bytes_in + self._signature.bytes_out < SMALL_BYTES
        if len(self.kept) > TRIALS and not small:  # more would take memory that candidates count on
            others = []
        return [*first, *self._together(regime, others, end, keep)]

    def _together(self, regime: str, places: Sequence[int], end: float, keep: bool) -> list[Trial]:
        """A trial of a regime with as many of these inputs changed as the reference bears, if any, tried up to a time."""
        found: list[Trial] = []
        for place in places:
            others = found[0].places or () if found else ()
            trial = replace(Trial.fresh(regime), places=(*others, place))
            if self._bears(trial, keep):
                for smaller in found:
                    self.kept.pop(smaller, None)
                found = [trial]
            if time.monotonic() > end:
                break
        return found

    def _bears(self, trial: Trial, keep: bool) -> bool:
        """Whether the reference is finite and accurate in a regime."""
        try:
            if self._is_usable(trial, self.expected(trial, keep=keep)):
                return True
        except (ProblemError, torch.OutOfMemoryError) as error:
            if keep and isinstance(error, ChangesMore):
                raise
            if not keep and is_out_of_memory(error):
                raise  # a running candidate must not be able to prevent a trial by taking memory
            self.short_of_memory |= is_out_of_memory(error)
        self.kept.pop(trial, None)
        return False

    def _is_usable(self, trial: Trial, outputs: Sequence[ExpectedTensor]) -> bool:
        returned = self._signature.returned  # another scale may make another shape
        return all(
            each.eager.shape == as_real(form).shape
            for each, form in zip(outputs, returned, strict=False)
        ) and self.expectations.are_usable(
            outputs, trial.regime in AS_OWN, trial.regime in (EXCHANGED, OUTLIERS)
        )

    def _null_solvers(self) -> tuple[str, ...]:
        """Return a warning if a null solver (a trivial answer, such as zeros) passes every trial."""
        left = self._passing_first
        begin = 0 if left is None else 1
        for place, trial in enumerate(self.always[begin:], begin):
            if left == []:
                break
            _, others = self.kept.get(self.always[1 if place == 0 else 0], (None, None))
            drawn = self.drawn(trial)
            found = passing(drawn, self.expected(trial, drawn), others)
            left = [name for name in found if left is None or name in left]
        if not left:
            return ()
        return (f"the problem is degenerate: {' and '.join(left)} would pass as a correct output",)
