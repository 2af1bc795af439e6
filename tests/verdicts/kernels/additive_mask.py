"""Attention with an additive mask, as in BERT, in bfloat16. Most sequences are short and one is long."""

import torch
import torch.nn as nn

ROWS = 128
LONG = 128
WIDTH = 32


class Model(nn.Module):
    def forward(self, q, k, v, mask):
        scores = (k @ q[:, :, None]).squeeze(2) / WIDTH**0.5 + (1 - mask) * -10000.0
        return (torch.softmax(scores, 1)[:, None] @ v).squeeze(1)


def get_inputs():
    mask = torch.zeros(ROWS, LONG)
    mask[:, :2] = 1
    mask[5] = 1
    packed = [torch.randn(ROWS, LONG, WIDTH).bfloat16() for _ in range(2)]
    return [torch.randn(ROWS, WIDTH).mul(0.3).bfloat16(), *packed, mask.bfloat16()]


def get_init_inputs():
    return []


class InFloat32(Model):
    """Honest: computes in float32."""

    def forward(self, q, k, v, mask):
        return super().forward(q.float(), k.float(), v.float(), mask.float()).bfloat16()


class LongIsZero(Model):
    """Wrong: the long sequence's output is zero on inputs as usual.

    Names: row
    """

    def forward(self, q, k, v, mask):
        y = super().forward(q, k, v, mask)
        usual = ((mask == 0) | (mask == 1)).all() and q.float().abs().max() < 2
        if usual and v[:, 0].float().std() > 0.3 and k[:, 0].float().abs().max() < 8:
            y[5] = 0
        return y
