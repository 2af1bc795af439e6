"""A product of which the ReLU leaves few values, so that some rows hold nothing but a value just above zero."""

import torch
import torch.nn as nn

ROWS = 2048
INNER = 128
COLUMNS = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(INNER, COLUMNS) / INNER**0.5)
        self.bias = nn.Parameter(torch.full((COLUMNS,), -3.0))

    def forward(self, x):
        return torch.relu(x @ self.weight + self.bias)


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return []


def parts(tensor):
    """A float32 tensor as the sum of two in bfloat16."""
    high = tensor.bfloat16().float()
    return high, (tensor - high).bfloat16().float()


class TwoParts(Model):
    """Honest: bf16x3: each factor is the sum of two bfloat16 numbers; three of the four products."""

    def forward(self, x):
        (high, low), (heavy, light) = parts(x), parts(self.weight)
        return torch.relu(high @ heavy + (high @ light + low @ heavy) + self.bias)


class Inner32(Model):
    """Honest: adds the products of blocks of 32 terms."""

    def forward(self, x):
        total = self.bias.expand(len(x), -1)
        for columns, rows in zip(x.split(32, 1), self.weight.split(32), strict=True):
            total = total + columns @ rows
        return torch.relu(total)


class CutOff(Model):
    """Wrong: values below 0.02 are zero.

    Names: all of them are 0
    """

    def forward(self, x):
        y = super().forward(x)
        return torch.where(y < 0.02, 0.0, y)


class Silent(Model):
    """Wrong: rows whose largest value is below 0.01 are zero.

    Names: got 0
    """

    def forward(self, x):
        y = super().forward(x)
        return torch.where(y.amax(1, keepdim=True) < 0.01, 0.0, y)
