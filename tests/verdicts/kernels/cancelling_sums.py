"""Sums over tokens in bfloat16, each in many places, as in the gradient of a weight after `sum().backward()`.

Some of the sums cancel. By chance, the reference is exact there and another order of roundings is not.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = 1024
COLUMNS = 768
PLACES = 64


class Model(nn.Module):
    def forward(self, gate, up):
        hidden = F.silu(gate) * up
        return hidden.sum(0, keepdim=True).repeat(PLACES, 1)


def get_inputs():
    return [torch.randn(TOKENS, COLUMNS, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return []


class Fused(Model):
    """Honest: rounds the product of gate and up once, not twice."""

    def forward(self, gate, up):
        hidden = (F.silu(gate.float()) * up.float()).bfloat16()
        return hidden.sum(0, keepdim=True).repeat(PLACES, 1)


class Exact(Model):
    """Honest: rounds the sums only."""

    def forward(self, gate, up):
        hidden = F.silu(gate.float()) * up.float()
        return hidden.sum(0, keepdim=True).bfloat16().repeat(PLACES, 1)


class SmallSumsZero(Model):
    """Wrong: sums below 0.5 are zero.

    Names: columns
    """

    def forward(self, gate, up):
        total = super().forward(gate, up)
        return torch.where(total.abs() < 0.5, 0.0, total)


class NoSigmoid(Model):
    """Wrong: the gate without its sigmoid, halved.

    Names: columns
    """

    def forward(self, gate, up):
        return (gate / 2 * up).sum(0, keepdim=True).repeat(PLACES, 1)
