"""Llama's residual addition and RMSNorm in bf16, for 16,384 tokens of Llama 3 8B."""

import torch
import torch.nn as nn

TOKENS = 16384
HIDDEN = 4096


class Model(nn.Module):
    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.rand(hidden, dtype=torch.bfloat16) + 0.5)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        scale = torch.rsqrt(total.float().pow(2).mean(dim=-1, keepdim=True) + self.epsilon)
        return self.weight * (total.float() * scale).to(x.dtype), total


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs() -> list[float]:
    return [HIDDEN, 1e-5]
