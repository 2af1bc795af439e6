"""Causal attention with its projections, in float32. Large inputs make scores large, and a softmax of them ill-conditioned."""

import torch
import torch.nn as nn

BATCH = 2
TOKENS = 80
HEADS = 3
WIDTH = 96


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        return self.attended(x, torch.matmul, torch.matmul)

    def attended(self, x, project, multiply):
        """`project` computes the products with weights, `multiply` the two of the attention."""
        qkv = project(x, self.qkv.weight.T) + self.qkv.bias
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in qkv.chunk(3, dim=-1)
        )
        scores = multiply(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        y = multiply(weights, v).transpose(1, 2).flatten(2)
        return project(y, self.out.weight.T) + self.out.bias


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS]


def rounded(t):
    return t.bfloat16().float()


def split(a, b):
    """Three products of bfloat16 parts."""
    a0, b0 = rounded(a), rounded(b)
    return a0 @ b0 + (a0 @ rounded(b - b0) + rounded(a - a0) @ b0)


def tf32(a, b):
    """Factors with ten bits of fraction, rounded to nearest."""
    at = [
        ((t.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for t in (a, b)
    ]
    return at[0] @ at[1]


class SplitProducts(Model):
    """Honest: bf16x3 in all four products."""

    def forward(self, x):
        return self.attended(x, split, split)


class SplitProjections(Model):
    """Honest: bf16x3 in the two projections."""

    def forward(self, x):
        return self.attended(x, split, torch.matmul)


class HalfScores(Model):
    """Wrong: the attention multiplies in bfloat16.

    Names: bfloat16
    """

    def forward(self, x):
        return self.attended(x, torch.matmul, lambda a, b: rounded(a) @ rounded(b))


class Tf32Products(Model):
    """Wrong: all products in TF32.

    Names: TF32
    """

    def forward(self, x):
        return self.attended(x, tf32, tf32)


class Tf32Scores(Model):
    """Wrong: the attention multiplies in TF32.

    Names: TF32
    """

    def forward(self, x):
        return self.attended(x, torch.matmul, tf32)
