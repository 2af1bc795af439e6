"""One problem made ready to judge candidates: reference, oracle, secret seeds, shared memory, a running reference.

Everything here is kept warm between candidates of the same problem. Knows no candidate.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from stark.core.device import Device
from stark.core.errors import ProblemError
from stark.core.measurement import Measurement
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.children import (
    Allowance,
    Child,
    ChildFailed,
    Forkserver,
    child_environment,
)
from stark.evaluator.judge.degenerate import null_solvers, passing
from stark.evaluator.judge.inputs import CONSTRUCTION_SEED, Drawn, Program
from stark.evaluator.judge.oracle import ExpectedTensor, expect
from stark.evaluator.judge.regimes import REGIMES, changed
from stark.evaluator.judge.roofline import roofline
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing import Timed, time_alone
from stark.evaluator.protocol import Limits

NOMINAL_TRIALS = 2
"""How many sets of the problem's own inputs every candidate is verified on, beside the regimes."""

KEPT_BYTES = {"cuda": 8 << 30, "cpu": 1 << 30}
"""Expected values are kept between candidates while they are smaller than this in all."""

RANDOM_LIMIT = 1e-2
"""Relative difference of two calls on the same input above which the reference counts as random."""


TIMED_TRIALS = 2
"""How many sets of inputs take turns while a candidate is timed; none of them was verified on before."""

REGIME_ERROR_LIMIT = 1e-2
"""A regime in which the reference's own relative error is beyond this says nothing about a candidate."""


NO_FLOAT64 = "the reference does not run in float64, so candidates are held against its own outputs"


@dataclass(frozen=True)
class Trial:
    """Which inputs to verify on: a secret seed, and the regime that its draw is put into."""

    seed: int
    regime: str | None = None
    """None for the problem's own inputs as they are drawn."""

    def __str__(self) -> str:
        return f"with {self.regime} inputs, " if self.regime else ""


@dataclass(frozen=True)
class Expected:
    """A drawn set of inputs and what the reference makes of it."""

    drawn: Drawn
    outputs: list[ExpectedTensor]


class ReferenceDied(Exception):
    """The running reference failed while a candidate was timed against it: a fault of ours."""


class RunningReference:
    """The reference in a child of its own. Its failure is never a candidate's."""

    def __init__(self, child: Child) -> None:
        self.child = child

    def ask(self, request: Message, limit_s: float) -> Message:
        """Its answer. Raises ReferenceDied."""
        try:
            return self.child.ask(request, limit_s)
        except ChildFailed as failure:
            raise ReferenceDied(
                f"the running reference {failure.kind}: {failure.error}"
            ) from failure


class PreparedReference:
    """Raises ProblemError when the problem cannot be used."""

    def __init__(
        self, problem: Problem, device: torch.device, sheet: Device, forkserver: Forkserver
    ) -> None:
        self.problem, self.device, self.sheet = problem, device, sheet
        self.forkserver = forkserver
        self.folder = Path(tempfile.mkdtemp(prefix="problem-", dir=forkserver.folder))
        self.program = Program(problem, self.folder, device)
        self.nominal = [Trial(secrets.randbits(48)) for _ in range(NOMINAL_TRIALS)]
        self.timed = [Trial(secrets.randbits(48)) for _ in range(TIMED_TRIALS)]
        drawn = self.program.draw(self.nominal[0].seed)
        outputs = self.program.run(drawn)
        self._check_determined(drawn, outputs)
        self.oracle_is_float64 = self._oracle(drawn, outputs) is not None
        self.warnings: tuple[str, ...] = () if self.oracle_is_float64 else (NO_FLOAT64,)
        self.roofline = roofline(self.program, drawn, outputs, sheet)
        self.output_specs = _specs(outputs)
        self.input_specs = _specs(drawn.tensors)
        (self.folder / "candidate").mkdir()
        (self.folder / "reference").mkdir()
        self.shared = SharedSet(self.program, drawn, outputs, self.folder / "candidate")
        self._own = SharedSet(self.program, drawn, outputs, self.folder / "reference")
        self._kept: dict[Trial, Expected] = {}
        self._running: RunningReference | None = None
        self._eager: Measurement | None = None
        self.trials = [*self.nominal, *self._sensible_regimes()]
        self.warnings += self._degenerate()

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
        return drawn if trial.regime is None else changed(drawn, trial.regime, trial.seed)

    def expected(self, trial: Trial) -> Expected:
        """Inputs and expected values for a trial; kept between candidates where they are small enough."""
        if trial in self._kept:
            return self._kept[trial]
        drawn = self.drawn(trial)
        eager = self.program.run(drawn)
        oracle = self._oracle(drawn, eager) if self.oracle_is_float64 else None
        pairs = zip(oracle or eager, eager, strict=True)
        expected = Expected(drawn, [expect(o, e) for o, e in pairs])
        if self.keeps_all:
            self._kept[trial] = expected
        return expected

    def _sensible_regimes(self) -> list[Trial]:
        """The regimes to verify in: those in which the reference itself makes sense."""
        every = list(REGIMES) if self.keeps_all else list(REGIMES)[:1]
        tried = [Trial(secrets.randbits(48), regime) for regime in every]
        return [trial for trial in tried if self._makes_sense(trial)]

    def _degenerate(self) -> tuple[str, ...]:
        """Which answers that need no work pass on every trial, in a sentence."""
        first, *rest = self.trials
        expected = self.expected(first)
        solvers = null_solvers(expected.drawn, expected.outputs)
        left = passing(expected.drawn, expected.outputs, solvers)
        for trial in rest:
            if left:
                expected = self.expected(trial)
                left = passing(expected.drawn, expected.outputs, left)
        if not left:
            return ()
        return (f"the problem is degenerate: {' and '.join(left)} would pass as its answer",)

    @property
    def keeps_all(self) -> bool:
        """Whether the expected values of all trials fit into what may be kept."""
        one = sum(_bytes(spec) for spec in self.input_specs)
        one += sum(3 * _bytes(spec) for spec in self.output_specs)  # float64 and its own precision
        return one * (NOMINAL_TRIALS + TIMED_TRIALS + len(REGIMES)) <= KEPT_BYTES[self.device.type]

    def _makes_sense(self, trial: Trial) -> bool:
        """Whether the reference is finite and accurate on these inputs."""
        try:
            outputs = self.expected(trial).outputs
        except (ProblemError, torch.OutOfMemoryError):
            self._kept.pop(trial, None)
            return False
        sound = all(
            bool(output.oracle.isfinite().all())
            and not output.eager_errors.unlike
            and output.eager_errors.relative_rms < REGIME_ERROR_LIMIT
            for output in outputs
            if output.oracle.is_floating_point()
        )
        if not sound:
            self._kept.pop(trial, None)
        return sound

    def running(self, limits: Limits) -> RunningReference:
        """The reference in a child of its own, loaded and warm, run by the same code as any candidate."""
        if self._running is None:
            folder = self.folder / "reference"
            allowed = Allowance(
                folder,
                child_environment(folder, {"CUDA_VISIBLE_DEVICES": visible()}),
                memory_gb=1e6,
                output_kb=limits.output_kb,
                readable=(self.program.path,),
                on_device=self.device.type == "cuda",
            )
            child = self.forkserver.fork(allowed, self._own.arena.descriptor)
            self._own.fill_weights()
            self._own.fill_inputs(self.program.draw(self.nominal[0].seed))
            self._own.attach(child, self.flush_bytes, limits.load_s)
            try:
                path = str(self.program.path)
                child.ask({"do": "import", "path": path, "class": "Model"}, limits.load_s)
                child.ask(load_request("Model"), limits.load_s)
                child.ask({"do": "call", "seed": 0}, limits.verify_s)
            except ChildFailed as failure:
                raise ProblemError(
                    f"{self.problem.name}: the reference does not run in a process of its own: {failure.error}"
                ) from failure
            self._running = RunningReference(child)
        return self._running

    def refresh(self, trial: Trial) -> None:
        """Write a trial's inputs, at the same addresses as ever, for the candidate and the running reference."""
        drawn = self.drawn(trial)
        both = [self.shared, self._own]
        random.shuffle(both)  # what is written last lies in the cache
        for one in both:
            one.fill_inputs(drawn)

    def describe(self, limits: Limits, versions: dict[str, str]) -> Reference:
        """What is known of the problem, with the reference's own latency."""
        if self._eager is None:
            timed = Timed(self.running(limits), self.device.type, limits.time_s)
            self._eager = time_alone(timed, limits.timing_budget_s)
        return Reference(
            device=self.sheet,
            versions=versions,
            inputs=self.input_specs,
            outputs=self.output_specs,
            eager=self._eager,
            roofline=self.roofline,
            warnings=self.warnings,
        )

    def close(self) -> None:
        """End the running reference and give the memory back."""
        if self._running is not None:
            self._running.child.close()
        self._kept.clear()
        for shared in (self.shared, self._own):
            shared.arena.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _oracle(self, drawn: Drawn, eager: list[torch.Tensor]) -> list[torch.Tensor] | None:
        """Outputs in float64, or None where the reference cannot run or does not fit in it."""
        try:
            oracle = self.program.run_float64(drawn)
        except (RuntimeError, TypeError, ValueError):
            return None
        return oracle if [o.shape for o in oracle] == [e.shape for e in eager] else None

    def _check_determined(self, drawn: Drawn, outputs: list[torch.Tensor]) -> None:
        """Raises ProblemError for a reference that draws random numbers."""
        again = self.program.run(drawn, seed=1)
        for first, second in zip(outputs, again, strict=True):
            error = expect(first, second).eager_errors
            if error.unlike or error.relative_rms > RANDOM_LIMIT:
                raise ProblemError(
                    f"{self.problem.name}: forward returns something else on every call (dropout in training "
                    "mode, or random numbers?); call self.eval() at the end of Model.__init__"
                )


def load_request(name: str) -> Message:
    """Asks a child to build this class of its program."""
    return {"do": "load", "class": name, "seed": CONSTRUCTION_SEED}


def visible() -> str:
    """Which devices the children see: the same as the judge."""
    return os.environ.get(
        "CUDA_VISIBLE_DEVICES", ",".join(map(str, range(torch.cuda.device_count())))
    )


def _specs(tensors: list[torch.Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch.")) for t in tensors
    )


def _bytes(spec: TensorSpec) -> int:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return math.prod(spec.shape) * dtype.itemsize
