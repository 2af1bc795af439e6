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
        self._kept: list[torch.Tensor] = []
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
        self._kept = [each.clone() for each in self._now()]

    def restore(self) -> None:
        """Give the module the values that are kept. Versions stay: backward may need what an earlier forward saved."""
        kinds: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for now, kept in zip(self._now(), self._kept, strict=True):
            for tensors, each in zip(
                kinds.setdefault(kept.dtype, ([], [])), (now, kept), strict=True
            ):
                tensors.append(each)
        for own, former in kinds.values():  # a single launch on a GPU if types are alike
            torch._foreach_copy_(own, former)

    def _now(self) -> list[torch.Tensor]:
        """The tensors themselves, which a forward may have replaced."""
        return [getattr(owner, name).data for owner, name in self._places]
