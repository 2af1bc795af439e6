"""One problem made ready to judge candidates: reference, oracle, secret seeds, shared memory, a running reference.

Everything here is kept warm between candidates of the same problem. Knows no candidate.
"""

from __future__ import annotations

import math
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from stark.core.device import Device
from stark.core.errors import ProblemError
from stark.core.evaluation import Effort
from stark.core.measurement import Measurement
from stark.core.problem import Problem
from stark.core.profile import Profile
from stark.core.reference import Reference, TensorSpec
from stark.evaluator.judge.problem.arguments import varying
from stark.evaluator.judge.problem.degenerate import Answer, null_solvers, passing
from stark.evaluator.judge.problem.impossible import fresh_bytes, least_ms
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.regimes import REGIMES, changed
from stark.evaluator.judge.problem.roofline import (
    bandwidth_now,
    caches_bytes,
    roofline,
    synchronize,
)
from stark.evaluator.judge.problem.twin import Twin, ran_out, run_twin
from stark.evaluator.judge.processes.children import Forkserver
from stark.evaluator.judge.profiling import reference_profile
from stark.evaluator.judge.room import Room
from stark.evaluator.judge.running import EAGER, RunningReference, start_reference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.rounds import Timed, time_alone
from stark.evaluator.judge.verify.oracle import (
    ExpectedErrors,
    ExpectedTensor,
    chunks,
    expect,
)
from stark.evaluator.protocol import Limits

NOMINAL_TRIALS = 2
"""How many sets of the problem's own inputs every candidate is verified on, beside the regimes."""

MORE_TRIALS, REPEATS = 3, 3
"""Fresh draws at `promote`, and how often each is run: a race shows on some calls only."""

RANDOM_LIMIT = 1e-2
"""Relative difference of two calls on the same input above which the reference counts as random."""


REGIME_ERROR_LIMIT = 1e-2
"""A regime in which the reference's own relative error is beyond this says nothing about a candidate."""


PROFILED = "profiled"
"""Name of the reference's process that is profiled and never timed."""

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

    def __str__(self) -> str:
        return f"with {self.regime} inputs, " if self.regime else ""


@dataclass(frozen=True)
class Expected:
    """A drawn set of inputs and what the reference makes of it."""

    drawn: Drawn
    outputs: list[ExpectedTensor]


class PreparedReference:
    """Raises ProblemError when the problem cannot be used."""

    def __init__(
        self,
        problem: Problem,
        device: torch.device,
        sheet: Device,
        forkserver: Forkserver,
        only_nominal: bool = False,
    ) -> None:
        self.problem, self.device, self.sheet = problem, device, sheet
        self.forkserver = forkserver
        with ExitStack() as held:  # what was made is given back where the problem cannot be used
            self._held = held
            self._prepare(only_nominal)
            self._held = held.pop_all()

    def _prepare(self, only_nominal: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="problem-", dir=self.forkserver.folder))
        self._held.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.program = Program(self.problem, self.folder, self.device)
        self._held.callback(self.program.close)
        self.nominal = [Trial(secrets.randbits(48)) for _ in range(NOMINAL_TRIALS)]
        self._kept: dict[Trial, Expected] = {}
        self._errors: dict[Trial, list[ExpectedErrors]] = {}
        """Of the trials that every candidate is verified on; kept where what they belong to is too large to be."""

        self._slices: dict[str | None, int] = {}
        """Into how many the inputs of a regime, or the problem's own, were cut when their oracle was last computed."""

        self._learn(self.program.draw(self.nominal[0].seed))
        self.shared = self._new_set("candidate")
        self._held.callback(self.shared.arena.close)
        self._expect_nominal()
        self._running: dict[str, RunningReference | ProblemError] = {}
        self._eager: Measurement | None = None
        self._profile: Profile | None = None
        regimes = [] if only_nominal else list(REGIMES) if self.keeps_all else list(REGIMES)[:1]
        self.trials = [*self.nominal, *self._sensible(regimes)]
        if not only_nominal:
            self.warnings += self._degenerate()

    def _learn(self, drawn: Drawn) -> None:
        """Find out about the program what does not change, by its first inputs."""
        outputs, peak_bytes = self._run_first(drawn)
        returned = outputs[: len(outputs) - len(self.program.changes)]
        self.input_specs, self.output_specs = _specs(drawn.tensors), _specs(returned)
        self._forms = Drawn(_formed(drawn.tensors), drawn.arguments), _formed(returned)
        self._arguments = drawn.arguments
        self._check_determined(drawn, outputs)
        self.room = self._measure_room(peak_bytes)
        self.short_of_memory = False
        self.oracle_is_float64 = self._twin(drawn, outputs).outputs is not None
        self.warnings: tuple[str, ...] = ()
        if not self.oracle_is_float64:
            self.warnings = (NO_ROOM if self.short_of_memory else NO_FLOAT64,)
        self.roofline = roofline(self.program, drawn, outputs, self.sheet)

    def _run_first(self, drawn: Drawn) -> tuple[list[torch.Tensor], int]:
        """The outputs of the first call, and on a GPU what it took at most beside its inputs."""
        if self.device.type == "cpu":
            return self.program.run_first(drawn), 0
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        outputs = self.program.run_first(drawn)
        return outputs, torch.cuda.max_memory_allocated(self.device) - before

    def _expect_nominal(self) -> None:
        """Measure what candidates are held to now, while none of them takes memory from the oracle."""
        try:
            for trial in self.nominal:
                self.expected(trial)
        except torch.OutOfMemoryError:
            self.oracle_is_float64, self.short_of_memory = False, True
            self.warnings = (NO_ROOM,)
            self._kept.clear()
            self._errors.clear()

    def _measure_room(self, peak_bytes: int) -> Room:
        """How much may be kept; what drawing takes is known from the second time on."""
        begin = time.monotonic()
        self.drawn(self.nominal[1])  # refused now if it has another form
        synchronize(self.device)
        return Room(
            device=self.sheet,
            bytes_in=sum(map(_bytes, self.input_specs)),
            bytes_out=sum(map(_bytes, self.output_specs)),
            results=len(self.output_specs),
            trials=NOMINAL_TRIALS + len(REGIMES),
            draw_s=time.monotonic() - begin,
            peak_bytes=peak_bytes,
        )

    @property
    def flush_bytes(self) -> int:
        """Twice the last-level cache: writing this much leaves nothing else in it."""
        return int(2 * self.sheet.last_level_cache_mb * 2**20)

    def drawn(self, trial: Trial) -> Drawn:
        """A trial's inputs; the same every time."""
        if trial in self._kept:
            return self._kept[trial].drawn
        drawn = self.program.draw(trial.seed)
        if _specs(drawn.tensors) != self.input_specs:
            raise ProblemError(
                f"{self.problem.name}: get_inputs returns other shapes every time; make them fixed"
            )
        if (reason := varying(self._arguments, drawn.arguments)) is not None:
            raise self.program.refusal("get_inputs", f"returns {reason}")
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
            if self.keeps_all:
                self._kept[trial] = expected
        return expected

    def trials_for(self, effort: Effort) -> Iterator[Trial]:
        """What a candidate is verified on; `promote` adds fresh draws, repeats them, and tries every regime."""
        yield from self.trials
        if effort == "promote":
            for _ in range(MORE_TRIALS):
                yield Trial(secrets.randbits(48), calls=REPEATS, kept=False)
            tried = {trial.regime for trial in self.trials}
            others = [regime for regime in REGIMES if regime not in tried]
            yield from self._sensible(others, kept=False)

    def _sensible(self, regimes: list[str], kept: bool = True) -> Iterator[Trial]:
        """Trials in those of the regimes in which the reference itself makes sense."""
        tried = (Trial(secrets.randbits(48), regime, kept=kept) for regime in regimes)
        return (trial for trial in tried if self._makes_sense(trial))

    def _degenerate(self) -> tuple[str, ...]:
        """Which answers that need no work pass on every trial, in a sentence."""
        first, *rest = self.trials
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

    @property
    def keeps_all(self) -> bool:
        """Whether the expected values of all trials are kept between candidates."""
        return self.room.keeps_all

    @property
    def expects_meanwhile(self) -> bool:
        """Whether expected values may be computed while a candidate runs: on a GPU with memory for both."""
        if self.device.type == "cpu":
            return False
        free, _ = torch.cuda.mem_get_info(self.device)
        return free > self.room.working_bytes

    @property
    def slots(self) -> int:
        """How many sets of inputs and outputs lie side by side."""
        return self.room.slots

    @property
    def held_bytes(self) -> float:
        """About how much memory it holds between candidates, its running references counted."""
        shared = self.shared.arena.size
        return self.room.held_bytes(len(self._kept), shared, len(self._running))

    @property
    def room_bytes(self) -> float:
        """How much several problems may hold together."""
        return self.room.together_bytes

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
        sound = all(
            all(bool(piece.isfinite().all()) for (piece,) in chunks(output.oracle))
            and not output.eager_errors.unlike
            and output.eager_errors.relative_rms < REGIME_ERROR_LIMIT
            for output in outputs
            if output.oracle.is_floating_point()
        )
        if not sound:
            self._forget(trial)
        return sound

    def _forget(self, trial: Trial) -> None:
        self._kept.pop(trial, None)
        self._errors.pop(trial, None)

    def running(self, name: str, limits: Limits) -> RunningReference:
        """A reference in a child of its own, loaded and warm, run by the same code as any candidate.

        Raises ProblemError when it does not run, without trying again.
        """
        if name not in self._running:
            try:
                started = self.started(name, limits)
                self._held.callback(started.close)
                self._running[name] = started
            except ProblemError as error:
                self._running[name] = error
        running = self._running[name]
        if isinstance(running, ProblemError):
            raise running
        return running

    def started(self, name: str, limits: Limits) -> RunningReference:
        """A reference as `running` has it, but a new one, which the caller closes. Raises ProblemError."""
        try:
            shared = self._new_set(name)
        except torch.OutOfMemoryError as error:
            raise ProblemError(
                f"{self.problem.name}: beside what is there already, the device has no memory for the {name} reference"
            ) from error
        drawn = self.program.draw(self.nominal[0].seed)
        for slot in range(self.slots):
            shared.fill_inputs(drawn, slot)
        del drawn
        self.settle()
        try:
            return start_reference(
                name, self.forkserver, self.program, shared, self.flush_bytes, limits
            )
        except ProblemError:
            shared.arena.close()
            raise

    def timing_inputs(self) -> Iterator[Drawn]:
        """Inputs to time on, none of them twice: what one candidate printed about them must not serve the next."""
        while True:
            yield self.drawn(Trial(secrets.randbits(48)))

    def expected_of(
        self,
        drawn: Drawn,
        regime: str | None = None,
        known: list[ExpectedErrors] | None = None,
    ) -> list[ExpectedTensor]:
        """What the reference makes of these inputs. `known` is what was measured of it before, if it was.

        Raises torch.OutOfMemoryError where there is an oracle, and no memory for it now.
        """
        eager = self.program.run(drawn)
        twin = self._twin(drawn, eager, regime) if self.oracle_is_float64 else Twin(None)
        if not twin.fits:
            raise torch.OutOfMemoryError(f"{self.problem.name}: no memory is left for the oracle")
        errors: Sequence[ExpectedErrors | None] = known or [None] * len(eager)
        return [expect(*each) for each in zip(twin.outputs or eager, eager, errors, strict=True)]

    def least_ms(self) -> float:
        """The time below which no program can have written what one call computes; 0 where that cannot be said."""
        try:
            one, other = (self.expected(trial) for trial in self.nominal)
            fresh = fresh_bytes(
                [output.eager for output in one.outputs],
                [*one.drawn.tensors, *self.program.model.state_dict().values()],
                [output.eager for output in other.outputs],
            )
        except torch.OutOfMemoryError:
            raise
        except (
            RuntimeError
        ):  # a type that cannot be sorted, or too little of a host's memory to sort in
            return 0.0
        bandwidth = max(self.sheet.bandwidth_gb_s, bandwidth_now(self.device))
        return least_ms(fresh, caches_bytes(self.sheet), bandwidth)

    def describe(self, limits: Limits, versions: dict[str, str]) -> Reference:
        """What is known of the problem, with the reference's own latency."""
        if self._eager is None:
            timed = Timed(self.running(EAGER, limits), self.device.type, limits.time_s, self.slots)
            self._eager = time_alone(timed, limits.timing_budget_s)
            self._profile = reference_profile(
                lambda: self.started(PROFILED, limits), self.sheet.kind, self._eager.latency_ms
            )
        return Reference(
            device=self.sheet,
            versions=versions,
            inputs=self.input_specs,
            outputs=self.output_specs,
            eager=self._eager,
            roofline=self.roofline,
            warnings=self.warnings,
            profile=self._profile,
        )

    def forms_differ(self, other: PreparedReference) -> bool:
        """Whether inputs or outputs have other shapes or types than another problem's."""
        return (self.input_specs, self.output_specs) != (other.input_specs, other.output_specs)

    def settle(self) -> None:
        """What the judge wrote must be in memory before a child reads it, and the memory that it worked in be free."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            if not self.keeps_all:
                torch.cuda.empty_cache()

    def close(self) -> None:
        """End the running references and give the memory back."""
        self._kept.clear()
        self._held.close()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _new_set(self, name: str) -> SharedSet:
        """What is shared with one child, in a folder of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        drawn, returned = self._forms
        return SharedSet(self.program, drawn, returned, folder, self.slots)

    def _twin(self, drawn: Drawn, eager: list[torch.Tensor], regime: str | None = None) -> Twin:
        """The oracle for these inputs, or why there is none."""
        agreed = self._slices.get(regime, 1)
        twin = run_twin(self.program, drawn, eager, not self.keeps_all, agreed)
        self.short_of_memory |= not twin.fits
        self._slices[regime] = twin.slices
        return twin

    def _check_determined(self, drawn: Drawn, outputs: list[torch.Tensor]) -> None:
        """Raises ProblemError for a reference that draws random numbers; notes what a call takes."""
        begin = time.monotonic()
        again = self.program.run(drawn, seed=1)
        synchronize(self.device)
        self.reference_s = time.monotonic() - begin
        for first, second in zip(outputs, again, strict=True):
            error = expect(first, second).eager_errors
            if error.unlike or error.relative_rms > RANDOM_LIMIT:
                raise ProblemError(
                    f"{self.problem.name}: forward returns something else on every call (dropout in training "
                    "mode, or random numbers?); call self.eval() at the end of Model.__init__"
                )


def _formed(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the same form without memory."""
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors]


def _specs(tensors: list[torch.Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch.")) for t in tensors
    )


def _bytes(spec: TensorSpec) -> int:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return math.prod(spec.shape) * dtype.itemsize
