"""RMSNorm over both halves of a hidden state, then one half gates the other by SiLU (SwiGLU)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.rand(2 * features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.epsilon)
        gate, up = (x * scale * self.weight).chunk(2, dim=-1)
        return F.silu(gate) * up


ROWS = 2048
FEATURES = 512


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, 2 * FEATURES)]


def get_init_inputs() -> list[float]:
    return [FEATURES, 1e-6]
