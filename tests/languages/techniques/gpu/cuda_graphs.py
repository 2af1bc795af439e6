import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def get_inputs():
    return [torch.randn(16, 96)]


def get_init_inputs():
    return [96, 12]
