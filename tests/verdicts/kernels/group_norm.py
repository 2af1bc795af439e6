"""GroupNorm with weights in float32."""

import torch
import torch.nn as nn

BATCH = 6
CHANNELS = 24
SIZE = 15


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(CHANNELS))
        self.bias = nn.Parameter(torch.randn(CHANNELS))

    def forward(self, x):
        return nn.functional.group_norm(x, 4, self.weight, self.bias)

    def affine(self, y):
        return y * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) * torch.rand(CHANNELS, 1, 1)]


def get_init_inputs():
    return []


def normalized(x, dims):
    variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


class TwoPasses(Model):
    """Honest: mean and variance of each group."""

    def forward(self, x):
        return self.affine(normalized(x.view(len(x), 4, -1), 2).view(x.shape))


class SumsOfChannels(Model):
    """Honest: sums and sums of squares of each channel, then of each group."""

    def forward(self, x):
        s, q = x.sum((2, 3)).view(len(x), 4, -1), x.square().sum((2, 3)).view(len(x), 4, -1)
        n = x[0].numel() // 4
        mean = s.sum(2, keepdim=True) / n
        scale = torch.rsqrt(q.sum(2, keepdim=True) / n - mean.square() + 1e-5)
        return self.affine(((x.view(len(x), 4, -1) - mean) * scale).view(x.shape))


class InterleavedGroups(Model):
    """Wrong: channel c belongs to group c modulo 4.

    Names: factor and constant for each
    """

    def forward(self, x):
        y = x.view(len(x), -1, 4, *x.shape[2:])
        return self.affine(normalized(y, (1, 3, 4)).view(x.shape))


class InstanceNorm(Model):
    """Wrong: each channel is a group.

    Names: factor and constant for each
    """

    def forward(self, x):
        return self.affine(normalized(x, (2, 3)))


class WholeSample(Model):
    """Wrong: one group.

    Names: factor and constant for each
    """

    def forward(self, x):
        return self.affine(normalized(x, (1, 2, 3)))
