"""LayerNorm with weights in float32."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 200


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(COLUMNS))
        self.bias = nn.Parameter(0.5 * torch.randn(COLUMNS))

    def forward(self, x):
        return nn.functional.layer_norm(x, (x.shape[1],), self.weight, self.bias)

    def scaled(self, x, mean, variance):
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.weight + self.bias


def get_inputs():
    return [torch.randn(ROWS, COLUMNS) + 0.5]


def get_init_inputs():
    return []


class TwoPasses(Model):
    """Honest: the mean, then the mean of squared differences."""

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        return self.scaled(x, mean, (x - mean).square().mean(1, keepdim=True))


class Welford(Model):
    """Honest: Welford's recurrence, one column after another."""

    def forward(self, x):
        mean, m2 = torch.zeros(len(x), 1), torch.zeros(len(x), 1)
        for n in range(x.shape[1]):
            delta = x[:, n, None] - mean
            mean = mean + delta / (n + 1)
            m2 = m2 + delta * (x[:, n, None] - mean)
        return self.scaled(x, mean, m2 / x.shape[1])


class ChansFormula(Model):
    """Honest: mean and variance of blocks of 64 columns, joined by Chan's formula."""

    def forward(self, x):
        n, mean, m2 = 0, 0.0, 0.0
        for block in x.split(64, 1):
            size, own = block.shape[1], block.mean(1, keepdim=True)
            delta = own - mean
            m2 = m2 + (block - own).square().sum(1, keepdim=True)
            m2 = m2 + delta.square() * n * size / (n + size)
            mean = mean + delta * size / (n + size)
            n += size
        return self.scaled(x, mean, m2 / n)


class OnePass(Model):
    """Honest: E[x^2] - E[x]^2, where the mean is not far from zero."""

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x.square().mean(1, keepdim=True) - mean.square()).clamp(min=0)
        return self.scaled(x, mean, variance)


class NewtonStep(Model):
    """Honest: a reciprocal square root with 12 correct bits and a Newton step."""

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        v = (x - mean).square().mean(1, keepdim=True) + 1e-5
        guess = (torch.rsqrt(v).view(torch.int32) & ~0x7FF).view(torch.float32)
        return (x - mean) * (guess * (1.5 - 0.5 * v * guess * guess)) * self.weight + self.bias


class FusedScale(Model):
    """Honest: x * a + b, where a and b contain mean, deviation, weight and bias."""

    def forward(self, x):
        variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        scale = torch.rsqrt(variance + 1e-5) * self.weight
        return x * scale + (self.bias - mean * scale)


class NoEpsilon(Model):
    """Wrong: epsilon is missing.

    Names: tiny & epsilon
    """

    def forward(self, x):
        variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        return (x - mean) / variance.sqrt() * self.weight + self.bias


class EpsilonOutside(Model):
    """Wrong: epsilon is added to the deviation instead of the variance.

    Names: tiny & epsilon
    """

    def forward(self, x):
        variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
        return (x - mean) / (variance.sqrt() + 1e-5) * self.weight + self.bias


class OtherEpsilon(Model):
    """Wrong: epsilon is 1e-6 instead of 1e-5.

    Names: tiny & epsilon
    """

    def forward(self, x):
        return nn.functional.layer_norm(x, (x.shape[1],), self.weight, self.bias, 1e-6)


class Unbiased(Model):
    """Wrong: the variance is divided by n - 1.

    Names: n - 1
    """

    def forward(self, x):
        variance, mean = torch.var_mean(x, 1, correction=1, keepdim=True)
        return self.scaled(x, mean, variance)


class OverRows(Model):
    """Wrong: mean and variance over the rows.

    Names: axis
    Unnamed: the error has no simple pattern beside the weight and the bias of the columns
    """

    def forward(self, x):
        variance, mean = torch.var_mean(x, 0, correction=0, keepdim=True)
        return self.scaled(x, mean, variance)


class NoMean(Model):
    """Wrong: the mean is not subtracted: RMSNorm.

    Names: mean
    Unnamed: the error has no simple pattern beside the weight and the bias of the columns
    """

    def forward(self, x):
        return self.scaled(x, 0.0, x.square().mean(1, keepdim=True))


class NoWeight(Model):
    """Wrong: the weight is left out.

    Names: each column
    """

    def forward(self, x):
        return nn.functional.layer_norm(x, (x.shape[1],)) + self.bias


class NoBias(Model):
    """Wrong: the bias is left out.

    Names: constant in each column
    """

    def forward(self, x):
        return nn.functional.layer_norm(x, (x.shape[1],), self.weight)


class LastRowsDropped(Model):
    """Wrong: rows after the last full block of 64 are not computed.

    Names: rows 64 to 95, the last 32 & 0
    """

    def forward(self, x):
        out = torch.zeros_like(x)
        full = len(x) // 64 * 64
        out[:full] = super().forward(x[:full])
        return out


class MeanOfFullBlocks(Model):
    """Wrong: the last partial block is missing in the mean and the variance.

    Names: each row
    Unnamed: the error has no simple pattern beside the weight and the bias of the columns
    """

    def forward(self, x):
        variance, mean = torch.var_mean(
            x[:, : x.shape[1] // 64 * 64], 1, correction=0, keepdim=True
        )
        return self.scaled(x, mean, variance)
