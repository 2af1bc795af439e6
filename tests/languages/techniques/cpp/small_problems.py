import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn(7, 33)]


def get_init_inputs():
    return [33, 50, 9]
