"""A chain of element-wise work at a size that blocks of 64 divide."""

import torch
import torch.nn as nn

ROWS = 64
COLUMNS = 256


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x + 1


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


class InBlocks(Model):
    """Honest: blocks of 64 columns, of which the last may be smaller."""

    def forward(self, x):
        return torch.cat([super(InBlocks, self).forward(b) for b in x.split(64, 1)], 1)


class FullBlocksOnly(Model):
    """Wrong: columns after the last full block of 64 are not written: only other shapes have them.

    Names: shape-specialized & COLUMNS
    """

    def forward(self, x):
        out = torch.zeros_like(x)
        full = x.shape[1] // 64 * 64
        out[:, :full] = super().forward(x[:, :full])
        return out


class FixedRows(Model):
    """Wrong: always computes 64 rows.

    Names: shape-specialized & ROWS
    """

    def forward(self, x):
        return super().forward(x[:64]).expand(64, -1)[: len(x)].clone()


class InPlace(Model):
    """Wrong: overwrites its input.

    Names: changed its input 0 in place
    """

    def forward(self, x):
        return torch.sigmoid(x).mul_(x).add_(1) + 0 * x.mul_(0.5)


class OtherType(Model):
    """Wrong: returns float64.

    Names: forward returned & expected
    """

    def forward(self, x):
        return super().forward(x).double()
