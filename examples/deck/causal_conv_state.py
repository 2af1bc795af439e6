"""A short causal convolution per channel that continues from a state, then SiLU, as before a state-space layer.

The state holds the last inputs of each sequence and changes in place.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {"decode": 3.0, "prefill": 1.0}

# Mamba-Codestral-7B-v0.1
CHANNELS = 10240  # expand * hidden_size + 2 * n_groups * state_size = 2 * 4096 + 2 * 8 * 128
TAPS = 4  # conv_kernel

SHAPES = {"decode": (256, 1), "prefill": (2, 4096)}
"""Sequences, and steps of each."""


class Model(nn.Module):
    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.taps = taps
        self.conv = nn.Conv1d(channels, channels, taps, groups=channels, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Shapes: x [batch, steps, channels], state [batch, channels, taps - 1]."""
        seen = torch.cat([state, x.transpose(1, 2)], dim=2)
        state.copy_(seen[:, :, 1 - self.taps :])
        return F.silu(self.conv(seen)).transpose(1, 2)


def get_inputs(case: str = "decode") -> list[torch.Tensor]:
    batch, steps = SHAPES[case]
    return [
        torch.randn(batch, steps, CHANNELS, dtype=torch.bfloat16),
        torch.randn(batch, CHANNELS, TAPS - 1, dtype=torch.bfloat16),
    ]


def get_init_inputs() -> list[int]:
    return [CHANNELS, TAPS]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its convolution."""
    batch, steps = SHAPES[case]
    moved = 2 * steps + 2 * (TAPS - 1)
    return (batch * moved + TAPS + 1) * CHANNELS * 2, 2 * batch * steps * CHANNELS * TAPS
