"""ReLU of a scaled input that the problem draws from [0, 1)."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 200


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(2 * x), torch.sign(x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []


class Clamped(Model):
    """Honest: clamp, and comparisons for the sign."""

    def forward(self, x):
        return (x + x).clamp(min=0), (x > 0).float() - (x < 0).float()


class NoRelu(Model):
    """Wrong: the ReLU is missing.

    Names: mixed inputs & input 0 is negative
    """

    def forward(self, x):
        return 2 * x, torch.sign(x)


class SignOfZero(Model):
    """Wrong: the sign of zero is 1.

    Names: mixed inputs & input 0 is 0 | expected value is 0
    """

    def forward(self, x):
        return torch.relu(2 * x), torch.where(x >= 0, 1.0, -1.0)


class AbsoluteValue(Model):
    """Wrong: the absolute value instead of the ReLU.

    Names: mixed inputs & input 0 is negative
    """

    def forward(self, x):
        return 2 * x.abs(), torch.sign(x)


class OutputsSwapped(Model):
    """Wrong: returns the second output first.

    Names: they equal the expected output
    """

    def forward(self, x):
        return torch.sign(x), torch.relu(2 * x)
