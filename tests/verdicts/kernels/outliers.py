"""Which values of a product are outliers, a few in a thousand, and which inputs are whole numbers."""

import torch
import torch.nn as nn

ROWS = 256
COLUMNS = 320
INNER = 96


class Model(nn.Module):
    def forward(self, x, y):
        product = x @ y
        return product.abs() > 3 * product.square().mean().sqrt(), x == x.round()


def get_inputs():
    x = torch.randn(ROWS, INNER)
    whole = torch.rand(ROWS, INNER) < 0.004
    return [torch.where(whole, x.ceil(), x), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []


def outliers(product):
    return product.square() > 9 * product.square().mean()


class Squares(Model):
    """Honest: compares squares, products in blocks."""

    def forward(self, x, y):
        product = x[:, :32] @ y[:32] + x[:, 32:] @ y[32:]
        return outliers(product), x - x.floor() == 0


class NoOutliers(Model):
    """Wrong: says that there is no outlier.

    Names: where the expected value is positive
    """

    def forward(self, x, y):
        return torch.zeros(len(x), y.shape[1], dtype=torch.bool), x == x.round()


class NothingWhole(Model):
    """Wrong: says that no input is a whole number, which holds once inputs have moved.

    Names: output 1 & where the expected value is positive
    """

    def forward(self, x, y):
        return outliers(x @ y), torch.zeros_like(x, dtype=torch.bool)


class InBfloat16(Model):
    """Wrong: products in bfloat16.

    Names: as next to a tie
    """

    def forward(self, x, y):
        return outliers(x.bfloat16().float() @ y.bfloat16().float()), x == x.round()


class LastRowDropped(Model):
    """Wrong: the last row has no outliers.

    Names: row
    """

    def forward(self, x, y):
        found = outliers(x @ y)
        found[-1] = False
        return found, x == x.round()
