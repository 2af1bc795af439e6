"""Memory that the judge shares with one child process: inputs, weights and outputs.

The memory has several slots, each with one set of inputs and outputs. Every call of a timed block
(several calls in a row) uses its own slot, so no call can reuse another call's result. The judge writes
inputs and weights before a call and reads outputs after the call. The judge
trusts nothing else that comes from the child.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from stark.evaluator.candidate.arena import Arena, Slot, lay_out
from stark.evaluator.candidate.queued import WORDS_BYTES
from stark.evaluator.candidate.sandbox.layers import WITHOUT
from stark.evaluator.judge.problem.inputs import Drawn, Program, same_values
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ChildFailed

DEVICE_SHARE = 0.8
"""Share of a GPU's memory that a candidate may allocate; the judge needs the rest."""


def in_child(device: torch.device) -> str:
    """The judge's device as its children name it, who see no other."""
    return "cpu" if device.type == "cpu" else "cuda:0"


class AttachFailed(Exception):
    """A child could not map the shared memory before its program ran. The machine is at fault."""


class SharedSet:
    """One shared allocation (the arena), and the setup file that describes it to a child.

    The arena holds inputs, weights and outputs. Sets of one problem may share an arena.
    """

    def __init__(
        self,
        program: Program,
        signature: Signature,
        folder: Path,
        slots: int,
        arena: Arena | None = None,
    ) -> None:
        self.program, self.folder = program, folder
        state = program.model.state_dict()
        weights, end = lay_out(list(state.values()), WORDS_BYTES)
        inputs, inputs_end = _lay_out_slots(signature.drawn.tensors, slots, begin := end)
        end = inputs_end
        plain = [
            torch.empty_like(o, memory_format=torch.contiguous_format, device="meta")
            for o in signature.returned
        ]
        results, end = _lay_out_slots(plain, slots, end)
        self._owns_arena = arena is None
        self.arena = arena or Arena(end, program.device)
        block = self.arena.block
        self.inputs = [[place.view(block) for place in places] for places in inputs]
        self.outputs = [[place.view(block) for place in places] for places in results]
        self.input_bytes = block[begin:inputs_end].view(slots, -1)
        """Per slot, the bytes of its inputs."""

        self.orders = [output.stride() for output in signature.returned]
        """The strides of the reference's outputs."""

        self._input_places = inputs[0]
        self._inputs_begin = begin
        named: dict[str, Slot] = dict(zip(state, weights, strict=True))
        self._weights = {name: place.view(block) for name, place in named.items()}
        self.mapped_at = 0
        """Where the child that was attached last has mapped the arena. It says so before any program runs in it."""

        self._module: dict[str, str] | None = None
        if program.arguments_need_module:
            copy = folder / "problem.py"
            copy.write_text(program.problem.source)
            self._module = {"name": program.name, "path": str(copy)}
        self.setup = folder / "setup.pt"
        torch.save(
            {
                "init_arguments": program.init_arguments,
                "arguments": signature.drawn.arguments,
                "inputs": inputs,
                "state": named,
                "outputs": results,
                "orders": self.orders,
                "flags": program.flags,
            },
            self.setup,
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that a child reads when it is attached."""
        module = () if self._module is None else (Path(self._module["path"]),)
        return (self.setup, *module)

    def close(self) -> None:
        """Free the arena, unless it is another set's."""
        if self._owns_arena:
            self.arena.close()

    def renew(self) -> None:
        """Clear the shared memory, unused parts too, so that no program finds what another left; write the weights."""
        self.arena.block.zero_()
        for name, value in self.program.model.state_dict().items():
            self._weights[name].copy_(value)

    def fill_inputs(self, drawn: Drawn, slot: int) -> None:
        """Write a slot's inputs and poison its outputs, so that unwritten outputs cannot pass."""
        for place, value in zip(self.inputs[slot], drawn.tensors, strict=True):
            place.copy_(value)
        self.poison(slot)

    def staged(self, drawn: Drawn) -> torch.Tensor:
        """These inputs as the bytes of a slot, in memory that only the judge maps."""
        staged = torch.zeros_like(self.input_bytes[0])
        for place, value in zip(self._input_places, drawn.tensors, strict=True):
            replace(place, offset=place.offset - self._inputs_begin).view(staged).copy_(value)
        return staged

    def changed_bytes(self, before: torch.Tensor, after: torch.Tensor) -> int | None:
        """Like `changed_input`, for the bytes of a slot before a call and after it."""
        for index, place in enumerate(self._input_places):
            moved = replace(place, offset=place.offset - self._inputs_begin)
            if index not in self.program.changes and not same_values(
                moved.view(before), moved.view(after)
            ):
                return index
        return None

    def results(self, slot: int) -> list[torch.Tensor]:
        """Return a call's results: the slot's outputs, then the inputs that the reference changes."""
        changed = [self.inputs[slot][index] for index in self.program.changes]
        return [*self.outputs[slot], *changed]

    def poison(self, slot: int) -> None:
        """Fill a slot's floating-point outputs with NaN, integers with their type's maximum; negate booleans."""
        for output in self.outputs[slot]:
            if output.is_floating_point() or output.is_complex():
                output.fill_(float("nan"))
            elif output.dtype == torch.bool:
                output.logical_not_()
            else:
                output.fill_(torch.iinfo(output.dtype).max)

    def changed_input(self, drawn: Drawn, slot: int) -> int | None:
        """Return the index of an input that the call changed and the reference leaves unchanged, or None."""
        for index, (place, value) in enumerate(zip(self.inputs[slot], drawn.tensors, strict=True)):
            if index not in self.program.changes and not same_values(place, value):
                return index
        return None

    def attach(self, child: Child, flush_bytes: int, limit_s: float) -> None:
        """Make a child map this memory before its program runs. Raises AttachFailed."""
        request = {
            "do": "attach",
            "device": in_child(self.program.device),
            "setup": str(self.setup),
            "module": self._module,
            "arena_size": self.arena.size,
            "arena_handle": self.arena.handle,
            "memory_fraction": DEVICE_SHARE,
            "flush_bytes": flush_bytes,
        }
        try:
            self.mapped_at = int(child.ask(request, limit_s)["arena"])
        except ChildFailed as failure:
            raise AttachFailed(
                "a child process could not open the device, map the judge's memory or enter its sandbox "
                f"({failure.kind.replace('_', ' ')}; set {WITHOUT} to disable sandbox layers): "
                f"{failure.error}"
            ) from failure


def _lay_out_slots(
    forms: list[torch.Tensor], times: int, start: int
) -> tuple[list[list[Slot]], int]:
    """Lay out these tensors `times` times from byte `start`; return the places and the end."""
    places = []
    for _ in range(times):
        once, start = lay_out(forms, start)
        places.append(once)
    return places, start
