"""Attention scores, those of a random mask set to -1e9."""

import torch
import torch.nn as nn

BATCH = 2
LENGTH = 96
WIDTH = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        return scores.masked_fill(mask, -1e9)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.rand(BATCH, LENGTH, LENGTH) < 0.3]


def get_init_inputs():
    return []


class InBlocks(Model):
    """Honest: sums of 16 terms, the scale in the queries, and a sum with the mask times -1e9."""

    def forward(self, x, mask):
        q, k = self.query(x) / WIDTH**0.5, self.key(x)
        blocks = zip(q.split(16, 2), k.split(16, 2), strict=True)
        scores = sum(left @ right.transpose(1, 2) for left, right in blocks)
        return torch.where(mask, torch.full_like(scores, -1e9), scores)


class InParts(Model):
    """Honest: three products of bfloat16 parts."""

    def forward(self, x, mask):
        q, k = self.query(x), self.key(x).transpose(1, 2)
        q0, k0 = q.bfloat16().float(), k.bfloat16().float()
        q1, k1 = (q - q0).bfloat16().float(), (k - k0).bfloat16().float()
        scores = (q0 @ k0 + (q0 @ k1 + q1 @ k0)) / WIDTH**0.5
        return scores.masked_fill(mask, -1e9)


class NoScores(Model):
    """Wrong: no score is computed.

    Names: are 0 & small beside far larger values
    """

    def forward(self, x, mask):
        return mask.float() * -1e9


class OneHeadLess(Model):
    """Wrong: the last 16 features are left out.

    Names: small beside far larger values
    """

    def forward(self, x, mask):
        q, k = self.query(x)[..., :-16], self.key(x)[..., :-16]
        return (q @ k.transpose(1, 2) / WIDTH**0.5).masked_fill(mask, -1e9)


class InHalfPrecision(Model):
    """Wrong: products in bfloat16.

    Names: small beside far larger values
    """

    def forward(self, x, mask):
        q, k = self.query(x).bfloat16().float(), self.key(x).bfloat16().float()
        return (q @ k.transpose(1, 2) / WIDTH**0.5).masked_fill(mask, -1e9)


class LastRowOfScores(Model):
    """Wrong: the scores of the last query are zero.

    Names: border & small beside far larger values
    """

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5
        scores[:, -1] = 0
        return scores.masked_fill(mask, -1e9)


class NoQueryBias(Model):
    """Wrong: the queries' bias is left out.

    Names: small beside far larger values
    """

    def forward(self, x, mask):
        q = x @ self.query.weight.T
        return (q @ self.key(x).transpose(1, 2) / WIDTH**0.5).masked_fill(mask, -1e9)
