"""Input regimes: transformed inputs on which a kernel must still compute the same function.

Inputs drawn from [0, 1) cannot distinguish a ReLU from the identity, and a narrow normal distribution hides a softmax that
overflows. A regime transforms all inputs of its kind or some. The caller checks whether the reference is finite and accurate on
the transformed inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from stark.evaluator.candidate.program import floats_of, with_floats
from stark.evaluator.judge.problem.exchanged import exchanged
from stark.evaluator.judge.problem.indices import drawn_anew
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.problem.nearby import keep_structure, redrawn
from stark.evaluator.judge.verify.errors import as_real, pieces

Change = Callable[[torch.Tensor, torch.Generator, float], torch.Tensor]
"""Transforms a piece of a tensor. The last argument is the mean magnitude of the whole tensor."""

LARGE, LARGE_IN_HALF, TINY = 256.0, 64.0, 1e-3
"""Factors of the regimes: from about LARGE on, the exponential of an input from [0, 1) overflows in float32."""


def _mixed(piece: torch.Tensor, generator: torch.Generator, *others: float) -> torch.Tensor:
    factors = torch.tensor([1.0, -1.0, -TINY, 0.0, *others]).to(piece)
    index = torch.randint(len(factors), piece.shape, generator=generator, device=piece.device)
    return piece * factors[index]


def _heavy_tailed(piece: torch.Tensor, generator: torch.Generator, mean: float) -> torch.Tensor:
    factors = torch.empty(piece.shape, device=piece.device, dtype=torch.float32)
    return piece * factors.log_normal_(0, 1.5, generator=generator).to(piece.dtype)


def _large(drawn: torch.Tensor) -> float:
    return LARGE_IN_HALF if drawn.dtype == torch.float16 else LARGE


INDICES = "other integer or boolean"
"""The regime that draws indices and masks anew (`indices.py`)."""

CONSTANTS = "slightly changed constant"
"""The regime that changes floating-point inputs slightly, for problems that do not draw all of them (`nearby.py`)."""

EXCHANGED = "partly exchanged"
"""The regime that puts other elements of an input in a few random places (`exchanged.py`)."""

OUTLIERS = "partly large"
"""The regime that makes such elements large, too. A look at a few elements takes the input for usual then."""

FLOATS = "slightly changed scalar"
"""The regime that changes floats among the arguments. They are the same in each draw. A candidate that takes a scale for 1,
whatever is passed, would save the work that the scale is for."""

FLOATS_CHANGE = (0.01, 0.05)
"""The smallest and the largest relative change of a float. Those of 0 stay, because a share that is dropped must not become random."""

SIGNS = "partly negative"
"""The regime for inputs that do not bear "mixed", since their function is defined on [-1, 1] only."""

REGIMES: dict[str, Change] = {
    # Each element times a factor chosen at random: 1, -1, 0, -TINY or the factor of `large`.
    "mixed": lambda piece, generator, _: _mixed(piece, generator, _large(piece)),
    SIGNS: lambda piece, generator, _: _mixed(piece, generator),
    # A log-normal factor makes a few values far larger than the rest.
    "heavy-tailed": _heavy_tailed,
    "tiny": lambda piece, *_: piece * TINY,
    "large": lambda piece, *_: piece * _large(piece),
    # Three times the mean magnitude is subtracted, so that signs change. Zeros may be structural, as in a triangular matrix.
    "shifted": lambda piece, _, mean: torch.where(piece == 0, piece, piece - 3 * mean),
}
"""The regimes by name, those first that correct-looking kernels have failed in: a search of a large problem tries only as
many as it has time for."""


def changed(drawn: Drawn, regime: str, seed: int, places: Mapping[int, float]) -> Drawn:
    """Return the draw in a regime: it transforms the tensors at these places, where the state follows the inputs.

    The number at a place is the largest step of CONSTANTS, and for INDICES what the new values are below. FLOATS moves each
    float among the arguments towards zero instead.
    """
    if regime == FLOATS:
        shares = random.Random(seed)
        floats = [
            each * (1 - shares.uniform(*FLOATS_CHANGE)) for each in floats_of(drawn.arguments)
        ]
        return replace(drawn, arguments=with_floats(drawn.arguments, floats))
    tensors, inputs = [*drawn.tensors, *drawn.state], len(drawn.tensors)
    for place, number in places.items():
        tensors[place] = _changed(tensors[place], regime, seed + place, number)
    return replace(drawn, tensors=tensors[:inputs], state=tuple(tensors[inputs:]))


def _changed(drawn: torch.Tensor, regime: str, seed: int, number: float) -> torch.Tensor:
    if regime == INDICES:
        return drawn_anew(drawn, number, seed)
    if regime == CONSTANTS:
        return redrawn(drawn, number, seed)
    if regime in (EXCHANGED, OUTLIERS):
        return exchanged(drawn, seed, 1.0 if regime == EXCHANGED else LARGE_IN_HALF)
    generator = torch.Generator(drawn.device).manual_seed(seed)
    result = torch.empty(drawn.shape, dtype=drawn.dtype, device=drawn.device)
    total = sum(float(as_real(piece).abs().sum(dtype=torch.float64)) for (piece,) in pieces(drawn))
    numbers = drawn.numel() * (2 if drawn.is_complex() else 1)
    mean, kind = total / max(numbers, 1), torch.finfo(drawn.dtype)
    for target, source in pieces(result, drawn):
        value = REGIMES[regime](as_real(source), generator, mean)
        if drawn.is_complex():
            value = torch.view_as_complex(value)
        # A type of one byte holds little more than the usual values.
        target.copy_(value.clamp(kind.min, kind.max) if kind.bits == 8 else value)
    keep_structure(result, drawn)
    return result


SUGGESTS = {
    "mixed": "an overflow, a wrong sign or an exact zero: these inputs have large and small values, both signs and zeros",
    SIGNS: "a wrong sign or an exact zero: these inputs have both signs and zeros",
    "heavy-tailed": "a few values far larger than the rest",
    "tiny": "a missing or misplaced epsilon, values that are rounded to zero, or an error that does not shrink with the input",
    "large": "an overflow, or a sum or an approximation outside its range",
    "shifted": "a mean far from zero, or negative values where the problem has few",
    EXCHANGED: "what holds for most elements and is assumed of all, such as rows that are alike, or padding of zeros",
    OUTLIERS: "a few values far larger than the rest, which are not among those that the kernel looks at",
    INDICES: "indices or masks that the problem's inputs do not have, but its tables allow",
    FLOATS: "floats among the arguments that are taken for the values that get_inputs returns: use those that are passed",
    CONSTANTS: "what is kept of an input that get_inputs makes without random numbers, or of a buffer that forward changes, or assumed of it: read it in every call",
}
"""By regime, what usually makes a kernel fail there that is correct on the problem's own inputs."""


def suggestion(regime: str, nonfinite: bool) -> str:
    """Say what the failure in a regime suggests, after the problem's own inputs passed."""
    reason = (
        "an overflow, as in an exponential without subtracting the maximum or in sums of a narrow type, or 0/0"
        if nonfinite and regime != "tiny"
        else SUGGESTS[regime]
    )
    return f"the problem's own inputs pass; with {regime} inputs, look for {reason}"
