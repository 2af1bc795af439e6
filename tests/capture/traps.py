"""Modules that a careless copy would change."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
from typing import Any

import torch
import torch.nn.functional as F
from ownpkg import limits
from torch import nn


class Speed(enum.Enum):
    SLOW = 1
    FAST = 2


TABLE: dict[str, Any] = {"relu": torch.relu}
DEFAULT = Speed.SLOW
SCALES = [1.0, 2.0]
activation = functools.partial(F.gelu, approximate="tanh")


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def round(x: torch.Tensor) -> torch.Tensor:
    """Hides the builtin function."""
    return x + 0.125


class Parent(nn.Module):
    def forward(self, x: Any, flag: bool = True) -> Any:
        return x + 1 if flag else x - 1


class BaseCalledWithAnotherConstant(Parent):
    def forward(self, x: Any, flag: bool = True) -> Any:
        y = super().forward(x, flag=False)
        if flag:
            y = y * 3
        return y


class ReplacedFunction(nn.Module):
    def forward(self, x: Any) -> Any:
        return doubled(x)


class CallsRelu(nn.Module):
    def forward(self, x: Any) -> Any:
        return F.relu(x)


def forward_of_another(self: nn.Module, x: Any) -> Any:
    return x * 2


class ChangedTable(nn.Module):
    def forward(self, x: Any) -> Any:
        return TABLE["tripled"](x) * SCALES[1]


class HidesABuiltin(nn.Module):
    def forward(self, x: Any) -> Any:
        return round(x)


class AttributeOfForward(nn.Module):
    """The branch depends on an attribute that forward itself sets."""

    def __init__(self) -> None:
        super().__init__()
        self.first = False

    def forward(self, x: Any) -> Any:
        self.first = True
        if self.first:
            x = x * 5
        self.first = False
        return x


class SameClassOtherArguments(nn.Module):
    """One submodule is called with two constants."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Parent()

    def forward(self, x: Any) -> Any:
        return self.inner(x, flag=True) * self.inner(x, flag=False)


class DirectForward(nn.Module):
    """Hooks do not see the second call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Parent()

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.inner.forward(x, False)


class Parameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(4), torch.randn(4)])
        self.named = nn.ParameterDict({"a": torch.randn(4)})

    def forward(self, x: Any) -> Any:
        for weight in self.weights:
            x = x * weight
        return x + self.named["a"]


class Cached(nn.Module):
    @functools.cached_property
    def factor(self) -> float:
        return 1.5

    def forward(self, x: Any) -> Any:
        return activation(x) * self.factor if DEFAULT is Speed.SLOW else x


class InPlace(nn.Module):
    """Changes its argument, and returns it."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        return self.relu(x), x


class Statistics(nn.Sequential):
    """In training, forward changes buffers."""

    def __init__(self) -> None:
        super().__init__(nn.BatchNorm1d(4), nn.Linear(4, 4))


class NoGradientInside(nn.Module):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            scale = x.abs().amax()
        return x / scale


class ManyExits(nn.Module):
    def forward(self, x: Any, *more: Any, mode: Any = None, **rest: Any) -> Any:
        if mode is Speed.FAST:
            return x * len(more) + rest["offset"]
        with contextlib.suppress(ValueError):
            x = x + 1
        for each in more:
            if each.shape[0] > 3:
                continue
            x = x + each[0]
        return {"x": x, "list": [x, None], "mode": "slow"}


class Held:
    def __init__(self) -> None:
        self.width, self.kind = 4, Speed.FAST
        self.nested = limits


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = Held()

    def forward(self, x: Any) -> Any:
        held = self.held
        return x * held.width if held.kind is Speed.FAST else x


Pair = collections.namedtuple("Pair", "low high")
LIMITS = torch.tensor([0.25, 0.75])


class Doubling(torch.autograd.Function):
    """With a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 7


class AnotherName(nn.Module):
    """The first parameter is not called self; named tuples, tensors and walrus inside."""

    def __init__(this) -> None:
        super().__init__()
        this.weight = nn.Parameter(torch.ones(4))
        this.names = ["a", "b"]

    def forward(this, x: Any) -> Any:
        pair = Pair(*LIMITS)
        if (count := len(this.names)) > 1:
            x = Doubling.apply(x * this.weight) * count

        def bounded(value: Any) -> Any:
            return value.clamp(pair.low, pair.high)

        return bounded(x)
