"""An exponential moving average over time with a decay per channel: a recurrence, one step after another."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.linspace(0.5, 3.0, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        decay = torch.sigmoid(self.logit)
        state, states = torch.zeros_like(x[:, 0]), []
        for step in x.unbind(dim=1):
            state = decay * state + (1 - decay) * step
            states.append(state)
        return torch.stack(states, dim=1)


BATCH = 128
STEPS = 192
CHANNELS = 256


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, STEPS, CHANNELS)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
