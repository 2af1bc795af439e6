"""Recognizes errors with a factor or a constant for each row, column or slice.

They come from a wrong sum, mean or scale of the line, or from a wrong weight or bias. Looks at some lines and at some
elements of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

import torch

from stark.evaluator.judge.verify.patterns import FEW, NEARLY_ALL, Sample, axis_name, named

LINES, ELEMENTS = 48, 512
"""Most lines that are examined, and most elements of each."""

SLIGHT = 0.05
CANCELS = "a sum of the {line} lacks terms or cancels, as E[x^2] - E[x]^2 does"
"""What usually causes factors that differ from 1 by less than SLIGHT."""

Fit = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Returns factors and constants, one of each per line, that bring the second argument closest to the first."""


def _constants(got: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(len(got), 1).to(got), (got - expected).median(1, keepdim=True).values


def _factors(got: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    large = expected.abs() >= expected.abs().median(1, keepdim=True).values
    factors = (got / expected).masked_fill(~large, torch.nan).nanmedian(1, keepdim=True).values
    return factors.nan_to_num(1.0), torch.zeros(len(got), 1).to(got)


def _both(got: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ours, theirs = (t - t.mean(1, keepdim=True) for t in (got, expected))
    factors = (
        (ours * theirs).sum(1, keepdim=True) / theirs.square().sum(1, keepdim=True)
    ).nan_to_num(1.0)
    return factors, got.mean(1, keepdim=True) - factors * expected.mean(1, keepdim=True)


FITS: tuple[tuple[Fit, str, str], ...] = (
    (
        _constants,
        "got - expected is constant in each {line}",
        "a mean, a bias or another term of the {line} is missing or wrong",
    ),
    (
        _factors,
        "there is a factor for each {line}",
        "a sum, maximum or scale of the {line} is wrong",
    ),
    (
        _both,
        "there is a factor and constant for each {line}: got = a * expected + b",
        "a mean, variance, weight or bias of the {line} is wrong",
    ),
)


def line_pattern(sample: Sample, sizes: Collection[int]) -> str | None:
    """Describe factors or constants of lines that explain the whole output's error, or return None."""
    result, oracle = sample.result, sample.oracle
    if not result.is_floating_point() or result.dim() < 2:
        return None
    for fit, words, cause in FITS:
        for line, axes in _groups(result.dim()):
            got, expected = (_lines(tensor, axes) for tensor in (result, oracle))
            if min(got.shape) < FEW / 2 or got.shape[1] < FEW:
                continue
            whole = (got.isfinite() & expected.isfinite()).all(1)
            got, expected = got[whole], expected[whole]
            if len(got) < 2:
                continue
            factors, constants = fit(got, expected)
            if not sample.fits(got, expected, factors * expected + constants):
                continue
            common = float(factors.median())
            same = bool(
                ((factors - common).abs() < 1e-4 * abs(common)).double().mean() >= NEARLY_ALL
            )
            reason = named(common, sizes).removeprefix(": ") if same else ""
            if same and fit is _both:
                words = f"got = {common:.6g} * expected + a constant for each {{line}}"
            slight = fit is _factors and bool(((factors - 1).abs() < SLIGHT).all())
            return f"{words}: {reason or (CANCELS if slight else cause)}".format(line=line)
    # a factor for each row times a factor for each column
    got, expected = (_lines(tensor, tuple(range(tensor.dim() - 1))) for tensor in (result, oracle))
    ratio = (got / expected).log()
    fitted = ratio.mean(1, keepdim=True) + ratio.mean(0, keepdim=True) - ratio.mean()
    if min(got.shape) >= FEW and sample.fits(got, expected, expected * fitted.exp()):
        return "there is a factor for each row and another for each column: a sum or norm over another axis?"
    return None


def _groups(axes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names of kinds of lines, with the axes whose indices select a line."""
    for axis in range(axes - 1, -1, -1):
        if axes == 2 and axis == 0:
            continue  # these are the rows
        yield axis_name(axis, axes), (axis,)
    if axes > 3:
        yield "slice of the first two axes", (0, 1)
    yield "row" if axes == 2 else "run along the last axis", tuple(range(axes - 1))


def _lines(tensor: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """Return some lines as rows of a matrix of float64."""
    others = [axis for axis in range(tensor.dim()) if axis not in axes]
    lines = math.prod(tensor.shape[axis] for axis in axes)
    length = tensor.numel() // lines
    chosen = [torch.arange(0, n, -(-n // most)) for n, most in ((lines, LINES), (length, ELEMENTS))]
    first = torch.unravel_index(chosen[0][:, None], [tensor.shape[axis] for axis in axes])
    rest = torch.unravel_index(chosen[1][None], [tensor.shape[axis] for axis in others])
    index = dict(zip((*axes, *others), (*first, *rest), strict=True))
    at = tuple(index[axis].to(tensor.device) for axis in range(tensor.dim()))
    return tensor[at].double()
