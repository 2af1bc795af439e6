"""Cumulative products."""

import torch
import torch.nn as nn

ROWS = 80
STEPS = 200


class Model(nn.Module):
    def forward(self, x):
        return (1 + 0.1 * torch.tanh(x)).cumprod(1)


def get_inputs():
    return [torch.randn(ROWS, STEPS)]


def get_init_inputs():
    return []


class Blocked(Model):
    """Honest: blocks of 64 with a carried product."""

    def forward(self, x):
        parts, carry = [], torch.ones(len(x), 1)
        for block in (1 + 0.1 * torch.tanh(x)).split(64, 1):
            parts.append(block.cumprod(1) * carry)
            carry = parts[-1][:, -1:]
        return torch.cat(parts, 1)


class ByLogarithms(Model):
    """Honest: the exponential of a cumulative sum of logarithms, with log1p."""

    def forward(self, x):
        return torch.log1p(0.1 * torch.tanh(x)).cumsum(1).exp()


class TailNotWritten(Model):
    """Wrong: the last partial block of 64 is never written.

    Names: columns 192 to 199, the last 8 & NaN
    """

    def forward(self, x):
        out = torch.full_like(x, torch.nan)
        full = x.shape[1] // 64 * 64
        out[:, :full] = super().forward(x)[:, :full]
        return out
