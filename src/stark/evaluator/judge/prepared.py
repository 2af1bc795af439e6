"""A problem ready for judging any number of candidates: references, oracle, secret seeds and shared memory."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from stark.core.device import Device
from stark.core.errors import ProblemError
from stark.core.judging import Limits
from stark.core.precision import DEFAULT, Precision
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.judge.device_calls import Visited
from stark.evaluator.judge.device_visits import time_alone
from stark.evaluator.judge.problem.impossible import fresh_bytes, least_ms
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.peaks import bandwidth_now, caches_bytes, synchronize
from stark.evaluator.judge.problem.roofline import operations_of, roofline
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.twin import is_out_of_memory
from stark.evaluator.judge.problem.values import ChangesMore
from stark.evaluator.judge.problem.weights import variable
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.profiling import reference_profile
from stark.evaluator.judge.room import CONTEXT_BYTES, NOMINAL_TRIALS, Room
from stark.evaluator.judge.running import COMPILED, EAGER, RunningReference, start_reference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing import gated
from stark.evaluator.judge.trial import Trial
from stark.evaluator.judge.trials import Trials
from stark.evaluator.judge.verify.oracle import Terms, apart

RANDOM_LIMIT = 1e-2
"""Relative RMS difference between two calls on the same inputs from which on a reference counts as random."""

CANDIDATE = "candidate"
PROFILED = "profiled"
"""Name of the reference process that is profiled and never timed."""

SLACK_CALLS = 20
"""The time limits of verification and timing are extended by the time of this many reference calls."""

WAYS_CALLS = 4
"""The same for each gradient, since some ways of calling take a call for each."""


def differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors that should be the same differ by more than another order of sums explains."""
    error = apart(other, one)
    return bool(error.nonfinite_mismatches) or error.relative_rms > RANDOM_LIMIT


class PreparedReference:
    """A problem ready for judging. Raises ProblemError if the problem cannot be used."""

    def __init__(
        self,
        problem: Problem,
        device: torch.device,
        sheet: Device,
        forkserver: Forkserver,
        only_nominal: bool = False,
        precision: Precision = DEFAULT,
    ) -> None:
        self.precision = precision
        self.problem, self.device, self.sheet = problem, device, sheet
        self.forkserver = forkserver
        with ExitStack() as resources:  # freed if the problem cannot be used
            self._resources = resources
            try:
                self._prepare(only_nominal)
            except torch.OutOfMemoryError as error:
                raise ProblemError(
                    f"{problem.name}: too little memory to judge this problem: {error}"
                ) from error
            self._resources = resources.pop_all()

    def _prepare(self, only_nominal: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="problem-", dir=self.forkserver.folder))
        self._resources.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.program = Program(self.problem, self.folder, self.device)
        self._resources.callback(self.program.close)
        self._running: dict[str, RunningReference | ProblemError] = {}
        self._described: Reference | None = None
        nominal = [Trial.fresh() for _ in range(NOMINAL_TRIALS)]
        while not self._expected(nominal, only_nominal):
            pass

    def _expected(self, nominal: list[Trial], only_nominal: bool) -> bool:
        """Compute what is expected. Returns False if the reference turned out to change more than was known."""
        self._inspect(nominal)
        self.shared = self._new_shared_set(CANDIDATE)
        try:
            self.trials.expect_nominal()
            if not only_nominal:
                self.trials.add_regimes()
        except BaseException as error:
            self.shared.close()
            if not isinstance(error, ChangesMore):
                raise
            self.program.learn(error.tensors)
            return False
        self._resources.callback(self.shared.close)
        return True

    def _inspect(self, nominal: list[Trial]) -> None:
        """Determine the program's fixed properties from the first inputs."""
        drawn = self.program.draw(nominal[0].seed)
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
            peak_bytes = -torch.cuda.memory_allocated(self.device)
        outputs = self.program.run_first(drawn)
        peak_bytes = peak_bytes + torch.cuda.max_memory_allocated(self.device) if on_gpu else 0
        returned = outputs[: len(outputs) - len(self.program.changes)]
        self.signature = Signature.of(self.program.with_state(drawn), returned)
        self._check_deterministic(drawn, outputs)
        begin = time.monotonic()  # the first draw's time includes one-time costs
        self.signature.check(self.program.draw(nominal[1].seed), self.program)
        synchronize(self.device)
        draw_s = time.monotonic() - begin
        if any(map(differ, self.program.draw(nominal[0].seed).tensors, drawn.tensors)):
            how = "draws other values with the same seed; seed its generator by torch.initial_seed() in each call"
            raise self.program.refusal("get_inputs", how)
        more = bool(variable(self.program.model)) + self.problem.declared.backward
        self.room = Room(self.sheet, self.signature, draw_s, more, peak_bytes)
        operations = operations_of(self.program, drawn, self.sheet.kind)
        terms = Terms(self.precision, operations.precision, stated=self.problem.declared.tolerance)
        self.trials = Trials(self.program, self.signature, self.room.keeps_all, nominal, terms)
        self.roofline = roofline(
            operations.least_bytes, operations.counted, self.sheet, self.precision
        )

    def _check_deterministic(self, drawn: Drawn, outputs: list[torch.Tensor]) -> None:
        """Time a second call. Raises ProblemError if its results differ too much from the first call's."""
        begin = time.monotonic()
        again = self.program.run(drawn, seed=1)
        synchronize(self.device)
        self.reference_s = time.monotonic() - begin
        # What gradients are but rounding, another order of sums changes: only outputs must be the same.
        some = slice(None) if self.program.differentiation is None else self.returned
        if any(map(differ, outputs[some], again[some])):
            raise ProblemError(
                f"{self.problem.name}: forward returns different values for the same inputs (dropout in training mode, or "
                "random numbers?); call self.eval() at the end of Model.__init__, or draw random numbers in get_inputs"
            )

    @property
    def architecture(self) -> str | None:
        """The GPU architecture to build for, or None on a CPU."""
        return self.sheet.architecture if self.sheet.kind == "cuda" else None

    @property
    def slack_s(self) -> float:
        """Seconds added to a phase's time limit, because candidates of a slow problem are slow too."""
        differentiation = self.program.differentiation
        ways = 0 if differentiation is None else len(differentiation.wanted.present)
        return (SLACK_CALLS + WAYS_CALLS * ways) * self.reference_s

    @property
    def flush_bytes(self) -> int:
        """Bytes to write to flush the last-level cache: twice its size."""
        return int(2 * self.sheet.last_level_cache_mb * 2**20)

    @property
    def held(self) -> float:
        """Share of `Room.together_bytes` held between candidates, about, including by the running references."""
        running = len(self._running)
        arenas = 1 if self.device.type == "cuda" else 1 + running
        held_bytes = (
            len(self.trials.kept) * self.room.expected_bytes
            + arenas * self.shared.arena.size
            + (1 + running) * CONTEXT_BYTES[self.sheet.kind]  # one is this process's own
        )
        return held_bytes / self.room.together_bytes

    def running(self, name: str, limits: Limits) -> RunningReference:
        """A loaded, warm reference in its own process. Raises ProblemError, the same at the next call unless memory was short."""
        if name not in self._running:
            try:
                self._running[name] = started = self.started(name, limits)
                self._resources.callback(started.close)
            except ProblemError as error:
                if is_out_of_memory(error):
                    raise
                self._running[name] = error
        running = self._running[name]
        if isinstance(running, ProblemError):
            raise running
        return running

    def started(self, name: str, limits: Limits) -> RunningReference:
        """Start a new reference. The caller must close it. Raises ProblemError if it does not run."""
        if name in COMPILED:
            self._check_room_for(name)
        try:
            shared = self._new_shared_set(name)
        except torch.OutOfMemoryError as error:
            lack = f"the device has no memory left for the {name} reference"
            raise ProblemError(f"{self.problem.name}: {lack}") from error
        shared.renew()
        drawn = self.program.draw(self.trials.nominal[0].seed)
        for slot in range(self.room.slots):
            shared.fill_inputs(drawn, slot)
        del drawn
        self.settle()
        try:
            return start_reference(name, self.forkserver, shared, limits)
        except ProblemError:
            shared.close()
            raise

    def _check_room_for(self, name: str) -> None:
        """Raise ProblemError if a GPU lacks the memory to judge while this reference is loaded."""
        if self.device.type == "cpu":
            return
        free, _ = torch.cuda.mem_get_info(self.device)
        needed = self.room.beside_bytes
        if free < needed:
            raise ProblemError(
                f"{self.problem.name}: running the {name} reference while judging needs "
                f"{needed / 1e9:.3g} GB of device memory, but only {free / 1e9:.3g} GB are free"
            ) from torch.OutOfMemoryError("not attempted")

    def least_ms(self) -> float:
        """Return the least milliseconds that writing a call's results can take, or 0 if unknown."""
        try:
            drawn, other = map(self.trials.drawn, self.trials.nominal)
            given = [*drawn.tensors, *self.program.model.state_dict().values()]
            fresh = fresh_bytes(self.program.run(drawn), given, self.program.run(other))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            # The type cannot be sorted, or the host has too little memory for sorting.
            return 0.0
        bandwidth = max(self.sheet.bandwidth_gb_s, bandwidth_now(self.device))
        return least_ms(fresh, caches_bytes(self.sheet), bandwidth)

    def describe(self, limits: Limits, versions: dict[str, str]) -> Reference:
        """Describe the problem: signature, roofline, warnings, reference time and profile."""
        if self._described is None:
            running = self.running(EAGER, limits)
            if self.device.type == "cpu":
                contents = gated.Contents(partial(running.shared.place_state, running.child, 0))
                given = limits.time_s, limits.timing_budget_s
                eager = gated.time_alone(running.child, *given, contents)
            else:
                limit_s = limits.time_s + self.slack_s
                eager = time_alone(self, Visited(running.child, running.shared, limit_s))
            differentiation = self.program.differentiation
            own = None if differentiation is None else differentiation.inputs
            start = partial(self.started, PROFILED, limits)
            self._described = Reference(
                device=self.sheet,
                versions=versions,
                # the other tensors of a draw are cotangents
                inputs=self.signature.inputs[:own],
                outputs=self.signature.outputs[self.returned],
                eager=eager,
                roofline=self.roofline,
                warnings=self.trials.expectations.warnings,
                profile=reference_profile(start, self.sheet.kind, eager.latency_ms),
                error_budgets=self.trials.expectations.error_budgets[: self._own_results],
                precision=self.precision,
                arguments=self.signature.arguments(differentiation is not None),
            )
        return self._described

    def input_name(self, index: int) -> str:
        """The name of one of a draw's tensors, in messages."""
        differentiation = self.program.differentiation
        return f"input {index}" if differentiation is None else differentiation.input_name(index)

    @property
    def result_names(self) -> list[str]:
        """The names of a call's results, in messages."""
        program = self.program
        names = [f"output {index}" for index in range(len(self.signature.outputs))[self.returned]]
        if (found := program.differentiation) is not None:
            present = enumerate(found.wanted.present)
            names += [found.gradient_name(number) for number, there in present if there]
        names += [f"{name} after the call" for name in program.state]
        return names + [f"input {index} after the call" for index in program.changes]

    @property
    def returned(self) -> slice:
        """The results that forward returns; the others are gradients and what it changed."""
        differentiation = self.program.differentiation
        return slice(differentiation.wanted.outputs if differentiation else self._own_results)

    @property
    def _own_results(self) -> int:
        """The number of outputs and gradients."""
        return len(self.signature.outputs) - len(self.program.state)

    def settle(self) -> None:
        """Wait for the judge's writes to a GPU. If the problem is large, free cached GPU memory."""
        synchronize(self.device)
        if self.room.is_large:
            torch.cuda.empty_cache()

    def close(self) -> None:
        """End the running references and free all memory."""
        self.trials.kept.clear()
        self._resources.close()
        torch.cuda.empty_cache()

    def _new_shared_set(self, name: str) -> SharedSet:
        """Create a folder for one child process, and the memory shared with it.

        On a GPU all programs share one arena: none runs while another is visited, and times differ with the place of
        memory. On a CPU a candidate lives while references are timed, so each program has its own.
        """
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        on_gpu, first = self.device.type == "cuda", name == CANDIDATE
        arena = self.shared.arena if on_gpu and not first else None
        slots, flush = self.room.slots, self.flush_bytes
        return SharedSet(self.program, self.signature, folder, slots, flush, arena)
