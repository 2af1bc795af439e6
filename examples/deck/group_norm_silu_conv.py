"""Half of a residual block of an image model: GroupNorm, SiLU and a 3x3 convolution."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {"1024px": 2.0, "512px": 1.0}

# UNet of stable-diffusion-xl-base-1.0, first level
CHANNELS = 320  # block_out_channels[0]
GROUPS = 32  # norm_num_groups
EPSILON = 1e-5  # norm_eps

SHAPES = {"1024px": (2, 128), "512px": (8, 64)}
"""Images (two for each with guidance), and the side of their latents, which have an eighth of the pixels' side."""


class Model(nn.Module):
    def __init__(self, channels: int, groups: int, epsilon: float) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, epsilon, dtype=torch.bfloat16)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.silu(self.norm(x)))


def get_inputs(case: str = "1024px") -> list[torch.Tensor]:
    batch, side = SHAPES[case]
    return [torch.randn(batch, CHANNELS, side, side, dtype=torch.bfloat16)]


def get_init_inputs() -> list[float]:
    return [CHANNELS, GROUPS, EPSILON]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its convolution."""
    batch, side = SHAPES[case]
    pixels = batch * side * side
    weights = CHANNELS * CHANNELS * 9 + 3 * CHANNELS
    return (2 * pixels * CHANNELS + weights) * 2, 2 * pixels * CHANNELS * CHANNELS * 9
