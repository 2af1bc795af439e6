"""A gated block with a keyword-only argument, a mask and two outputs, and a model of several."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    width: int = 16
    scale: float = 0.5


class Gated(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.scale = config.scale
        self.inner = nn.Linear(config.width, config.width)
        self.gate = nn.Linear(config.width, config.width, bias=False)
        self.register_buffer("shift", torch.full((config.width,), 0.25))

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, *, weights: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        gate = torch.sigmoid(self.gate(x))
        if mask is not None:
            gate = gate * mask
        found = self.scale * torch.tanh(self.inner(x)) * gate + self.shift
        return found, gate if weights else None


class Stack(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Gated(Config()) for _ in range(depth))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x, mask=mask)[0]
        return self.head(x)
