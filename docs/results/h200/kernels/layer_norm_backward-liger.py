"""Liger's layer norm (https://github.com/linkedin/Liger-Kernel), which takes activations in bfloat16 and weights in float32."""

import torch
import torch.nn as nn
from liger_kernel.transformers.layer_norm import LigerLayerNorm


class ModelNew(nn.Module):
    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.norm = LigerLayerNorm(hidden, epsilon, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)
