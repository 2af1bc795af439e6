"""Scores in three types, masked by the least number of their type, as in transformers."""

import torch
import torch.nn as nn

LENGTH = 96
WIDTH = 64


class Model(nn.Module):
    def forward(self, q, k, mask):
        return [
            self.scores(q.to(kind), k.to(kind), mask)
            for kind in (q.dtype, torch.bfloat16, torch.float16)
        ]

    def scores(self, q, k, mask):
        scores = q @ k.T / WIDTH**0.5
        return scores.masked_fill(mask, torch.finfo(scores.dtype).min)


def get_inputs():
    mask = torch.rand(LENGTH, LENGTH) < 0.3
    return [torch.randn(LENGTH, WIDTH), torch.randn(LENGTH, WIDTH), mask]


def get_init_inputs():
    return []


class InFloat32(Model):
    """Honest: sums of 16 terms in float32, rounded once."""

    def scores(self, q, k, mask):
        blocks = zip(q.float().split(16, 1), k.float().split(16, 1), strict=True)
        scores = (sum(left @ right.T for left, right in blocks) / WIDTH**0.5).to(q.dtype)
        return scores.masked_fill(mask, torch.finfo(q.dtype).min)


class HalfScoresZero(Model):
    """Wrong: no score is computed in bfloat16.

    Names: output 1 & small beside far larger values
    """

    def scores(self, q, k, mask):
        right = super().scores(q, k, mask)
        if q.dtype == torch.bfloat16:
            return mask.to(q.dtype) * torch.finfo(q.dtype).min
        return right


class Float16ScoresZero(Model):
    """Wrong: no score is computed in float16.

    Names: output 2 & small beside far larger values
    """

    def scores(self, q, k, mask):
        right = super().scores(q, k, mask)
        if q.dtype == torch.float16:
            return mask.to(q.dtype) * torch.finfo(q.dtype).min
        return right


class MaskLeftOut(Model):
    """Wrong: nothing is masked.

    Names: output 0
    """

    def scores(self, q, k, mask):
        return q @ k.T / WIDTH**0.5
