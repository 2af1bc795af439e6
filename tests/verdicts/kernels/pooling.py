"""Max pooling and mean pooling with padding."""

import torch
import torch.nn as nn

BATCH = 3
CHANNELS = 8
SIZE = 24


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.max_pool2d(x, 3, 2, 1), nn.functional.avg_pool2d(x, 3, 2, 1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []


def taps(x, value):
    n, m = ((size - 1) // 2 + 1 for size in x.shape[2:])
    padded = nn.functional.pad(x, (1, 1, 1, 1), value=value)
    return torch.stack(
        [
            padded[:, :, i : i + 2 * n : 2, j : j + 2 * m : 2][:, :, :n, :m]
            for i in range(3)
            for j in range(3)
        ]
    )


class Shifts(Model):
    """Honest: the largest and the mean of nine shifted images."""

    def forward(self, x):
        return taps(x, -torch.inf).amax(0), taps(x, 0.0).sum(0) / 9


class MaximumWithZero(Model):
    """Wrong: the maximum is padded with zeros.

    Names: border & padding
    """

    def forward(self, x):
        return taps(x, 0.0).amax(0), taps(x, 0.0).sum(0) / 9


class BorderNotCounted(Model):
    """Wrong: the mean at the border counts no padding.

    Names: border & padding
    """

    def forward(self, x):
        mean = nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        return taps(x, -torch.inf).amax(0), mean


class OtherOffset(Model):
    """Wrong: windows begin at 0 instead of -1.

    Names: window
    Unnamed: the largest values of other windows show no rule
    """

    def forward(self, x):
        shifted = nn.functional.pad(x[:, :, 1:, 1:], (0, 1, 0, 1), value=-100.0)
        return nn.functional.max_pool2d(shifted, 3, 2, 1), taps(x, 0.0).sum(0) / 9
