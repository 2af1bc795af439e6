"""Softmax of attention scores at a temperature, over the first `length` keys of each batch entry."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        keys = torch.arange(scores.shape[-1], device=scores.device)
        hidden = keys >= lengths[:, None, None]
        return torch.softmax((scores / self.temperature).masked_fill(hidden, float("-inf")), dim=-1)


BATCH = 16
QUERIES = 256
KEYS = 512


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, QUERIES, KEYS), torch.randint(1, KEYS + 1, (BATCH,))]


def get_init_inputs() -> list[float]:
    return [0.7]
