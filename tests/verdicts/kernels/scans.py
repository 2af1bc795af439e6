"""Cumulative sums, and a linear recurrence h = a h + b."""

import torch
import torch.nn as nn

ROWS = 80
STEPS = 300


class Model(nn.Module):
    def forward(self, x, a):
        a = torch.sigmoid(a)
        states, h = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = a[:, t] * h + x[:, t]
            states.append(h)
        return x.cumsum(1), torch.stack(states, 1)


def get_inputs():
    return [torch.randn(ROWS, STEPS), torch.randn(ROWS, STEPS) + 2]


def get_init_inputs():
    return []


def cumsum(x, size=64):
    parts, carry = [], 0.0
    for block in x.split(size, 1):
        parts.append(block.cumsum(1) + carry)
        carry = parts[-1][:, -1:]
    return torch.cat(parts, 1)


def scan(x, a, size=64, carried=True):
    """Chunks of the recurrence, each by doubling steps, with the state carried on."""
    parts, h = [], torch.zeros(len(x), 1)
    for b, c in zip(x.split(size, 1), torch.sigmoid(a).split(size, 1)):
        step = 1
        while step < b.shape[1]:
            pad = nn.functional.pad(b[:, :-step], (step, 0))
            b = b + c * pad
            c = c * nn.functional.pad(c[:, :-step], (step, 0), value=1.0)
            step *= 2
        parts.append(b + c * h)
        h = parts[-1][:, -1:] if carried else h
    return torch.cat(parts, 1)


class Blocked(Model):
    """Honest: blocks of 64 with a carried sum; a chunked scan with doubling steps."""

    def forward(self, x, a):
        return cumsum(x), scan(x, a)


class Triangular(Model):
    """Honest: cumulative sums by a product with a triangular matrix; the scan in chunks of 32."""

    def forward(self, x, a):
        return x @ torch.ones(x.shape[1], x.shape[1]).triu(), scan(x, a, 32)


class Exclusive(Model):
    """Wrong: the cumulative sum without the element itself.

    Names: shifted
    """

    def forward(self, x, a):
        return cumsum(x) - x, scan(x, a)


class NoCarry(Model):
    """Wrong: each block of 64 begins with the sum 0.

    Names: columns 64 to 299, the last 236
    """

    def forward(self, x, a):
        return torch.cat([block.cumsum(1) for block in x.split(64, 1)], 1), scan(x, a)


class StateLost(Model):
    """Wrong: the state of the recurrence is not carried into the next chunk.

    Names: columns 64
    """

    def forward(self, x, a):
        return cumsum(x), scan(x, a, carried=False)


class OneCarry(Model):
    """Wrong: adds only the sum of the block before, not those of all blocks before.

    Names: columns 128 to 299, the last 172
    """

    def forward(self, x, a):
        blocks = [block.cumsum(1) for block in x.split(64, 1)]
        sums = [torch.zeros(len(x), 1), *(block[:, -1:] for block in blocks)]
        return torch.cat([b + s for b, s in zip(blocks, sums)], 1), scan(x, a)


class ReversedScan(Model):
    """Wrong: sums from the end.

    Names: reverse
    Unnamed: the sums are reversed, not the results
    """

    def forward(self, x, a):
        return x.flip(1).cumsum(1).flip(1), scan(x, a)
