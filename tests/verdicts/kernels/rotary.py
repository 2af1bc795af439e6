"""Rotary embedding of float32, first half with second half."""

import torch
import torch.nn as nn

BATCH = 3
TOKENS = 80
WIDTH = 64


class Model(nn.Module):
    def forward(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def get_inputs():
    angles = torch.rand(TOKENS, WIDTH // 2) * 6.28
    return [torch.randn(BATCH, TOKENS, WIDTH), angles.cos(), angles.sin()]


def get_init_inputs():
    return []


class ComplexNumbers(Model):
    """Honest: products of complex numbers."""

    def forward(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        turned = torch.complex(a, b) * torch.complex(cos, sin)
        return torch.cat([turned.real, turned.imag], -1)


class Interleaved(Model):
    """Wrong: turns neighbours instead of halves.

    Names: columns
    Unnamed: values cannot tell which element was turned with which
    """

    def forward(self, x, cos, sin):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


class OtherDirection(Model):
    """Wrong: turns by the negative angle.

    Names: sign
    Unnamed: the sign of a part of a sum does not show in the values
    """

    def forward(self, x, cos, sin):
        return super().forward(x, cos, -sin)


class HalvesSwapped(Model):
    """Wrong: writes the second half first.

    Names: halves
    """

    def forward(self, x, cos, sin):
        return super().forward(x, cos, sin).roll(x.shape[-1] // 2, -1)


class FirstPosition(Model):
    """Wrong: positions begin with 1.

    Names: position
    Unnamed: values cannot tell which angle was used
    """

    def forward(self, x, cos, sin):
        return super().forward(x, cos.roll(-1, 0), sin.roll(-1, 0))
