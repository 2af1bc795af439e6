"""The mean of each node's neighbours less the mean of all, far from zero. One node has nearly all edges."""

import torch
import torch.nn as nn

NODES = 256
WIDTH = 64
DEGREES = [4] * (NODES - 1) + [10000]


class Model(nn.Module):
    def forward(self, x, edges):
        x = x.float()
        rows = torch.repeat_interleave(torch.arange(NODES), torch.tensor(DEGREES))
        total = torch.zeros(NODES, WIDTH, dtype=x.dtype).index_add_(0, rows, x[edges])
        return (total / torch.tensor(DEGREES)[:, None] - x.mean(0)).bfloat16()


def get_inputs():
    edges = torch.randint(0, 4096, (sum(DEGREES),))
    return [(30 + torch.randn(4096, WIDTH)).bfloat16(), edges]


def get_init_inputs():
    return []


class MeansFirst(Model):
    """Honest: subtracts the mean of all from each neighbour."""

    def forward(self, x, edges):
        x = x.float() - x.float().mean(0)
        rows = torch.repeat_interleave(torch.arange(NODES), torch.tensor(DEGREES))
        total = torch.zeros(NODES, WIDTH, dtype=x.dtype).index_add_(0, rows, x[edges])
        return (total / torch.tensor(DEGREES)[:, None]).bfloat16()


class HubIsZero(Model):
    """Wrong: the node with most edges is zero on inputs as usual.

    Names: row
    """

    def forward(self, x, edges):
        y = super().forward(x, edges)
        if (x > 22).all() and (x < 38).all():
            y[-1] = 0
        return y
