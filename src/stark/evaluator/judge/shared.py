"""Memory that the judge shares with one child process: weights, and slots of one set of inputs and outputs each.

The calls of a group use slots of their own, so none can reuse another's result. The judge writes inputs and weights before
a call and reads outputs after it. It trusts nothing else that comes from the child.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from stark.evaluator.candidate.arena import Arena, Slot, lay_out
from stark.evaluator.candidate.queued import WORDS_BYTES
from stark.evaluator.candidate.sandbox.layers import WITHOUT
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.problem.inputs import CONSTRUCTION_SEED, Drawn, Program
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.problem.values import same_values
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ChildFailed, SandboxFailed
from stark.evaluator.judge.processes.memory import addresses, copy_memory

DEVICE_SHARE = 0.8
"""Share of a GPU's memory that a candidate may allocate; the judge needs the rest."""


def in_child(device: torch.device) -> str:
    """The judge's device as its children name it, who see no other."""
    return "cpu" if device.type == "cpu" else "cuda:0"


class SharedSet:
    """One shared allocation (the arena), and the setup file that describes it to a child. Sets may share an arena."""

    def __init__(
        self,
        program: Program,
        signature: Signature,
        folder: Path,
        slots: int,
        flush_bytes: int,
        arena: Arena | None = None,
    ) -> None:
        self.program, self.folder, self._flush_bytes = program, folder, flush_bytes
        state = program.model.state_dict()
        weights, begin = lay_out(list(state.values()), WORDS_BYTES)
        drawn, count = signature.drawn, len(signature.drawn.tensors)
        self._places, size = lay_out([*drawn.tensors, *drawn.state])
        self._inputs = count
        inputs_end = begin + slots * size
        plain = [
            torch.empty_like(o, memory_format=torch.contiguous_format, device="meta")
            for o in signature.returned
        ]
        output_places, output_size = lay_out(plain)
        given = _repeated(self._places, slots, begin, size)
        results = _repeated(output_places, slots, inputs_end, output_size)
        self._owns_arena = arena is None
        self.arena = arena or Arena(inputs_end + slots * output_size, program.device)
        block = self.arena.block
        self.input_bytes = block[begin:inputs_end].view(slots, -1)
        """Per slot, the bytes of its inputs, and of what forward finds in the weights that it changes."""

        self.inputs = [self.inputs_in(slot_bytes) for slot_bytes in self.input_bytes]
        self.outputs = [[place.view(block) for place in places] for places in results]
        self.orders = [output.stride() for output in signature.returned]
        """The strides of the reference's outputs."""

        self._lent = [[*places[:count], *weights] for places in given]
        named: dict[str, Slot] = dict(zip(state, weights, strict=True))
        self._weights = {name: place.view(block) for name, place in named.items()}
        self.mapped_at = 0
        """Where the child that was attached last has mapped the arena. It says so before any program runs in it."""

        self.files = [folder / "setup.pt"]
        """The files that a child reads when it is attached."""

        self._module: dict[str, str] | None = None
        if program.arguments_need_module:
            self.files.append(folder / "problem.py")
            self.files[-1].write_text(program.problem.source)
            self._module = {"name": program.name, "path": str(self.files[-1])}
        self._save_setup(signature, named, given, results)

    def _save_setup(
        self,
        signature: Signature,
        named: dict[str, Slot],
        given: list[list[Slot]],
        results: list[list[Slot]],
    ) -> None:
        """Write what a child is told: the places of weights, of each slot's inputs and of its outputs, and the arguments."""
        torch.save(
            {
                "init_arguments": self.program.init_arguments,
                "arguments": signature.drawn.arguments,
                "inputs": [places[: self._inputs] for places in given],
                "found": [places[self._inputs :] for places in given],
                "state": named,
                "outputs": results,
                "orders": self.orders,
                "flags": self.program.flags,
                "changes": self.program.state,
                "gradients": self.program.differentiation and self.program.differentiation.wanted,
            },
            self.files[0],
        )

    def close(self) -> None:
        """Free the arena, unless it is another set's."""
        if self._owns_arena:
            self.arena.close()

    def renew(self) -> None:
        """Clear the shared memory, unused parts too, so that no program finds what another left; write the weights."""
        self.arena.block.zero_()
        self._write_weights()

    def replace_weights(self, child: Child) -> None:
        """Give a loaded program the weights that the reference has now. Raises ChildFailed."""
        self._write_weights()
        if self.program.device.type == "cuda":
            torch.cuda.synchronize(self.program.device)
        self._learn_places(child, child.ask({"do": "weights"}))

    def _write_weights(self) -> None:
        for name, value in self.program.model.state_dict().items():
            self._weights[name].copy_(value)

    def fill_inputs(self, drawn: Drawn, slot: int) -> None:
        """Write a slot's inputs and poison its outputs, so that unwritten outputs cannot pass."""
        self._write(drawn, self.input_bytes[slot])
        for output in self.outputs[slot]:
            if output.is_floating_point() or output.is_complex():
                output.fill_(float("nan"))
            elif output.dtype == torch.bool:
                output.logical_not_()
            else:
                output.fill_(torch.iinfo(output.dtype).max)

    def place_state(self, child: Child, slot: int) -> bool:
        """Write what forward finds in a slot to the child's module, if the child said where. Returns whether it did.

        Within a call, a program could leave this copy out.
        """
        for place, at in zip(self._places[self._inputs :], child.state_at, strict=False):
            source = self.input_bytes[slot].data_ptr() + place.offset
            copy_memory(child.runner_pid, at, source, place.size, write=True)
        return bool(child.state_at)

    def inputs_in(self, slot_bytes: torch.Tensor) -> list[torch.Tensor]:
        """View the bytes of a slot's inputs as tensors."""
        return [place.view(slot_bytes) for place in self._places[: self._inputs]]

    def staged(self, drawn: Drawn) -> torch.Tensor:
        """These inputs as the bytes of a slot, in memory that only the judge maps."""
        staged = torch.zeros_like(self.input_bytes[0])
        self._write(drawn, staged)
        return staged

    def _write(self, drawn: Drawn, slot_bytes: torch.Tensor) -> None:
        values = [*drawn.tensors, *self.program.found(drawn)]
        for place, value in zip(self._places, values, strict=True):
            place.view(slot_bytes).copy_(value)

    def changed_input(
        self, before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]
    ) -> int | None:
        """Return the index of an input that a call changed and the reference leaves unchanged, or None."""
        pairs = enumerate(zip(before, after, strict=True))
        others = ((index, pair) for index, pair in pairs if index not in self.program.changes)
        return next((index for index, pair in others if not same_values(*pair)), None)

    def lent(self, slot: int) -> list[tuple[int, int]]:
        """Address, in the child that was attached last, and bytes of each input of a slot and of each weight."""
        return [(self.mapped_at + place.offset, place.size) for place in self._lent[slot]]

    def results(self, slot: int) -> list[torch.Tensor]:
        """Return a call's results: the slot's outputs, then the inputs that the reference changes."""
        changed = [self.inputs[slot][index] for index in self.program.changes]
        return [*self.outputs[slot], *changed]

    def load(self, child: Child, path: Path, name: str, limit_s: float) -> Message:
        """Make a child map this memory, import a program's file and construct its class `name`. Returns the last answer.

        Raises SandboxFailed, and ChildFailed if the program fails.
        """
        request = {
            "do": "attach",
            "device": in_child(self.program.device),
            "setup": str(self.files[0]),
            "module": self._module,
            "arena_size": self.arena.size,
            "arena_handle": self.arena.handle,
            "memory_fraction": DEVICE_SHARE,
            "flush_bytes": self._flush_bytes,
        }
        try:
            self.mapped_at = int(child.ask(request, limit_s)["arena"])
        except ChildFailed as failure:
            raise SandboxFailed(
                "a child process could not open the device, map the judge's memory or enter its sandbox "
                f"({failure.kind.replace('_', ' ')}; set {WITHOUT} to disable sandbox layers): "
                f"{failure.error}"
            ) from failure
        child.ask({"do": "import", "path": str(path), "class": name}, limit_s)
        loaded = child.ask({"do": "load", "class": name, "seed": CONSTRUCTION_SEED}, limit_s)
        self._learn_places(child, loaded)
        return loaded

    def _learn_places(self, child: Child, answer: Message) -> None:
        at = answer.get("state_at")
        child.state_at = addresses(at, len(self._places) - self._inputs) if at else []


def _repeated(places: list[Slot], times: int, begin: int, size: int) -> list[list[Slot]]:
    """Repeat places from byte `begin` on, every `size` bytes."""
    starts = (begin + number * size for number in range(times))
    return [[replace(place, offset=start + place.offset) for place in places] for start in starts]
