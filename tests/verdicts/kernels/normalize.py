"""Rows divided by their length, some of them zero, and logarithms of counts."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 80


class Model(nn.Module):
    def forward(self, x, counts):
        return nn.functional.normalize(x, dim=1), torch.log(counts)


def get_inputs():
    x = torch.randn(ROWS, COLUMNS)
    x[::7] = 0
    return [x, torch.randint(0, 5, (ROWS, COLUMNS)).float()]


def get_init_inputs():
    return []


class Reciprocal(Model):
    """Honest: a reciprocal square root; the logarithm by log2."""

    def forward(self, x, counts):
        scale = torch.rsqrt(x.square().sum(1, keepdim=True).clamp(min=1e-24))
        return x * scale, counts.log2() * 0.6931471805599453


class ZeroRows(Model):
    """Wrong: rows of zeros give NaN.

    Names: rows 0, 7 & NaN
    """

    def forward(self, x, counts):
        return x / x.norm(dim=1, keepdim=True), counts.log()


class NotANumber(Model):
    """Wrong: the logarithm of zero is NaN instead of minus infinity.

    Names: output 1 & infinit & NaN
    """

    def forward(self, x, counts):
        return nn.functional.normalize(x, dim=1), torch.where(counts > 0, counts.log(), torch.nan)


class Finite(Model):
    """Wrong: the logarithm of zero is a large negative number.

    Names: output 1 & infinit
    """

    def forward(self, x, counts):
        return nn.functional.normalize(x, dim=1), counts.clamp(min=1e-38).log()


class LengthsAdded(Model):
    """Wrong: the sum of absolute values instead of the Euclidean length.

    Names: factor for each row
    """

    def forward(self, x, counts):
        return nn.functional.normalize(x, p=1, dim=1), counts.log()
