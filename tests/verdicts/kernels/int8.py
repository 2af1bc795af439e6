"""Exact int8 matrix product, and its rounding to int8."""

import torch
import torch.nn as nn

ROWS = 96
INNER = 200
COLUMNS = 72


class Model(nn.Module):
    def forward(self, a, b):
        exact = (a.long() @ b.long()).int()
        return exact, (exact / 256).round().clamp(-128, 127).to(torch.int8)


def get_inputs():
    return [
        torch.randint(-128, 128, (ROWS, INNER), dtype=torch.int8),
        torch.randint(-128, 128, (INNER, COLUMNS), dtype=torch.int8),
    ]


def get_init_inputs():
    return []


def rounded(exact):
    return (exact.float() / 256).round().clamp(-128, 127).to(torch.int8)


class InFloat32(Model):
    """Honest: float32 products, which are exact below 2^24."""

    def forward(self, a, b):
        exact = (a.float() @ b.float()).int()
        return exact, rounded(exact)


class InBlocks(Model):
    """Honest: int32 sums of int16 products in blocks of 32."""

    def forward(self, a, b):
        parts = [s.int() @ t.int() for s, t in zip(a.split(32, 1), b.split(32, 0))]
        exact = sum(parts)
        return exact, rounded(exact)


class Truncated(Model):
    """Wrong: the conversion to int8 cuts off instead of rounding.

    Names: rounding | truncat
    """

    def forward(self, a, b):
        exact = (a.float() @ b.float()).int()
        return exact, (exact.float() / 256).clamp(-128, 127).to(torch.int8)


class HalfUp(Model):
    """Wrong: halves are rounded up instead of to even.

    Names: rounding
    """

    def forward(self, a, b):
        exact = (a.float() @ b.float()).int()
        return exact, (exact.float() / 256 + 0.5).floor().clamp(-128, 127).to(torch.int8)


class NotClamped(Model):
    """Wrong: int8 wraps around instead of saturating.

    Names: wrap
    """

    def forward(self, a, b):
        exact = (a.float() @ b.float()).int()
        return exact, (exact.float() / 256).round().to(torch.int32).to(torch.int8)


class Saturating(Model):
    """Wrong: partial sums saturate at int16.

    Names: saturat | 32767 | clamped
    """

    def forward(self, a, b):
        exact = (a.float() @ b.float()).int().clamp(-32768, 32767)
        return exact, rounded(exact)
