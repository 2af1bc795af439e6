import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels: int, width: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1)
        self.left = nn.Linear(width, outputs)
        self.right = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).permute(0, 2, 3, 1).reshape(-1, self.conv.out_channels)
        return torch.relu(torch.cat([self.left(x), self.right(x)], dim=1))


def get_inputs():
    return [torch.randn(2, 8, 15, 17)]


def get_init_inputs():
    return [8, 32, 12]
