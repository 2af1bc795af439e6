"""RMSNorm in float16 with sums in float32."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 200


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter((1 + 0.2 * torch.randn(COLUMNS)).half())

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)).half() * self.weight


def get_inputs():
    return [torch.randn(ROWS, COLUMNS).half()]


def get_init_inputs():
    return []


class RoundedOnce(Model):
    """Honest: rounds to float16 only at the end."""

    def forward(self, x):
        y = x.float()
        scale = torch.rsqrt(y.square().sum(-1, keepdim=True) / x.shape[-1] + 1e-5)
        return (y * scale * self.weight.float()).half()


class Float16Squares(Model):
    """Wrong: sums of squares in float16, which overflow.

    Names: all of them are 0 & overflow
    """

    def forward(self, x):
        mean = x.square().sum(-1, keepdim=True) / x.shape[-1]
        return x * torch.rsqrt(mean + 1e-5) * self.weight


class MaximumNorm(Model):
    """Wrong: divides by the largest value.

    Names: factor for each row
    """

    def forward(self, x):
        return x / x.abs().amax(-1, keepdim=True) * self.weight
