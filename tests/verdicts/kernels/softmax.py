"""softmax(x, -1) in float32."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 300


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


def exp2_by_polynomial(x):
    """2^x from 2^floor(x) and a polynomial of the fraction, with an error of about 2e-7."""
    x = x.clamp(min=-126)
    whole = x.floor()
    t = (x - whole) * 0.6931471805599453
    p = torch.zeros_like(t)
    for n in range(9, 0, -1):
        p = (p + 1) * t / n
    return torch.ldexp(p + 1, whole.int())


class Online(Model):
    """Honest: running maximum and rescaled running sum over blocks of 128 columns."""

    def forward(self, x):
        top = torch.full((len(x), 1), -torch.inf)
        total = torch.zeros(len(x), 1)
        for block in x.split(128, 1):
            new = torch.maximum(top, block.amax(1, keepdim=True))
            total = total * (top - new).exp() + (block - new).exp().sum(1, keepdim=True)
            top = new
        return (x - top).exp() / total


class BaseTwo(Model):
    """Honest: 2^(x * log2(e)), as the hardware's exp2 instruction is used."""

    def forward(self, x):
        y = (x - x.amax(1, keepdim=True)) * 1.4426950408889634
        e = torch.exp2(y)
        return e * (1 / e.sum(1, keepdim=True))


class Polynomial(Model):
    """Honest: the exponential by a polynomial of degree 9, not below 2^-126.

    Today: refused with mixed or large inputs: a column of values near 1e-38 counts as lost
    """

    def forward(self, x):
        e = exp2_by_polynomial((x - x.amax(1, keepdim=True)) * 1.4426950408889634)
        return e / e.sum(1, keepdim=True)


class ByLogarithm(Model):
    """Honest: exp(x - logsumexp(x)), with logsumexp from chunks."""

    def forward(self, x):
        parts = torch.stack([torch.logsumexp(c, 1) for c in x.split(100, 1)], 1)
        return (x - torch.logsumexp(parts, 1, keepdim=True)).exp()


class NoMaximum(Model):
    """Wrong: the maximum is not subtracted, so the exponential overflows for large inputs.

    Names: large | mixed & overflow
    """

    def forward(self, x):
        e = x.exp()
        return e / e.sum(1, keepdim=True)


class WrongAxis(Model):
    """Wrong: softmax over the rows.

    Names: another axis
    """

    def forward(self, x):
        return torch.softmax(x, 0)


class TailNotSummed(Model):
    """Wrong: the last, partial block of 128 columns is missing in the sum.

    Names: factor for each row
    """

    def forward(self, x):
        e = (x - x.amax(1, keepdim=True)).exp()
        return e / e[:, : x.shape[1] // 128 * 128].sum(1, keepdim=True)


class TailPaddedWithZeros(Model):
    """Wrong: the last block is padded with zeros instead of minus infinity, which the sum counts.

    Names: factor for each row
    """

    def forward(self, x):
        padded = nn.functional.pad(x, (0, -x.shape[1] % 128))
        return torch.softmax(padded, 1)[:, : x.shape[1]]


class NotRescaled(Model):
    """Wrong: the running sum is not rescaled when the maximum grows.

    Names: factor for each row
    """

    def forward(self, x):
        top, total = torch.full((len(x), 1), -torch.inf), 0.0
        for block in x.split(128, 1):
            top = torch.maximum(top, block.amax(1, keepdim=True))
            total = total + (block - top).exp().sum(1, keepdim=True)
        return (x - top).exp() / total


class EpsilonInDenominator(Model):
    """Wrong: adds 1e-3 to the denominator.

    Names: factor for each row | got =
    """

    def forward(self, x):
        e = (x - x.amax(1, keepdim=True)).exp()
        return e / (e.sum(1, keepdim=True) + 1e-3)


class LastColumnMissing(Model):
    """Wrong: an off-by-one mask leaves the last column out.

    Names: factor for each row
    """

    def forward(self, x):
        mask = torch.arange(x.shape[1]) < x.shape[1] - 1
        return torch.softmax(x.masked_fill(~mask, -torch.inf), 1)
