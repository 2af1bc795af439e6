"""Rows of very different sizes, of 80 and of 16 values."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 80


class Model(nn.Module):
    def forward(self, x, scale):
        return x * scale, x[:, :16] * scale


def get_inputs():
    scale = torch.ones(ROWS, 1)
    scale[::3] = 1e-6
    return [torch.randn(ROWS, COLUMNS), scale]


def get_init_inputs():
    return []


class InSteps(Model):
    """Honest: multiplies twice by the square root."""

    def forward(self, x, scale):
        root = scale.abs().sqrt()
        signed = root.copysign(scale)
        return x * root * signed, x[:, :16] * root * signed


class SmallRowsZero(Model):
    """Wrong: small rows are zero.

    Names: rows, the first being 0 & small
    """

    def forward(self, x, scale):
        large = scale.abs() > 1e-5
        return torch.where(large, x * scale, 0.0), x[:, :16] * scale


class ShortSmallRowsZero(Model):
    """Wrong: small rows with fewer than 64 values are zero.

    Names: rows & small
    """

    def forward(self, x, scale):
        large = scale.abs() > 1e-5
        return x * scale, torch.where(large, x[:, :16] * scale, 0.0)


class SmallRowsInexact(Model):
    """Wrong: small rows have five bits: up to 6 % of error.

    Names: rows & small
    """

    def forward(self, x, scale):
        y = x * scale
        cut = (y.view(torch.int32) & ~0x7FFFF).view(torch.float32)
        return torch.where(scale.abs() > 1e-5, y, cut), x[:, :16] * scale
