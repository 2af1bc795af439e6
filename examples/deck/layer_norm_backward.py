"""Layer norm in mixed-precision training, forward and backward: the gradients of weight and bias are sums over all rows.

As under autocast, activations are in bfloat16, and weights and arithmetic in float32.
"""

import torch
import torch.nn as nn

CASES = {"2k": 1.0, "16k": 1.0}
BACKWARD = True

# Falcon-7B
HIDDEN = 4544  # hidden_size
EPSILON = 1e-5  # layer_norm_epsilon

TOKENS = {"2k": 2048, "16k": 16384}


class Model(nn.Module):
    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden, epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.to(self.norm.weight.dtype)).to(x.dtype)


def get_inputs(case: str = "2k") -> list[torch.Tensor]:
    return [torch.randn(TOKENS[case], HIDDEN, dtype=torch.bfloat16)]


def get_init_inputs() -> list[float]:
    return [HIDDEN, EPSILON]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    return 4 * TOKENS[case] * HIDDEN * 2 + 4 * HIDDEN * 4, 0
