"""Places for tokens in their experts' buffers, first come first served: whole numbers, flags and weights come out."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, experts: int, capacity: int) -> None:
        super().__init__()
        self.experts, self.capacity = experts, capacity

    def forward(
        self, expert: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        chosen = F.one_hot(expert, self.experts)
        place = (chosen.cumsum(dim=0) * chosen).sum(dim=-1) - 1
        kept = place < self.capacity
        return place, kept, weight * kept


TOKENS = 16384
EXPERTS = 16
CAPACITY = 900


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, EXPERTS, (TOKENS,)), torch.randn(TOKENS)]


def get_init_inputs() -> list[int]:
    return [EXPERTS, CAPACITY]
