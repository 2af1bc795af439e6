"""The memory that the judge shares with one child: inputs, weights and outputs, and the file that describes them.

Inputs and outputs lie there several times, in slots: every call of a timed block has inputs of its own, so no
call can stand for another. The judge writes inputs and weights before a call and reads outputs after it; it
believes nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from stark.evaluator.candidate.arena import Arena, Slot, lay_out
from stark.evaluator.candidate.sandbox.layers import WITHOUT
from stark.evaluator.candidate.wire import Message
from stark.evaluator.judge.problem.inputs import Drawn, Program, same
from stark.evaluator.judge.problem.signature import Signature
from stark.evaluator.judge.processes.failures import ChildFailed

DEVICE_SHARE = 0.8
"""Share of the device's memory that a candidate may take; the rest is the judge's."""


class AttachFailed(Exception):
    """A child could not map what the judge shares, before any program ran in it: a fault of ours."""


class Attachable(Protocol):
    """A child that no program runs in yet."""

    def ask(self, request: Message, limit_s: float) -> Message:
        """Its answer. Raises ChildFailed."""


class SharedSet:
    """An arena with places for inputs, weights and outputs, and the file that tells a child about them."""

    def __init__(
        self,
        program: Program,
        signature: Signature,
        folder: Path,
        slots: int,
    ) -> None:
        self.program, self.folder = program, folder
        state = program.model.state_dict()
        weights, end = lay_out(list(state.values()))
        inputs, end = _repeated(signature.drawn.tensors, slots, end)
        plain = [
            torch.empty_like(o, memory_format=torch.contiguous_format, device="meta")
            for o in signature.returned
        ]
        results, end = _repeated(plain, slots, end)
        self.arena = Arena(end, program.device)
        block = self.arena.block
        self.inputs = [[place.view(block) for place in places] for places in inputs]
        self.outputs = [[place.view(block) for place in places] for places in results]
        named: dict[str, Slot] = dict(zip(state, weights, strict=True))
        self._weights = {name: place.view(block) for name, place in named.items()}
        self._module: dict[str, str] | None = None
        if program.travels_with_module:
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
                "orders": [output.stride() for output in signature.returned],
            },
            self.setup,
        )

    def fill_weights(self) -> None:
        """Write the reference's weights; a candidate that ran before may have changed them."""
        for name, value in self.program.model.state_dict().items():
            self._weights[name].copy_(value)

    def fill_inputs(self, drawn: Drawn, slot: int) -> None:
        """Write a slot's inputs, and poison its outputs so that what is not written cannot pass."""
        for place, value in zip(self.inputs[slot], drawn.tensors, strict=True):
            place.copy_(value)
        self.poison(slot)

    def results(self, slot: int) -> list[torch.Tensor]:
        """All that a call on a slot leaves: its outputs, and the inputs that the reference changes."""
        changed = [self.inputs[slot][index] for index in self.program.changes]
        return [*self.outputs[slot], *changed]

    def poison(self, slot: int) -> None:
        """NaN in every output of a slot; where the type has none its largest value, and for truth values their opposite."""
        for output in self.outputs[slot]:
            if output.is_floating_point() or output.is_complex():
                output.fill_(float("nan"))
            elif output.dtype == torch.bool:
                output.logical_not_()
            else:
                output.fill_(torch.iinfo(output.dtype).max)

    def changed_input(self, drawn: Drawn, slot: int) -> int | None:
        """The index of an input that no longer holds what was written and that the reference leaves alone, or None."""
        for index, (place, value) in enumerate(zip(self.inputs[slot], drawn.tensors, strict=True)):
            if index not in self.program.changes and not same(place, value):
                return index
        return None

    def attach(self, child: Attachable, flush_bytes: int, limit_s: float) -> None:
        """Have a child map this set before it runs anything of its program. Raises AttachFailed."""
        request = {
            "do": "attach",
            "device": str(self.program.device),
            "setup": str(self.setup),
            "module": self._module,
            "arena_size": self.arena.size,
            "arena_handle": self.arena.handle,
            "memory_fraction": DEVICE_SHARE,
            "flush_bytes": flush_bytes,
        }
        try:
            child.ask(request, limit_s)
        except ChildFailed as failure:
            raise AttachFailed(
                "a child cannot open the device, map the judge's memory and close its sandbox "
                f"({failure.kind}; {WITHOUT} leaves layers out): {failure.error}"
            ) from failure


def _repeated(forms: list[torch.Tensor], times: int, start: int) -> tuple[list[list[Slot]], int]:
    """Places for tensors of these forms, several times over, and the bytes used up to there."""
    places = []
    for _ in range(times):
        once, start = lay_out(forms, start)
        places.append(once)
    return places, start
