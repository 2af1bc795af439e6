"""One quick comparison of a call's tensors with those of an earlier call that was verified.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch

TIMES = 100
"""How often tensors are learned: a call costs more where it has others, or another mode, each time."""


def _never(*_: Any) -> bool:
    return False


class Alike:
    """Compares tensors with the latest ones that passed the written tests.

    PyTorch's compiler has such a comparison for its own guards. It takes a third of the time of one attribute after the
    other, but is not public. Where it is missing, or says no, the written tests decide.
    """

    def __init__(self) -> None:
        self.check: Callable[..., bool] = _never
        """Whether tensors have the classes, dtypes, devices, shapes and strides of the latest ones. May be wrongly False."""

        self.left = TIMES

    def learn(self, *tensors: torch.Tensor) -> bool:
        """Compare with these tensors from now on. True."""
        if self.left:
            self.left -= 1
            made = _comparison(tensors)
            self.check = self.check if made is _never else made
        return True


def _comparison(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    forms = {
        "dynamic_dims_sizes": [list(each.shape) for each in tensors],
        "dynamic_dims_strides": [list(each.stride()) for each in tensors],
    }
    try:
        check = torch._C._dynamo.guards.TensorGuards(*tensors, **forms).check  # type: ignore[arg-type]
        return check if check(*tensors) else _never  # it disagrees if one tensor is given twice
    except Exception:  # another version of PyTorch
        return _never


def alike_test(name: str, tests: Mapping[str, Iterable[str]], names: dict[str, Any]) -> str:
    """A test that tensors are like those that passed these tests before, or pass them now; `tests` are by tensor.

    PyTorch's comparison ends the process if it is given a nested tensor, so the caller must have excluded those.
    """
    names[name], given = Alike(), ", ".join(tests)
    written = " and ".join(chain.from_iterable(tests.values()))
    return f"({name}.check({given}) or {written} and {name}.learn({given}))"
