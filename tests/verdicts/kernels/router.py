"""The router of a mixture of experts: the two largest of eight logits, their weights, and which logits are positive."""

import torch
import torch.nn as nn

TOKENS = 1024
EXPERTS = 8


class Model(nn.Module):
    def forward(self, logits):
        values, experts = torch.topk(logits, 2, dim=-1)
        return values.softmax(-1), experts, logits > 0


def get_inputs():
    return [torch.randn(TOKENS, EXPERTS)]


def get_init_inputs():
    return []


def two_largest(logits):
    first = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, first, float("-inf"))
    return torch.cat([first, others.argmax(-1, keepdim=True)], -1)


class ByMaximum(Model):
    """Honest: the largest logit, then the largest of the others; of equal ones the first."""

    def forward(self, logits):
        experts = two_largest(logits)
        return logits.gather(-1, experts).softmax(-1), experts, logits > 0


class Sorted(Model):
    """Honest: sorts the logits of each token; of equal ones the last."""

    def forward(self, logits):
        values, order = logits.flip(-1).sort(dim=-1, descending=True, stable=True)
        experts = logits.shape[-1] - 1 - order[:, :2]
        return values[:, :2].softmax(-1), experts.contiguous(), logits > 0


class Swapped(Model):
    """Wrong: the smaller one of the two first.

    Names: every element
    """

    def forward(self, logits):
        experts = two_largest(logits)
        return logits.gather(-1, experts).softmax(-1), experts.flip(1), logits > 0


class LastTokens(Model):
    """Wrong: the last four tokens go to the first expert and to the second.

    Names: rows
    """

    def forward(self, logits):
        experts = two_largest(logits)
        experts[-4:] = torch.arange(2)
        return logits.gather(-1, experts).softmax(-1), experts, logits > 0


class ZeroIsPositive(Model):
    """Wrong: a logit of zero counts as active.

    Names: output 2
    """

    def forward(self, logits):
        experts = two_largest(logits)
        return logits.gather(-1, experts).softmax(-1), experts, logits >= 0
