"""One problem made ready to judge candidates: reference, oracle, secret seeds, shared memory, a running reference.

Everything here is kept warm between candidates of the same problem. Knows no candidate.
"""

from __future__ import annotations

import os
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
from stark.evaluator.candidate.arena import Arena, Slot, lay_out
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.children import Child, ChildFailed, Forkserver, child_environment
from stark.evaluator.judge.inputs import CONSTRUCTION_SEED, Drawn, Program
from stark.evaluator.judge.oracle import ExpectedTensor, expect
from stark.evaluator.judge.roofline import roofline
from stark.evaluator.judge.timing import Timed, time_alone
from stark.evaluator.protocol import Limits

SEEDS = 3
"""How many sets of inputs every candidate is verified on."""

KEPT_BYTES = {"cuda": 8 << 30, "cpu": 1 << 30}
"""Expected values are kept between candidates while they are smaller than this in all."""

DEVICE_SHARE = 0.8
"""Share of the device's memory that a candidate may take; the rest is the judge's."""

RANDOM_LIMIT = 1e-2
"""Relative difference of two calls on the same input above which the reference counts as random."""


@dataclass(frozen=True)
class Expected:
    """A drawn set of inputs and what the reference makes of it."""

    drawn: Drawn
    outputs: list[ExpectedTensor]
    oracle_is_float64: bool


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


class SharedSet:
    """An arena with places for inputs, weights and outputs, and the file that tells a child about them."""

    def __init__(
        self, program: Program, drawn: Drawn, outputs: list[torch.Tensor], folder: Path
    ) -> None:
        self.program = program
        state = program.model.state_dict()
        inputs, end = lay_out(drawn.tensors)
        weights, end = lay_out(list(state.values()), end)
        results, end = lay_out(
            [
                torch.empty_like(o, memory_format=torch.contiguous_format, device="meta")
                for o in outputs
            ],
            end,
        )
        self.arena = Arena(end, program.device)
        self.inputs = [slot.view(self.arena.block) for slot in inputs]
        self.outputs = [slot.view(self.arena.block) for slot in results]
        named: dict[str, Slot] = dict(zip(state, weights, strict=True))
        self._weights = {name: slot.view(self.arena.block) for name, slot in named.items()}
        self.setup = folder / "setup.pt"
        torch.save(
            {
                "init_arguments": program.init_arguments,
                "arguments": drawn.arguments,
                "inputs": inputs,
                "state": named,
                "outputs": results,
            },
            self.setup,
        )

    def fill_weights(self) -> None:
        """Write the reference's weights; a candidate that ran before may have changed them."""
        for name, value in self.program.model.state_dict().items():
            self._weights[name].copy_(value)

    def fill_inputs(self, drawn: Drawn) -> None:
        """Write inputs, and poison the outputs so that what is not written cannot pass."""
        for place, value in zip(self.inputs, drawn.tensors, strict=True):
            place.copy_(value)
        self.poison()

    def poison(self) -> None:
        """NaN, or the type's largest value where it has no NaN, in every output."""
        for output in self.outputs:
            if output.is_floating_point() or output.is_complex():
                output.fill_(float("nan"))
            elif output.dtype == torch.bool:
                output.logical_not_()
            else:
                output.fill_(torch.iinfo(output.dtype).max)

    def changed_input(self, drawn: Drawn) -> int | None:
        """The index of an input that no longer holds what was written, or None."""
        for index, (place, value) in enumerate(zip(self.inputs, drawn.tensors, strict=True)):
            if not torch.equal(place, value) and not torch.allclose(
                place, value, 0, 0, equal_nan=True
            ):
                return index
        return None

    def load_request(self, name: str, flush_bytes: int) -> dict[str, object]:
        """What a child needs to build `name` and map this set."""
        return {
            "do": "load",
            "class": name,
            "device": str(self.program.device),
            "setup": str(self.setup),
            "seed": CONSTRUCTION_SEED,
            "arena_size": self.arena.size,
            "arena_handle": self.arena.handle,
            "memory_fraction": DEVICE_SHARE,
            "flush_bytes": flush_bytes,
        }


class PreparedReference:
    """Raises ProblemError when the problem cannot be used."""

    def __init__(
        self, problem: Problem, device: torch.device, sheet: Device, forkserver: Forkserver
    ) -> None:
        self.problem, self.device, self.sheet = problem, device, sheet
        self.forkserver = forkserver
        self.folder = Path(tempfile.mkdtemp(prefix="problem-", dir=forkserver.folder))
        self.seeds = [secrets.randbits(48) for _ in range(SEEDS)]
        self.program = Program(problem, self.folder, device)
        drawn = self.program.draw(self.seeds[0])
        outputs = self.program.run(drawn)
        self.warnings = self._check_determined(drawn, outputs)
        self.roofline = roofline(self.program, drawn, outputs, sheet)
        self.output_specs = _specs(outputs)
        self.input_specs = _specs(drawn.tensors)
        (self.folder / "candidate").mkdir()
        (self.folder / "reference").mkdir()
        self.shared = SharedSet(self.program, drawn, outputs, self.folder / "candidate")
        self._own = SharedSet(self.program, drawn, outputs, self.folder / "reference")
        self._kept: dict[int, Expected] = {}
        self._running: RunningReference | None = None
        self._eager: Measurement | None = None

    @property
    def flush_bytes(self) -> int:
        """Twice the last-level cache: writing this much leaves nothing else in it."""
        return int(2 * self.sheet.last_level_cache_mb * 2**20)

    def expected(self, seed: int) -> Expected:
        """Inputs and expected values for a seed; kept between candidates where they are small enough."""
        if seed in self._kept:
            return self._kept[seed]
        drawn = self.program.draw(seed)
        if _specs(drawn.tensors) != self.input_specs:
            raise ProblemError(
                f"{self.problem.name}: get_inputs returns other shapes every time; make them fixed"
            )
        eager = self.program.run(drawn)
        oracle, is_float64 = self._oracle(drawn, eager)
        pairs = zip(oracle, eager, strict=True)
        expected = Expected(drawn, [expect(o, e) for o, e in pairs], is_float64)
        total = sum(t.numel() * t.element_size() for t in [*drawn.tensors, *oracle, *eager])
        if total * SEEDS <= KEPT_BYTES[self.device.type]:
            self._kept[seed] = expected
        return expected

    def running(self, limits: Limits) -> RunningReference:
        """The reference in a child of its own, loaded and warm, run by the same code as any candidate."""
        if self._running is None:
            child = self.forkserver.fork(
                self.folder / "reference",
                child_environment(self.folder / "reference", {"CUDA_VISIBLE_DEVICES": visible()}),
                memory_gb=1e6,
                bound_address_space=False,
                output_kb=limits.output_kb,
                arena=self._own.arena.descriptor,
            )
            self._own.fill_weights()
            self._own.fill_inputs(self.program.draw(self.seeds[0]))
            try:
                child.ask(
                    {"do": "import", "path": str(self.program.path), "class": "Model"},
                    limits.load_s,
                )
                child.ask(self._own.load_request("Model", self.flush_bytes), limits.load_s)
                child.ask({"do": "call", "seed": 0}, limits.verify_s)
            except ChildFailed as failure:
                raise ProblemError(
                    f"{self.problem.name}: the reference does not run in a process of its own: {failure.error}"
                ) from failure
            self._running = RunningReference(child)
        return self._running

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

    def _oracle(self, drawn: Drawn, eager: list[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
        """Outputs in float64 where the reference can run so, otherwise its own outputs."""
        try:
            oracle = self.program.run_float64(drawn)
        except (RuntimeError, TypeError, ValueError):
            return eager, False
        same_form = [o.shape for o in oracle] == [e.shape for e in eager]
        return (oracle, True) if same_form else (eager, False)

    def _check_determined(self, drawn: Drawn, outputs: list[torch.Tensor]) -> tuple[str, ...]:
        again = self.program.run(drawn, seed=1)
        for first, second in zip(outputs, again, strict=True):
            error = expect(first, second).eager_errors
            if error.unlike or error.relative_rms > RANDOM_LIMIT:
                raise ProblemError(
                    f"{self.problem.name}: forward returns something else on every call (dropout in training "
                    "mode, or random numbers?); call self.eval() at the end of Model.__init__"
                )
        if self._cannot_run_in_float64(drawn, outputs):
            return (
                "the reference does not run in float64, so candidates are held against its own outputs",
            )
        return ()

    def _cannot_run_in_float64(self, drawn: Drawn, outputs: list[torch.Tensor]) -> bool:
        return any(o.is_floating_point() for o in outputs) and not self._oracle(drawn, outputs)[1]


def visible() -> str:
    """Which devices the children see: the same as the judge."""
    return os.environ.get(
        "CUDA_VISIBLE_DEVICES", ",".join(map(str, range(torch.cuda.device_count())))
    )


def _specs(tensors: list[torch.Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch.")) for t in tensors
    )
