"""Input regimes: transformed inputs on which a kernel must still compute the same function.

Inputs drawn from [0, 1) cannot distinguish a ReLU from the identity, and a narrow normal
distribution hides a softmax that overflows. A regime transforms the floating-point inputs of a draw
and leaves all other inputs unchanged. The caller checks whether the reference is finite and accurate on
the transformed inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stark.evaluator.judge.problem.inputs import Drawn

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

LARGE, LARGE_IN_HALF, TINY = 256.0, 64.0, 1e-3
"""Factors of the regimes.

In float32, the exponential of an input from [0, 1) overflows only if the input is first multiplied by a
factor like LARGE. In float16, values overflow with smaller factors.
"""

PIECE = 1 << 22
"""Elements transformed at a time."""


def mixed(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply each element by a factor chosen at random: 1, -1, 0, -TINY or the factor of `large`."""
    factors = torch.tensor(
        [1.0, -1.0, _large(drawn), -TINY, 0.0], device=drawn.device, dtype=drawn.dtype
    )

    def scale_at_random(piece: torch.Tensor) -> torch.Tensor:
        choices = torch.randint(len(factors), piece.shape, generator=generator, device=drawn.device)
        return piece * factors[choices]

    return _in_pieces(drawn, scale_at_random)


def large(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply all values by LARGE, or by LARGE_IN_HALF in float16."""
    return drawn * _large(drawn)


def tiny(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply all values by TINY."""
    return drawn * TINY


def shifted(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Subtract three times the mean magnitude, so that signs change.

    Zeros stay zero, because they may be structural, as in a triangular matrix.
    """
    return torch.where(drawn == 0, drawn, drawn - 3 * drawn.abs().mean())


def heavy_tailed(drawn: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply each value by a log-normal factor, so that a few values are far larger than the rest."""

    def spread(piece: torch.Tensor) -> torch.Tensor:
        factors = torch.randn(
            piece.shape, generator=generator, device=drawn.device, dtype=torch.float32
        )
        return piece * factors.mul_(1.5).exp_().to(drawn.dtype)

    return _in_pieces(drawn, spread)


def _large(drawn: torch.Tensor) -> float:
    return LARGE_IN_HALF if drawn.dtype == torch.float16 else LARGE


def _in_pieces(drawn: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return a transformed copy, made piece by piece to keep temporaries small."""
    result = torch.empty(drawn.shape, dtype=drawn.dtype, device=drawn.device)
    pieces = zip(result.view(-1).split(PIECE), drawn.reshape(-1).split(PIECE), strict=True)
    for target, source in pieces:
        target.copy_(change(source))
    return result


REGIMES: dict[str, Change] = {
    "mixed": mixed,
    "large": large,
    "tiny": tiny,
    "shifted": shifted,
    "heavy-tailed": heavy_tailed,
}
"""The regimes by name. Effort `search` uses only the first regime if the expected values
of all regimes together do not fit into memory."""


def changed(drawn: Drawn, regime: str, seed: int) -> Drawn:
    """Return a draw with its floating-point tensors in the given regime."""
    device = drawn.tensors[0].device if drawn.tensors else torch.device("cpu")
    generator = torch.Generator(device).manual_seed(seed)
    change = REGIMES[regime]
    tensors = [change(t, generator) if t.is_floating_point() else t for t in drawn.tensors]
    return Drawn(tensors, drawn.arguments)
