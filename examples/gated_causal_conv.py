# A short causal depthwise convolution over time, SiLU, then a SiLU gate (the mixer in state-space models).
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.conv = nn.Conv1d(channels, channels, width, groups=channels)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        past = F.pad(x.transpose(1, 2), (self.width - 1, 0))
        mixed = self.conv(past).transpose(1, 2)
        return F.silu(gate) * F.silu(mixed)


BATCH = 4
STEPS = 1024
CHANNELS = 1024
WIDTH = 4


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, STEPS, CHANNELS), torch.randn(BATCH, STEPS, CHANNELS)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, WIDTH]
