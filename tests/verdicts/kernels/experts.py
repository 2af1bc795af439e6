"""The token and what one of eight experts adds, in bfloat16: where two are nearly equal, rounding chooses."""

import torch
import torch.nn as nn

TOKENS = 1024
WIDTH = 64
EXPERTS = 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Parameter((torch.randn(EXPERTS, WIDTH) / 8).bfloat16())
        self.experts = nn.Parameter((torch.randn(EXPERTS, WIDTH, WIDTH) / 16).bfloat16())

    def forward(self, x):
        chosen = (x @ self.router.T).argmax(1)
        y = x.clone()
        for number, weight in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            y.index_add_(0, rows, x[rows] @ weight)
        return y


def get_inputs():
    return [torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


class SameLogits(Model):
    """Honest: all experts for all tokens, then the one that the rounded logits choose."""

    def forward(self, x):
        chosen = (x @ self.router.T).argmax(1)
        every = torch.einsum("tw,ewv->tev", x, self.experts)
        return x + every[torch.arange(len(x)), chosen]


class ExactLogits(Model):
    """Honest: the logits are not rounded."""

    def forward(self, x):
        chosen = (x.float() @ self.router.float().T).argmax(1)
        every = torch.einsum("tw,ewv->tev", x, self.experts)
        return x + every[torch.arange(len(x)), chosen]


class CoarseLogits(Model):
    """Wrong: the logits have three bits.

    Names: expert
    Unnamed: needs knowledge of the function
    """

    def forward(self, x):
        logits = (x.float() @ self.router.float().T).to(torch.float8_e5m2).float()
        every = torch.einsum("tw,ewv->tev", x, self.experts)
        return x + every[torch.arange(len(x)), logits.argmax(1)]


class SecondBest(Model):
    """Wrong: each hundredth token gets its second expert.

    Names: expert
    Unnamed: needs knowledge of the function
    """

    def forward(self, x):
        best = (x @ self.router.T).float().topk(2, 1).indices
        chosen = torch.where(torch.arange(len(x)) % 100 == 7, best[:, 1], best[:, 0])
        every = torch.einsum("tw,ewv->tev", x, self.experts)
        return x + every[torch.arange(len(x)), chosen]
