"""Modules whose branches and graphs depend on more than the attributes that their code names."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from userpkg import flags


class Kind(enum.Enum):
    A = 1
    B = 2


@dataclass
class Global:
    flag: bool = True


class Config:
    extra = True


@dataclass
class Inner:
    factor: float = 2.0


KIND = Kind.A
CONFIG = Global()
HELD = Inner()
SCALE = 2.0


class Block(nn.Module):
    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.config = SimpleNamespace(width=16, **attributes)
        for name, value in attributes.items():
            setattr(self, name, value)


class ByGetattr(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if getattr(self, "extra", False):
            x = x * 3
        return x


class ByGetattrOfConfig(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if getattr(self.config, "extra", False):
            x = x * 3
        return x


class ByHasattr(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if hasattr(self, "extra"):
            x = x * 3
        return x


class InOneLine(Block):
    def forward(self, x: Any) -> Any:
        return self.linear(x) * (3 if getattr(self, "extra", False) else 1)


class ByAlias(Block):
    def forward(self, x: Any) -> Any:
        config = self.config
        x = self.linear(x)
        if config.extra:
            x = x * 3
        return x


def after(x: Any, config: Any) -> Any:
    if config.extra:
        x = x * 3
    return x


class ByHelper(Block):
    def forward(self, x: Any) -> Any:
        return after(self.linear(x), self.config)


def after_asking(x: Any, owner: Any) -> Any:
    if getattr(owner, "extra", False):
        x = x * 3
    return x


class ByHelperThatAsks(Block):
    def forward(self, x: Any) -> Any:
        return after_asking(self.linear(x), self)


class ByFlag(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if flags.USE:
            x = x * 3
        return x


class ByObject(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if CONFIG.flag:
            x = x * 3
        return x


class ByEnum(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if KIND is Kind.A:
            x = x * 3
        return x


class ByClass(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if Config.extra:
            x = x * 3
        return x


def is_on() -> bool:
    return flags.USE


class ByFunction(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if is_on():
            x = x * 3
        return x


class ByEnvironment(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if os.environ.get("USERPKG_EXTRA"):
            x = x * 3
        return x


def scaled(x: Any) -> Any:
    return x * SCALE * HELD.factor


def scaling(factor: float) -> Callable[[Any], Any]:
    def scale(x: Any) -> Any:
        return x * factor

    return scale


def applying(layer: nn.Module) -> Callable[[Any], Any]:
    return lambda x: x * layer.in_features  # type: ignore[operator]


class InAGraph(Block):
    """Its attribute `act` has no top-level name, so that its source is not copied."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._factor = 2.0
        self.held = SimpleNamespace(inner=SimpleNamespace(factor=2.0))
        self.act = scaling(2.0)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.changed(self.act(self.linear(x)))
        return scaled(x) * self._factor * self.held.inner.factor

    def changed(self, x: torch.Tensor) -> Any:
        return x + 1


def patched(self: nn.Module, x: torch.Tensor) -> Any:
    return x * 7


def block_of(factor: float) -> type[nn.Module]:
    class Block(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * factor

    return Block
