"""One problem made ready to judge candidates: reference, oracle, secret seeds, shared memory, a running reference.

Everything here is kept warm between candidates of the same problem. Knows no candidate.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from stark.core.device import Device
from stark.core.errors import ProblemError
from stark.core.judging import Limits
from stark.core.measurement import Measurement
from stark.core.problem import Problem
from stark.core.profile import Profile
from stark.core.reference import Reference
from stark.evaluator.judge.problem.impossible import fresh_bytes, least_ms
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.regimes import REGIMES
from stark.evaluator.judge.problem.roofline import (
    bandwidth_now,
    caches_bytes,
    roofline,
    synchronize,
)
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.twin import ran_out
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.profiling import reference_profile
from stark.evaluator.judge.room import Room
from stark.evaluator.judge.running import COMPILED, EAGER, RunningReference, start_reference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.program import Timed
from stark.evaluator.judge.timing.rounds import time_alone
from stark.evaluator.judge.trials import Trial, Trials
from stark.evaluator.judge.verify.oracle import expect

NOMINAL_TRIALS = 2
"""How many sets of the problem's own inputs every candidate is verified on, beside the regimes."""

RANDOM_LIMIT = 1e-2
"""Relative difference of two calls on the same input above which the reference counts as random."""

TIMES_TIMED = 3
"""How often the reference is timed alone at most, where something disturbs it."""

BUSY = "the machine was busy while the reference was timed alone, so its time is a guess; speedups are measured side by side"

PROFILED = "profiled"
"""Name of the reference's process that is profiled and never timed."""

SLACK_CALLS = 20
"""How many calls of the reference every phase has time for beside its limit."""


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
            try:
                self._prepare(only_nominal)
            except torch.OutOfMemoryError as error:
                raise ProblemError(
                    f"{problem.name}: too little memory is left to judge it: {error}"
                ) from error
            self._held = held.pop_all()

    def _prepare(self, only_nominal: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="problem-", dir=self.forkserver.folder))
        self._held.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.program = Program(self.problem, self.folder, self.device)
        self._held.callback(self.program.close)
        self._learn([Trial.fresh() for _ in range(NOMINAL_TRIALS)])
        self.shared = self._new_set("candidate")
        self._held.callback(self.shared.arena.close)
        self._running: dict[str, RunningReference | ProblemError] = {}
        self._eager: Measurement | None = None
        self._doubts: tuple[str, ...] = ()
        self._profile: Profile | None = None
        self.trials.expect_nominal()
        if not only_nominal:
            self.trials.choose(list(REGIMES) if self.keeps_all else list(REGIMES)[:1])

    def _learn(self, nominal: list[Trial]) -> None:
        """Find out about the program what does not change, by the first inputs."""
        drawn = self.program.draw(nominal[0].seed)
        outputs, peak_bytes = self._run_first(drawn)
        returned = outputs[: len(outputs) - len(self.program.changes)]
        self.signature = Signature.of(drawn, returned)
        self._check_determined(drawn, outputs)
        self.room = self._measure_room(nominal[1], peak_bytes)
        self.trials = Trials(self.program, self.signature, self.room, nominal)
        self.trials.find_oracle(drawn, outputs)
        self.roofline = roofline(self.program, drawn, outputs, self.sheet)

    def _run_first(self, drawn: Drawn) -> tuple[list[torch.Tensor], int]:
        """The outputs of the first call, and on a GPU what it took at most beside its inputs."""
        if self.device.type == "cpu":
            return self.program.run_first(drawn), 0
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        outputs = self.program.run_first(drawn)
        return outputs, torch.cuda.max_memory_allocated(self.device) - before

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

    def _measure_room(self, second: Trial, peak_bytes: int) -> Room:
        """How much may be kept; what drawing takes is known from the second time on."""
        begin = time.monotonic()
        self.signature.check(self.program.draw(second.seed), self.program)
        synchronize(self.device)
        return Room(
            device=self.sheet,
            bytes_in=self.signature.bytes_in,
            bytes_out=self.signature.bytes_out,
            results=len(self.signature.outputs),
            trials=NOMINAL_TRIALS + len(REGIMES),
            draw_s=time.monotonic() - begin,
            peak_bytes=peak_bytes,
        )

    @property
    def architecture(self) -> str | None:
        """The GPU architecture to build for, or None on a CPU."""
        return self.sheet.architecture if self.sheet.kind == "cuda" else None

    @property
    def slack_s(self) -> float:
        """What a phase's limit grows by: a slow problem has slow candidates."""
        return SLACK_CALLS * self.reference_s

    @property
    def flush_bytes(self) -> int:
        """Twice the last-level cache: writing this much leaves nothing else in it."""
        return int(2 * self.sheet.last_level_cache_mb * 2**20)

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
        return self.room.held_bytes(self.trials.kept, shared, len(self._running))

    @property
    def room_bytes(self) -> float:
        """How much several problems may hold together."""
        return self.room.together_bytes

    @property
    def short_of_memory(self) -> bool:
        """Whether it would be judged otherwise if there had been more memory."""
        return self.trials.short_of_memory

    def running(self, name: str, limits: Limits) -> RunningReference:
        """A reference in a child of its own, loaded and warm, run by the same code as any candidate.

        Raises ProblemError when it does not run; for want of memory it is tried again the next time, else it is not.
        """
        if name not in self._running:
            try:
                self._running[name] = started = self.started(name, limits)
                self._held.callback(started.close)
            except ProblemError as error:
                if ran_out(error):
                    raise
                self._running[name] = error
        running = self._running[name]
        if isinstance(running, ProblemError):
            raise running
        return running

    def started(self, name: str, limits: Limits) -> RunningReference:
        """A reference as `running` has it, but a new one, which the caller closes. Raises ProblemError."""
        if name in COMPILED:
            self._check_room_for(name)
        try:
            shared = self._new_set(name)
        except torch.OutOfMemoryError as error:
            raise ProblemError(
                f"{self.problem.name}: beside what is there already, the device has no memory for the {name} reference"
            ) from error
        drawn = self.program.draw(self.trials.nominal[0].seed)
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

    def _check_room_for(self, name: str) -> None:
        """Raises ProblemError where what a reference takes on a GPU would be lacking for the candidates' verdicts."""
        if self.device.type == "cpu":
            return
        free, _ = torch.cuda.mem_get_info(self.device)
        needed = self.room.beside_bytes(self.shared.arena.size)
        if free < needed:
            raise ProblemError(
                f"{self.problem.name}: the {name} reference would need {needed / 1e9:.3g} GB with what is judged beside "
                f"it, and {free / 1e9:.3g} GB of the device are free"
            ) from torch.OutOfMemoryError("not tried")

    def least_ms(self) -> float:
        """The time below which no program can have written what one call computes; 0 where that cannot be said."""
        try:
            drawn, elsewhere = map(self.trials.drawn, self.trials.nominal)
            fresh = fresh_bytes(
                self.program.run(drawn),
                [*drawn.tensors, *self.program.model.state_dict().values()],
                self.program.run(elsewhere),
            )
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            # A type that cannot be sorted, or too little of a host's memory to sort in.
            return 0.0
        bandwidth = max(self.sheet.bandwidth_gb_s, bandwidth_now(self.device))
        return least_ms(fresh, caches_bytes(self.sheet), bandwidth)

    def describe(self, limits: Limits, versions: dict[str, str]) -> Reference:
        """What is known of the problem, with the reference's own latency."""
        if self._eager is None:
            self._eager, self._doubts = self._timed(limits)
            self._profile = reference_profile(
                lambda: self.started(PROFILED, limits), self.sheet.kind, self._eager.latency_ms
            )
        return Reference(
            device=self.sheet,
            versions=versions,
            inputs=self.signature.inputs,
            outputs=self.signature.outputs,
            eager=self._eager,
            roofline=self.roofline,
            warnings=(*self.trials.warnings, *self._doubts),
            profile=self._profile,
            error_budgets=self.trials.error_budgets(),
        )

    def _timed(self, limits: Limits) -> tuple[Measurement, tuple[str, ...]]:
        """The reference's own latency, timed again while something else runs, and a sentence where that did not help."""
        for _ in range(TIMES_TIMED):
            timed = Timed(self.running(EAGER, limits), self.device.type, limits.time_s, self.slots)
            found, steady = time_alone(timed, limits.timing_budget_s)
            if steady:
                return found, ()
        return found, (BUSY,)

    def forms_differ(self, other: PreparedReference) -> bool:
        """Whether inputs or outputs have other shapes or types than another problem's."""
        ours, theirs = self.signature, other.signature
        return (ours.inputs, ours.outputs) != (theirs.inputs, theirs.outputs)

    def settle(self) -> None:
        """What the judge wrote must be in memory before a child reads it, and the memory that it worked in be free."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            if not self.keeps_all:
                torch.cuda.empty_cache()

    def close(self) -> None:
        """End the running references and give the memory back."""
        self.trials.close()
        self._held.close()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _new_set(self, name: str) -> SharedSet:
        """What is shared with one child, in a folder of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return SharedSet(self.program, self.signature, folder, self.slots)
