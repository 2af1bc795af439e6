"""The memory that the judge shares with one child: inputs, weights and outputs, and the file that describes them.

Inputs and outputs lie there several times, in slots: every call of a timed block has inputs of its own, so no
call can stand for another. The judge writes inputs and weights before a call and reads outputs after it; it
believes nothing else.
"""

from __future__ import annotations

from pathlib import Path

import torch

from stark.evaluator.candidate.arena import Arena, Slot, lay_out
from stark.evaluator.judge.children import Child, ChildFailed
from stark.evaluator.judge.inputs import Drawn, Program

DEVICE_SHARE = 0.8
"""Share of the device's memory that a candidate may take; the rest is the judge's."""


class AttachFailed(Exception):
    """A child could not map what the judge shares, before any program ran in it: a fault of ours."""


class SharedSet:
    """An arena with places for inputs, weights and outputs, and the file that tells a child about them."""

    def __init__(
        self,
        program: Program,
        drawn: Drawn,
        outputs: list[torch.Tensor],
        folder: Path,
        slots: int,
    ) -> None:
        self.program = program
        state = program.model.state_dict()
        weights, end = lay_out(list(state.values()))
        inputs, end = _repeated(drawn.tensors, slots, end)
        plain = [
            torch.empty_like(o, memory_format=torch.contiguous_format, device="meta")
            for o in outputs
        ]
        results, end = _repeated(plain, slots, end)
        self.arena = Arena(end, program.device)
        block = self.arena.block
        self.inputs = [[place.view(block) for place in places] for places in inputs]
        self.outputs = [[place.view(block) for place in places] for places in results]
        named: dict[str, Slot] = dict(zip(state, weights, strict=True))
        self._weights = {name: place.view(block) for name, place in named.items()}
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

    def fill_inputs(self, drawn: Drawn, slot: int) -> None:
        """Write a slot's inputs, and poison its outputs so that what is not written cannot pass."""
        for place, value in zip(self.inputs[slot], drawn.tensors, strict=True):
            place.copy_(value)
        self.poison(slot)

    def poison(self, slot: int) -> None:
        """NaN in every output of a slot; the type's largest value where it has no NaN, and the contrary in a bool."""
        for output in self.outputs[slot]:
            if output.is_floating_point() or output.is_complex():
                output.fill_(float("nan"))
            elif output.dtype == torch.bool:
                output.logical_not_()
            else:
                output.fill_(torch.iinfo(output.dtype).max)

    def changed_input(self, drawn: Drawn, slot: int) -> int | None:
        """The index of an input of a slot that no longer holds what was written, or None."""
        for index, (place, value) in enumerate(zip(self.inputs[slot], drawn.tensors, strict=True)):
            if not torch.equal(place, value) and not torch.allclose(
                place, value, 0, 0, equal_nan=True
            ):
                return index
        return None

    def attach(self, child: Child, flush_bytes: int, limit_s: float) -> None:
        """Have a child map this set before it runs anything of its program. Raises AttachFailed."""
        request = {
            "do": "attach",
            "device": str(self.program.device),
            "setup": str(self.setup),
            "arena_size": self.arena.size,
            "arena_handle": self.arena.handle,
            "memory_fraction": DEVICE_SHARE,
            "flush_bytes": flush_bytes,
        }
        try:
            child.ask(request, limit_s)
        except ChildFailed as failure:
            raise AttachFailed(
                f"a child cannot map the judge's memory: {failure.error}"
            ) from failure


def _repeated(forms: list[torch.Tensor], times: int, start: int) -> tuple[list[list[Slot]], int]:
    """Places for tensors of these forms, several times over, and the bytes used up to there."""
    places = []
    for _ in range(times):
        once, start = lay_out(forms, start)
        places.append(once)
    return places, start
