"""Records one call of each region, to compile it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from stark.regions.compiling import Example
from stark.regions.workload import copied


class Examples:
    """Watches one run and keeps a copy of the arguments of the calls with the given numbers."""

    def __init__(self, wanted: Collection[int], device: torch.device) -> None:
        """Calls are numbered from 0 in the order in which they begin."""
        self._wanted, self._kind = wanted, device.type
        self._number = 0
        self.found: dict[int, Example] = {}

    def enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A call begins."""
        if self._number in self._wanted:
            autocast = torch.get_autocast_dtype(self._kind)
            self.found[self._number] = Example(
                module=module,
                args=copied(args),
                kwargs=copied(kwargs),
                grad=torch.is_grad_enabled(),
                inference=torch.is_inference_mode_enabled(),
                autocast=autocast if torch.is_autocast_enabled(self._kind) else None,
            )
        self._number += 1

    def leave(self, result: Any) -> None:
        """The innermost call ends."""
