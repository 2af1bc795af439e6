"""LayerNorm of values whose mean is 300 times their deviation."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 200


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.layer_norm(x, (x.shape[1],))


def get_inputs():
    return [torch.randn(ROWS, COLUMNS) + 300]


def get_init_inputs():
    return []


class ShiftedOnePass(Model):
    """Honest: one pass over differences from the row's first value."""

    def forward(self, x):
        y = x - x[:, :1]
        mean = y.mean(1, keepdim=True)
        variance = y.square().mean(1, keepdim=True) - mean.square()
        return (y - mean) * torch.rsqrt(variance + 1e-5)


class Welford(Model):
    """Honest: Welford's recurrence."""

    def forward(self, x):
        mean, m2 = torch.zeros(len(x), 1), torch.zeros(len(x), 1)
        for n in range(x.shape[1]):
            delta = x[:, n, None] - mean
            mean = mean + delta / (n + 1)
            m2 = m2 + delta * (x[:, n, None] - mean)
        return (x - mean) * torch.rsqrt(m2 / x.shape[1] + 1e-5)


class OnePass(Model):
    """Wrong: E[x^2] - E[x]^2 cancels where the mean is large.

    Names: cancel
    """

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x.square().mean(1, keepdim=True) - mean.square()).clamp(min=0)
        return (x - mean) * torch.rsqrt(variance + 1e-5)
