"""The memory that the judge shares with one child: inputs, weights and outputs, and the file that describes them.

The judge writes inputs and weights before a call and reads outputs after it; it believes nothing else.
"""

from __future__ import annotations

from pathlib import Path

import torch

from stark.evaluator.candidate.arena import Arena, Slot, lay_out
from stark.evaluator.judge.children import Child, ChildFailed
from stark.evaluator.judge.inputs import Drawn, Program, same

DEVICE_SHARE = 0.8
"""Share of the device's memory that a candidate may take; the rest is the judge's."""


class AttachFailed(Exception):
    """A child could not map what the judge shares, before any program ran in it: a fault of ours."""


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
        self._module: dict[str, str] | None = None
        if program.travels_with_module:
            copy = folder / "problem.py"
            copy.write_text(program.problem.source)
            self._module = {"name": program.name, "path": str(copy)}
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
        """NaN in every output; where the type has none its largest value, and for truth values their opposite."""
        for output in self.outputs:
            if output.is_floating_point() or output.is_complex():
                output.fill_(float("nan"))
            elif output.dtype == torch.bool:
                output.logical_not_()
            else:
                output.fill_(torch.iinfo(output.dtype).max)

    def changed_input(self, drawn: Drawn) -> int | None:
        """The index of an input that no longer holds what was written and that the reference leaves alone, or None."""
        for index, (place, value) in enumerate(zip(self.inputs, drawn.tensors, strict=True)):
            if index not in self.program.changes and not same(place, value):
                return index
        return None

    def attach(self, child: Child, flush_bytes: int, limit_s: float) -> None:
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
                f"a child cannot map the judge's memory: {failure.error}"
            ) from failure
