"""Quantization of tokens to int8, with a scale for each token, and of their halves with a fixed scale."""

import torch
import torch.nn as nn

TOKENS = 384
FEATURES = 1024
STEP = 1 / 32


class Model(nn.Module):
    def forward(self, x, coarse):
        scale = x.abs().amax(1, keepdim=True) / 127
        return (x / scale).round().clamp(-128, 127).to(torch.int8), scale, fixed(coarse)


def get_inputs():
    return [torch.randn(TOKENS, FEATURES), torch.randn(TOKENS, FEATURES // 8).bfloat16()]


def get_init_inputs():
    return []


def fixed(coarse):
    return (coarse.float() / STEP).round().clamp(-128, 127).to(torch.int8)


def by_reciprocal(x, most):
    return x * (127 / most)


class Reciprocal(Model):
    """Honest: multiplies by the reciprocal of the scale."""

    def forward(self, x, coarse):
        most = x.abs().amax(1, keepdim=True)
        return by_reciprocal(x, most).round().to(torch.int8), most / 127, fixed(coarse)


class RoundsByAConstant(Model):
    """Honest: adds and subtracts 1.5 * 2^23, which rounds to the nearest even integer; the scale as a product."""

    def forward(self, x, coarse):
        scale = x.abs().amax(1, keepdim=True) * (1 / 127)
        big = 1.5 * 2**23
        return (x * (1 / scale) + big - big).to(torch.int8), scale, fixed(coarse)


class OffByOne(Model):
    """Wrong: each value is one higher, within the range.

    Names: nearly every element & differs by 1
    """

    def forward(self, x, coarse):
        most = x.abs().amax(1, keepdim=True)
        whole = by_reciprocal(x, most).round() + 1
        return whole.clamp(-128, 127).to(torch.int8), most / 127, fixed(coarse)


class TowardsZero(Model):
    """Wrong: the conversion to int8 cuts off instead of rounding.

    Names: rounding | truncat
    """

    def forward(self, x, coarse):
        most = x.abs().amax(1, keepdim=True)
        return by_reciprocal(x, most).to(torch.int8), most / 127, fixed(coarse)


class HalvesUp(Model):
    """Wrong: halves are rounded up instead of to even, which the coarse input has many of.

    Names: output 2 & rounding
    """

    def forward(self, x, coarse):
        most = x.abs().amax(1, keepdim=True)
        other = (coarse.float() / STEP + 0.5).floor().clamp(-128, 127).to(torch.int8)
        return by_reciprocal(x, most).round().to(torch.int8), most / 127, other


class NarrowInput(Model):
    """Wrong: reads the input as bfloat16.

    Names: rounding
    """

    def forward(self, x, coarse):
        most = x.abs().amax(1, keepdim=True)
        narrow = x.bfloat16().float()
        return by_reciprocal(narrow, most).round().to(torch.int8), most / 127, fixed(coarse)


class LastFeaturesDropped(Model):
    """Wrong: the last four features of each token, 0.4 % of the elements, are zero.

    Names: columns
    """

    def forward(self, x, coarse):
        most = x.abs().amax(1, keepdim=True)
        whole = by_reciprocal(x, most).round().to(torch.int8)
        whole[:, -4:] = 0
        return whole, most / 127, fixed(coarse)


class OneTokenShort(Model):
    """Wrong: the last token has the scale of the one before.

    Names: row
    """

    def forward(self, x, coarse):
        most = x.abs().amax(1, keepdim=True)
        used = most.clone()
        used[-1] = most[-2]
        whole = by_reciprocal(x, used).round().clamp(-128, 127).to(torch.int8)
        return whole, most / 127, fixed(coarse)
