"""tanh, erf and exp of each element."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 100


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x), torch.erf(x), torch.exp(-x.abs())


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []


def rational_tanh(x):
    """Eigen's and XLA's rational approximation, within a few units in the last place."""
    x = x.clamp(-7.90531110763549805, 7.90531110763549805)
    y = x * x
    p = torch.zeros_like(x)
    for c in (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    ):
        p = p * y + c
    q = torch.zeros_like(x)
    for c in (
        1.19825839466702e-06,
        1.18534705686654e-04,
        2.26843463243900e-03,
        4.89352518554385e-03,
    ):
        q = q * y + c
    return x * p / q


def erf_7_1_26(x):
    """Formula 7.1.26 of Abramowitz and Stegun: an absolute error of 1.5e-7."""
    z = x.abs()
    t = 1 / (1 + 0.3275911 * z)
    p = ((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t
    return (1 - (p + 0.254829592) * t * (-z * z).exp()).copysign(x)


def exp_minus(z):
    """exp(-z) by powers of two and a polynomial of degree 6."""
    y = -1.4426950408889634 * z.clamp(max=87.3)
    whole = y.round()
    t = (y - whole) * 0.6931471805599453
    p = torch.ones_like(t)
    for n in range(7, 0, -1):
        p = p * t / n + 1
    return torch.ldexp(p, whole.int())


class Approximations(Model):
    """Honest: the tanh of Eigen and XLA, the library's erf, and exp by a polynomial of degree 7."""

    def forward(self, x):
        return rational_tanh(x), torch.erf(x), exp_minus(x.abs())


class AbsoluteErf(Model):
    """Honest: formula 7.1.26 for erf: an error of 1.5e-7 beside a result of up to 1."""

    def forward(self, x):
        return torch.tanh(x), erf_7_1_26(x), torch.exp(-x.abs())


class TanhByExponential(Model):
    """Honest: tanh as 1 - 2 / (exp(2x) + 1), with an error of about 1e-7 beside 1."""

    def forward(self, x):
        return 1 - 2 / ((2 * x).exp() + 1), torch.erf(x), torch.exp(-x.abs())


class HardTanh(Model):
    """Wrong: values beyond 3 are set to 1 or -1.

    Names: magnitude of input 0 is at least
    """

    def forward(self, x):
        y = torch.where(x.abs() > 3, x.sign(), torch.tanh(x))
        return y, torch.erf(x), torch.exp(-x.abs())


class ShortPolynomial(Model):
    """Wrong: exp by a polynomial of degree 3.

    Names: output 2 & approximation
    """

    def forward(self, x):
        y = -1.4426950408889634 * x.abs()
        t = (y - y.floor()) * 0.6931471805599453
        p = 1 + t * (1 + t * (0.5 + t / 6))
        return torch.tanh(x), torch.erf(x), torch.ldexp(p, y.floor().clamp(min=-126).int())
