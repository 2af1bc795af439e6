"""SwiGLU of one matrix with gate and value halves."""

import torch
import torch.nn as nn

ROWS = 96
WIDTH = 144


class Model(nn.Module):
    def forward(self, x):
        gate, value = x.chunk(2, -1)
        return nn.functional.silu(gate) * value


def get_inputs():
    return [torch.randn(ROWS, 2 * WIDTH)]


def get_init_inputs():
    return []


class ByExponential(Model):
    """Honest: g * v / (1 + exp(-g))."""

    def forward(self, x):
        gate, value = x.chunk(2, -1)
        return gate * value / (1 + (-gate).exp())


class ByTanh(Model):
    """Honest: the sigmoid by tanh."""

    def forward(self, x):
        gate, value = x.chunk(2, -1)
        return gate * (0.5 + 0.5 * torch.tanh(0.5 * gate)) * value


class HalvesSwapped(Model):
    """Wrong: gate and value are swapped.

    Names: swapped
    Unnamed: the output is not a permutation of the expected one
    """

    def forward(self, x):
        value, gate = x.chunk(2, -1)
        return nn.functional.silu(gate) * value


class InterleavedHalves(Model):
    """Wrong: gate and value alternate.

    Names: interleaved
    Unnamed: the output is not a permutation of the expected one
    """

    def forward(self, x):
        return nn.functional.silu(x[:, ::2]) * x[:, 1::2]


class SigmoidOnly(Model):
    """Wrong: sigmoid instead of SiLU.

    Names: sigmoid
    Unnamed: needs knowledge of the function
    """

    def forward(self, x):
        gate, value = x.chunk(2, -1)
        return torch.sigmoid(gate) * value
