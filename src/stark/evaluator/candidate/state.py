"""Calls a module whose forward changes its buffers or parameters, so that what it leaves there are results of a call.

Each forward finds the same values there, which are copied back in every call, timed or not. So a call's results depend on
its inputs alone, and a program that leaves the change out, in some calls or in all, has wrong results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from stark.evaluator.candidate.program import leaves_of, names_by_order


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
        self._forward = forward
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

        self._kept: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        """For each type, the memory of that type, and its values."""

        self._first: list[torch.Tensor] | None = None
        """What the first of several forwards of a call left."""

        self._forwards = 0
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
        """One forward, from the values that are kept."""
        if self._forwards == 1:
            self._first = [each.clone() for each in self._now()]
        self._forwards += 1
        self.restore()
        return self._forward(*arguments)

    def keep(self) -> None:
        """Let each later forward find the values that the module has now."""
        self._own = [getattr(owner, name) for owner, name in self._places]
        self._memory = self._now()
        kinds: dict[torch.dtype, list[torch.Tensor]] = {}
        for each in self._memory:
            kinds.setdefault(each.dtype, []).append(each)
        self._kept = [(own, [each.clone() for each in own]) for own in kinds.values()]

    def restore(self) -> None:
        """Give the module its own tensors, with the values that are kept. Versions stay: backward may need what was saved."""
        for (owner, name), own, memory in zip(self._places, self._own, self._memory, strict=True):
            if getattr(owner, name, None) is not own:
                setattr(owner, name, own)
            own.data = memory
        for memories, kept in self._kept:  # a single launch on a GPU if types are alike
            torch._foreach_copy_(memories, kept)

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
