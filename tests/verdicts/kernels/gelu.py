"""Exact GELU of float32."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 200


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


class ErrorFunction(Model):
    """Honest: 0.5 x (1 + erf(x / sqrt(2)))."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))


class AbramowitzStegun(Model):
    """Honest: the error function by formula 7.1.26 of Abramowitz and Stegun, with an error of 1.5e-7."""

    def forward(self, x):
        z = x.abs() * 0.7071067811865476
        t = 1 / (1 + 0.3275911 * z)
        p = ((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t
        erf = 1 - (p + 0.254829592) * t * (-z * z).exp()
        return 0.5 * x * (1 + erf.copysign(x))


class Complement(Model):
    """Honest: x times the normal distribution by erfc, which does not cancel for negative values."""

    def forward(self, x):
        return 0.5 * x * torch.special.erfc(-x * 0.7071067811865476)


class ByTanh(Model):
    """Wrong: the tanh approximation.

    Names: approximation
    """

    def forward(self, x):
        return nn.functional.gelu(x, approximate="tanh")


class BySigmoid(Model):
    """Wrong: x * sigmoid(1.702 x).

    Names: approximation
    """

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Rectified(Model):
    """Wrong: values below -2 are set to zero.

    Names: input 0 is at most -2 & all of them are 0
    """

    def forward(self, x):
        return torch.where(x < -2, 0.0, nn.functional.gelu(x))
