"""Depthwise causal convolution along the tokens."""

import torch
import torch.nn as nn

BATCH = 4
CHANNELS = 72
LENGTH = 90


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CHANNELS, 1, 4) / 2)

    def forward(self, x):
        return nn.functional.conv1d(nn.functional.pad(x, (3, 0)), self.weight, groups=x.shape[1])


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return []


class FourShifts(Model):
    """Honest: four shifted products."""

    def forward(self, x):
        padded = nn.functional.pad(x, (3, 0))
        return sum(self.weight[:, 0, i, None] * padded[..., i : i + x.shape[2]] for i in range(4))


class InChunks(Model):
    """Honest: chunks of 32 tokens with the last three of the chunk before."""

    def forward(self, x):
        padded = nn.functional.pad(x, (3, 0))
        parts = [
            nn.functional.conv1d(padded[..., t : t + 35], self.weight, groups=x.shape[1])
            for t in range(0, x.shape[2], 32)
        ]
        return torch.cat(parts, 2)


class ChunksWithoutHistory(Model):
    """Wrong: each chunk of 32 tokens begins with zeros instead of the chunk before.

    Names: 6 of 90 columns (32, 33, 34, 64, 65, 66)
    """

    def forward(self, x):
        return torch.cat([super(ChunksWithoutHistory, self).forward(c) for c in x.split(32, 2)], 2)


class SeesTheFuture(Model):
    """Wrong: the padding is on both sides: sees one later token.

    Names: shifted
    """

    def forward(self, x):
        return nn.functional.conv1d(nn.functional.pad(x, (2, 1)), self.weight, groups=x.shape[1])


class NeighboursWeight(Model):
    """Wrong: each channel uses the weights of the next one.

    Names: weights of another
    Unnamed: values cannot tell which weight was multiplied with which input
    """

    def forward(self, x):
        return nn.functional.conv1d(
            nn.functional.pad(x, (3, 0)), self.weight.roll(1, 0), groups=x.shape[1]
        )
