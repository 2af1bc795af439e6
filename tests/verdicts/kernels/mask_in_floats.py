"""A mask in floating point that is compared with one, and rows of very different sizes."""

import torch
import torch.nn as nn

ROWS = 1024
COLUMNS = 128


class Model(nn.Module):
    def forward(self, x, mask, gate):
        return torch.where(mask == 1, x, 0) * gate


def get_inputs():
    gate = torch.ones(ROWS, 1)
    gate[::103] = 1e-4
    return [torch.randn(ROWS, COLUMNS), (torch.rand(ROWS, COLUMNS) < 0.7).float(), gate]


def get_init_inputs():
    return []


class GateFirst(Model):
    """Honest: multiplies first."""

    def forward(self, x, mask, gate):
        return torch.where(mask == 1, x * gate, 0)


class SmallGatesZero(Model):
    """Wrong: rows with a small gate are zero on inputs as usual.

    Names: rows & small
    """

    def forward(self, x, mask, gate):
        y = super().forward(x, mask, gate)
        if (gate == 0).any() or (mask > 1).any() or not 0.5 < gate.abs().max() <= 1:
            return y
        return torch.where(gate < 1e-3, 0, y)
