import math

import torch

from . import limits

SCALE = math.sqrt(2.0)


def soft_cap(scores: torch.Tensor, cap: float = limits.CAP) -> torch.Tensor:
    """Keep scores within the cap."""
    return cap * torch.tanh(scores / cap)


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def never_called(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError
