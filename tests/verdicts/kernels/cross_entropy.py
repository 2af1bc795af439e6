"""Cross entropy of logits, with the log-sum-exp of each row."""

import torch
import torch.nn as nn

ROWS = 128
CLASSES = 500


class Model(nn.Module):
    def forward(self, x, target):
        return nn.functional.cross_entropy(x, target, ignore_index=0), torch.logsumexp(x, 1)


def get_inputs():
    target = torch.randint(0, CLASSES, (ROWS,))
    target[::5] = 0
    return [torch.randn(ROWS, CLASSES), target]


def get_init_inputs():
    return []


def in_chunks(x, size=128):
    """Log-sum-exp with a running maximum."""
    top, total = torch.full((len(x),), -torch.inf), torch.zeros(len(x))
    for block in x.split(size, 1):
        new = torch.maximum(top, block.amax(1))
        total = total * (top - new).exp() + (block - new[:, None]).exp().sum(1)
        top = new
    return top + total.log()


def loss(x, lse, target):
    counts = target != 0
    picked = x.gather(1, target[:, None])[:, 0]
    return ((lse - picked) * counts).sum() / counts.sum()


class Fused(Model):
    """Honest: one pass over chunks of 128 classes."""

    def forward(self, x, target):
        lse = in_chunks(x)
        return loss(x, lse, target), lse


class Ignored(Model):
    """Wrong: rows with the ignored class count.

    Names: ignored
    Unnamed: a single number has no pattern
    """

    def forward(self, x, target):
        lse = in_chunks(x)
        return (lse - x.gather(1, target[:, None])[:, 0]).mean(), lse


class Summed(Model):
    """Wrong: the sum over the rows instead of the mean.

    Names: * expected
    """

    def forward(self, x, target):
        lse = in_chunks(x)
        return nn.functional.cross_entropy(x, target, ignore_index=0, reduction="sum"), lse


class NoMaximum(Model):
    """Wrong: the log-sum-exp without the maximum overflows.

    Names: infinite & overflow
    """

    def forward(self, x, target):
        lse = x.exp().sum(1).log()
        return loss(x, lse, target), lse
