"""Sums, unbiased variances and means of rows with a boolean mask."""

import torch
import torch.nn as nn

ROWS = 100
COLUMNS = 1000


class Model(nn.Module):
    def forward(self, x, mask):
        kept = x * mask
        return x.sum(1), x.var(1), kept.sum(1) / mask.sum(1).clamp(min=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.rand(ROWS, COLUMNS) < 0.7]


def get_init_inputs():
    return []


def pairwise(x):
    while x.shape[1] > 1:
        x = nn.functional.pad(x, (0, x.shape[1] % 2))
        x = x[:, ::2] + x[:, 1::2]
    return x[:, 0]


def in_order(x):
    total = torch.zeros(len(x))
    for n in range(x.shape[1]):
        total = total + x[:, n]
    return total


def kahan(x):
    total, lost = torch.zeros(len(x)), torch.zeros(len(x))
    for n in range(x.shape[1]):
        term = x[:, n] - lost
        new = total + term
        total, lost = new, (new - total) - term
    return total


def statistics(x, mask, add):
    total = add(x)
    variance = add((x - (total / x.shape[1])[:, None]).square()) / (x.shape[1] - 1)
    return total, variance, add(torch.where(mask, x, 0.0)) / mask.sum(1).clamp(min=1)


class Pairwise(Model):
    """Honest: pairwise sums."""

    def forward(self, x, mask):
        return statistics(x, mask, pairwise)


class InOrder(Model):
    """Honest: one accumulator for 1,000 values."""

    def forward(self, x, mask):
        return statistics(x, mask, in_order)


class Kahan(Model):
    """Honest: compensated sums."""

    def forward(self, x, mask):
        return statistics(x, mask, kahan)


class RandomOrder(Model):
    """Honest: partial sums of 50 in random order, as by atomics."""

    def forward(self, x, mask):
        order = torch.randperm(-(-x.shape[1] // 50)).tolist()
        return statistics(x, mask, lambda y: sum(y.split(50, 1)[n].sum(1) for n in order))


class Biased(Model):
    """Wrong: the variance is divided by n instead of n - 1.

    Names: output 1 & n - 1
    """

    def forward(self, x, mask):
        total, variance, mean = statistics(x, mask, pairwise)
        return total, variance * (x.shape[1] - 1) / x.shape[1], mean


class MeanOfAll(Model):
    """Wrong: the masked sum is divided by the number of columns.

    Names: factor | count
    Unnamed: a single value of a row shows no factor
    """

    def forward(self, x, mask):
        total, variance, _ = statistics(x, mask, pairwise)
        return total, variance, (x * mask).sum(1) / x.shape[1]


class MaskInverted(Model):
    """Wrong: the mask is inverted.

    Names: output 2 & mask
    Unnamed: needs knowledge of the function
    """

    def forward(self, x, mask):
        return statistics(x, ~mask, pairwise)


class LastBlockTwice(Model):
    """Wrong: the last block of 64 overlaps the one before, whose values count twice.

    Names: sum
    Unnamed: a single value of a row shows no pattern
    """

    def forward(self, x, mask):
        twice = x[:, -64 : -(x.shape[1] % 64)].sum(1)
        total, variance, mean = statistics(x, mask, pairwise)
        return total + twice, variance, mean


class MaskShifted(Model):
    """Wrong: the mask is off by one column.

    Names: mask
    Unnamed: a single value of a row shows no pattern
    """

    def forward(self, x, mask):
        return statistics(x, mask, pairwise)[:2] + statistics(x, mask.roll(1, 1), pairwise)[2:]
