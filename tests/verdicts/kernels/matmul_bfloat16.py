"""Matrix product in bfloat16."""

import torch
import torch.nn as nn

ROWS = 96
INNER = 520
COLUMNS = 104


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(ROWS, INNER).bfloat16(), torch.randn(INNER, COLUMNS).bfloat16()]


def get_init_inputs():
    return []


class Float32Sums(Model):
    """Honest: float32 sums over blocks of 64, as tensor cores do."""

    def forward(self, a, b):
        parts = [(s.float() @ t.float()) for s, t in zip(a.split(64, 1), b.split(64, 0))]
        return sum(parts).bfloat16()


class Bfloat16Sums(Model):
    """Wrong: the sums over blocks of 8 are added in bfloat16.

    Names: bfloat16 & sum
    """

    def forward(self, a, b):
        out = torch.zeros(len(a), b.shape[1]).bfloat16()
        for s, t in zip(a.split(8, 1), b.split(8, 0)):
            out += (s.float() @ t.float()).bfloat16()
        return out


class Truncated(Model):
    """Honest: sums are cut off to bfloat16 instead of rounded, which is within three times the reference's error."""

    def forward(self, a, b):
        full = a.float() @ b.float()
        return (full.view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()


class SecondTransposed(Model):
    """Wrong: reads the second matrix as if it were stored by columns.

    Names: operand
    Unnamed: values cannot tell which element of an operand was read
    """

    def forward(self, a, b):
        return a @ b.flatten().view(b.shape[1], b.shape[0]).T
