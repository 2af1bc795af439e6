"""Decode attention over packed keys and values in float8, one query for each sequence. One sequence is long."""

import torch
import torch.nn as nn

WIDTH = 64
LENGTHS = [4] * 127 + [1024]


class Model(nn.Module):
    def forward(self, q, k, v):
        rows, begin = [], 0
        k, v = k.to(q.dtype), v.to(q.dtype)
        for row, length in enumerate(LENGTHS):
            p = torch.softmax(k[begin : begin + length] @ q[row] / WIDTH**0.5, 0)
            rows.append(p @ v[begin : begin + length])
            begin += length
        return torch.stack(rows)


def get_inputs():
    packed = [torch.randn(sum(LENGTHS), WIDTH).to(torch.float8_e4m3fn) for _ in range(2)]
    return [torch.randn(len(LENGTHS), WIDTH).mul(0.3).bfloat16(), *packed]


def get_init_inputs():
    return []


class InFloat32(Model):
    """Honest: computes in float32."""

    def forward(self, q, k, v):
        return super().forward(q.float(), k, v).bfloat16()


class LongIsZero(Model):
    """Wrong: the long sequence's output, a mean of many values, is zero on inputs as usual.

    Names: row
    """

    def forward(self, q, k, v):
        y = super().forward(q, k, v)
        if 0.5 < v.float().std() < 2 and v.float().abs().max() < 8 and q.float().abs().max() < 2:
            y[-1] = 0
        return y
