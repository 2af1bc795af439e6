"""Calls a module whose forward changes its buffers or parameters, so that what it leaves there are results of a call.

Each forward finds values there that the judge chose for the call, which are copied in every call, timed or not. So a call's
results depend on these and its inputs alone, and a program that leaves the change out, in some calls or in all, has wrong results.
In timed calls on a CPU the judge has copied them (`at`), or a program could save that time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from stark.evaluator.candidate.program import alike, leaves_of, names_by_order

_copy = torch._foreach_copy_
"""Taken before any program runs, which could replace it."""


class Stateful:
    """Calls a module. `call`, which may be replaced by what calls `forward` in another way, is what a call does."""

    def __init__(
        self,
        model: torch.nn.Module,
        forward: Callable[..., object],
        names: Sequence[str],
        given: Mapping[str, torch.Tensor],
    ) -> None:
        """`given` are the reference's weights and `names` those that it changes, which the module has under these names.

        If none of the module's names match, weights count by their order.
        """
        self._forward, self._names = forward, names
        self.call: Any = self.forward
        renamed = names_by_order(model, given)
        own = model.state_dict()
        self.missing = [name for name in names if renamed.get(name, name) not in own]
        """The names that the module lacks."""

        paths = [
            renamed.get(name, name).rpartition(".") for name in names if name not in self.missing
        ]
        self._places = [(model.get_submodule(path), name) for path, _, name in paths]
        self._own: list[torch.Tensor] = []
        """The module's own tensors. Forward may put others in their places, such as an input."""

        self._memory: list[torch.Tensor] = []
        """Their memory, which forward may exchange too."""

        self._kinds: list[list[int]] = []
        """For each type, the numbers of the tensors of that type."""

        self._kept: list[torch.Tensor] = []
        """The values of the memory."""

        self._found: list[torch.Tensor] | None = None
        """What the next forwards find instead."""

        self._first: list[torch.Tensor] | None = None
        """What the first of several forwards of a call left."""

        self._forwards, self._placed = 0, False
        self.keep()

    def __call__(self, *arguments: Any) -> list[object]:
        """The results of a simple call, then what it left in the module."""
        return self.with_state(lambda: self.call(*arguments))

    def in_mode(self, mode: str, *arguments: Any) -> list[object]:
        """The same of a call in one of the modes of `backward.py`: what its first forward left."""
        return self.with_state(lambda: self.call.in_mode(mode, *arguments))

    def with_state(self, call: Callable[[], object]) -> list[object]:
        """The results of a call that calls `forward`, then what it left in the module."""
        self._first, self._forwards = None, 0
        return [*leaves_of(call()), *(self._first or self._now())]

    def forward(self, *arguments: Any) -> object:
        """One forward, from the values that are kept, or that it shall find."""
        if self._forwards == 1:
            self._first = [each.clone() for each in self._now()]
        self._forwards += 1
        self.restore(copied=self._forwards > 1 or not self._placed)
        return self._forward(*arguments)

    def keep(self) -> None:
        """Let each later forward find the values that the module has now."""
        self._own = [getattr(owner, name) for owner, name in self._places]
        self._memory = self._now()
        kinds: dict[torch.dtype, list[int]] = {}
        for number, each in enumerate(self._memory):
            kinds.setdefault(each.dtype, []).append(number)
        self._kinds = list(kinds.values())
        self._kept = [each.clone() for each in self._memory]

    def find(self, values: Sequence[torch.Tensor], placed: bool = False) -> None:
        """Let each later forward find these values, one for each name; without any, those that are kept.

        If they are `placed`, the first forward of a call finds them in the module's memory already.
        """
        self._placed = placed
        pairs = zip(self._names, values, strict=bool(values))
        self._found = [each for name, each in pairs if name not in self.missing] or None

    def at(self, like: Sequence[torch.Tensor]) -> list[int]:
        """Where the module's memory lies, if the bytes of tensors like these can be written there."""
        pairs = zip(self._memory, like, strict=False)
        fits = all(alike(one, other) and one.stride() == other.stride() for one, other in pairs)
        return [each.data_ptr() for each in self._memory] if fits and not self.missing else []

    def restore(self, copied: bool = True) -> None:
        """Give the module its own tensors, with the values that forward shall find. Versions stay: backward may need what was saved."""
        for (owner, name), own, memory in zip(self._places, self._own, self._memory, strict=True):
            if getattr(owner, name, None) is not own:
                setattr(owner, name, own)
            own.data = memory
        if not copied:
            return
        values = self._found or self._kept
        for kind in self._kinds:  # a single launch on a GPU if types are alike
            _copy([self._memory[number] for number in kind], [values[number] for number in kind])

    def apart(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results, copied where they lie in memory that `restore` writes to."""
        own = {each.untyped_storage().data_ptr() for each in self._memory}
        return [
            each.clone() if each.untyped_storage().data_ptr() in own else each for each in results
        ]

    def _now(self) -> list[torch.Tensor]:
        """The tensors that are there, which a forward may have put there. Raises TypeError if one is missing."""
        lost = [name for owner, name in self._places if getattr(owner, name, None) is None]
        if lost:
            raise TypeError(
                f"forward leaves no tensor in {', '.join(lost)}; let it write zeros there instead"
            )
        return [getattr(owner, name).data for owner, name in self._places]
