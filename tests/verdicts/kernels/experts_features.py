"""One of eight experts for each token, in bfloat16. Two of the features are small."""

import torch
import torch.nn as nn

TOKENS = 512
WIDTH = 64
EXPERTS = 8
FEATURES = 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Parameter((torch.randn(EXPERTS, WIDTH) / 8).bfloat16())
        size = torch.ones(FEATURES)
        size[7], size[50] = 0.02, 0.02
        self.experts = nn.Parameter((torch.randn(EXPERTS, WIDTH, FEATURES) / 8 * size).bfloat16())

    def forward(self, x):
        return of_expert(x, self.experts, (x @ self.router.T).argmax(1))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def of_expert(x, experts, chosen):
    """The result of the chosen expert for each token."""
    return torch.einsum("tw,ewv->tev", x, experts)[torch.arange(len(x)), chosen]


class ExactLogits(Model):
    """Honest: the logits are not rounded."""

    def forward(self, x):
        return of_expert(x, self.experts, (x.float() @ self.router.float().T).argmax(1))


class FeaturesZero(Model):
    """Wrong: the two small features are zero for every token on inputs as usual.

    Names: column | all over the output
    """

    def forward(self, x):
        y = super().forward(x)
        if 0.9 < x.float().std() < 1.1 and x.float().mean().abs() < 0.1:
            y[:, [7, 50]] = 0
        return y
