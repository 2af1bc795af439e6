"""One trial: the secret inputs that a candidate is called with, how it is called, and what the call leaves."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

WAYS = {
    "early": "before backward ran, ",
    "transposed": "with a cotangent in other strides, as after a transpose, ",
    "expanded": "with an expanded cotangent of stride 0, as from sum(), ",
    "frozen": "while only inputs, or only parameters, required gradients, ",
    "interleaved": "with another forward between forward and backward, ",
    "twice": "in the second backward with retain_graph=True, ",
    "changed": "after an input or a parameter changed in place between forward and backward, ",
    "alone": "while only one input or parameter required a gradient, ",
    "inference": "under torch.no_grad(), ",
}
"""By mode, when a result was wrong. Those first that kernels have failed in."""

REPLACED = (
    "after its weights were replaced by load_state_dict (compute nothing from weights that is kept for later calls, or "
    "compute it again when a weight's `_version` has changed), "
)


@dataclass(frozen=True)
class Trial:
    """Inputs to verify on: a secret seed, and the regime that transforms the inputs drawn from the seed."""

    seed: int
    regime: str | None = None
    """None for the problem's own inputs, untransformed."""

    places: tuple[int, ...] | None = None
    """The inputs that the regime changes; None for all. The reference may not bear all of them at a time."""

    calls: int = 1
    replaced: bool = False
    """Whether the model has other weights meanwhile, made from the seed."""

    mode: str | None = None
    """One of WAYS, in which a candidate is called; None for a simple call."""

    @classmethod
    def fresh(cls, regime: str | None = None, calls: int = 1, replaced: bool = False) -> Trial:
        """Create a trial with a new secret seed."""
        return cls(secrets.randbits(48), regime, calls=calls, replaced=replaced)

    @property
    def simple(self) -> Trial:
        """The trial with the same inputs and expected outputs in which the candidate is simply called."""
        return self if self.mode == "expanded" else replace(self, mode=None)

    def __str__(self) -> str:
        if self.replaced:
            return REPLACED
        if self.mode is not None:
            return WAYS[self.mode]
        some = "" if self.places is None else "some "
        return f"with {some}{self.regime} inputs, " if self.regime else ""


@dataclass(frozen=True)
class Called:
    """What a call leaves. While a candidate is timed, in memory that it cannot write to."""

    results: Sequence[torch.Tensor]
    """The outputs, then the inputs that the reference changes."""

    changed: int | None = None
    """The index of an input that the call changed and must not."""

    odd: object = None
    """The forms of the results (such as shapes and types), as the program reports them, if they are not as expected."""
