"""Inputs unlike the problem's own, on which a kernel must still compute the same function.

A problem that draws from [0, 1) never tells a ReLU from the identity; one that draws a narrow normal never
tells a softmax that overflows. A regime changes the floating-point inputs of a drawn set and leaves all others
alone. Whether the reference itself makes sense on the result is for the caller to find out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stark.evaluator.judge.problem.inputs import Drawn

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

LARGE, LARGE_IN_HALF, TINY = 256.0, 64.0, 1e-3
"""A problem that draws from [0, 1) reaches where the exponential overflows only with the first; half precision overflows sooner."""

PIECE = 1 << 22
"""Elements that are changed at a time."""


def mixed(drawn: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """Every element by lot: as it is, negated, large, tiny, or exactly zero."""
    factors = torch.tensor(
        [1.0, -1.0, _large(drawn), -TINY, 0.0], device=drawn.device, dtype=drawn.dtype
    )

    def by_lot(piece: torch.Tensor) -> torch.Tensor:
        lots = torch.randint(len(factors), piece.shape, generator=chance, device=drawn.device)
        return piece * factors[lots]

    return _in_pieces(drawn, by_lot)


def large(drawn: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """All values many times their size."""
    return drawn * _large(drawn)


def tiny(drawn: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """All values a small fraction of their size."""
    return drawn * TINY


def shifted(drawn: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """All values moved down by several of their typical sizes, so that signs change; a zero stays, as above a diagonal."""
    return torch.where(drawn == 0, drawn, drawn - 3 * drawn.abs().mean())


def heavy_tailed(drawn: torch.Tensor, chance: torch.Generator) -> torch.Tensor:
    """Multiplied by a log-normal factor: a few values far larger than all others."""

    def spread(piece: torch.Tensor) -> torch.Tensor:
        factors = torch.randn(
            piece.shape, generator=chance, device=drawn.device, dtype=torch.float32
        )
        return piece * factors.mul_(1.5).exp_().to(drawn.dtype)

    return _in_pieces(drawn, spread)


def _large(drawn: torch.Tensor) -> float:
    return LARGE_IN_HALF if drawn.dtype == torch.float16 else LARGE


def _in_pieces(drawn: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A changed copy, made a piece at a time: what is needed on the way would fill several times its memory."""
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
"""The first one alone is tried where a problem is too large for all."""


def changed(drawn: Drawn, regime: str, seed: int) -> Drawn:
    """A drawn set with its floating-point tensors in another regime."""
    device = drawn.tensors[0].device if drawn.tensors else torch.device("cpu")
    chance = torch.Generator(device).manual_seed(seed)
    change = REGIMES[regime]
    tensors = [change(t, chance) if t.is_floating_point() else t for t in drawn.tensors]
    return Drawn(tensors, drawn.arguments)
