"""Thousands of 16 x 16 matrix products, each with a bias, a ReLU and a residual connection."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(side))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + torch.relu(torch.bmm(a, b) + self.bias)


COUNT = 4096
SIDE = 16


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(COUNT, SIDE, SIDE), torch.randn(COUNT, SIDE, SIDE)]


def get_init_inputs() -> list[int]:
    return [SIDE]
