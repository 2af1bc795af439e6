"""An embedding and sums of rows by index."""

import torch
import torch.nn as nn

TABLE = 150
TOKENS = 260
WIDTH = 72


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(TABLE, WIDTH))

    def forward(self, index, x):
        return self.table[index], torch.zeros(TABLE, WIDTH).index_add(0, index, x)


def get_inputs():
    return [torch.randint(0, TABLE, (TOKENS,)), torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return []


class OneHot(Model):
    """Honest: products with a matrix of zeros and ones."""

    def forward(self, index, x):
        hot = nn.functional.one_hot(index, TABLE).float()
        return hot @ self.table, hot.T @ x


class SortedSegments(Model):
    """Honest: sums of segments after sorting by index."""

    def forward(self, index, x):
        order = index.argsort(stable=True)
        sums = torch.cat([torch.zeros(1, WIDTH, dtype=torch.float64), x[order].double().cumsum(0)])
        ends = torch.searchsorted(index[order], torch.arange(TABLE + 1))
        return self.table[index], (sums[ends[1:]] - sums[ends[:-1]]).float()


class Atomics(Model):
    """Honest: additions in random order, as by atomics."""

    def forward(self, index, x):
        order = torch.randperm(len(index))
        out = torch.zeros(TABLE, WIDTH)
        for i in order.tolist():
            out[index[i]] += x[i]
        return self.table[index], out


class LastWins(Model):
    """Wrong: writes instead of adding: of equal indices the last one remains.

    Names: output 1 & rows
    """

    def forward(self, index, x):
        out = torch.zeros(TABLE, WIDTH)
        out[index] = x
        return self.table[index], out


class Clamped(Model):
    """Wrong: indices are clamped to 128 entries.

    Names: rows
    """

    def forward(self, index, x):
        index = index.clamp(max=127)
        return super().forward(index, x)


class FirstIsPadding(Model):
    """Wrong: entry 0 counts as padding and gives zeros.

    Names: all of them are 0
    """

    def forward(self, index, x):
        looked_up, sums = super().forward(index, x)
        return looked_up * (index != 0)[:, None], sums


class LostUpdates(Model):
    """Wrong: additions to the same row at the same time: one in 50 is lost, at random.

    Names: output 1 & race
    """

    def forward(self, index, x):
        drawn = torch.rand(
            len(index), 1, generator=torch.Generator(x.device).manual_seed(torch.seed())
        )
        return self.table[index], torch.zeros(TABLE, WIDTH).index_add(0, index, x * (drawn > 0.02))
