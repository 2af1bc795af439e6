"""A linear layer in int8: a scale for each row of activations and for each row of weights, then the bias."""

import torch
import torch.nn as nn

CASES = {"decode": 3.0, "prefill": 1.0}

# Qwen2.5-7B, the projection to queries, keys and values
HIDDEN = 3584  # hidden_size
OUTPUTS = 4608  # (num_attention_heads + 2 * num_key_value_heads) * head_dim = (28 + 2 * 4) * 128

TOKENS = {"decode": 64, "prefill": 8192}


class Model(nn.Module):
    def __init__(self, hidden: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer(
            "weight", torch.randint(-127, 128, (outputs, hidden), dtype=torch.int8)
        )
        self.scale = nn.Parameter((torch.rand(outputs) + 0.5) / 127 / hidden**0.5)
        self.bias = nn.Parameter(torch.randn(outputs, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Shapes: x [tokens, hidden], scale [tokens]."""
        sums = torch._int_mm(x, self.weight.t())
        return (sums * scale[:, None] * self.scale).to(self.bias.dtype) + self.bias


def get_inputs(case: str = "decode") -> list[torch.Tensor]:
    tokens = TOKENS[case]
    return [
        torch.randint(-127, 128, (tokens, HIDDEN), dtype=torch.int8),
        (torch.rand(tokens) + 0.5) / 127,
    ]


def get_init_inputs() -> list[int]:
    return [HIDDEN, OUTPUTS]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    tokens = TOKENS[case]
    moved = (tokens + OUTPUTS) * (HIDDEN + 4) + OUTPUTS * 2 + tokens * OUTPUTS * 2
    return moved, 2 * tokens * HIDDEN * OUTPUTS
