"""LoRA for requests with different adapters: each request's rows by two low-rank matrices, added to the base output."""

import torch
import torch.nn as nn

CASES = {"decode": 3.0, "prefill": 1.0}

# Llama-3.1-8B, q_proj
HIDDEN = 4096  # hidden_size
RANK = 16  # of the adapters, as in vLLM's default max_lora_rank
ADAPTERS = 128

SHAPES = {"decode": (64, 1), "prefill": (8, 512)}
"""Requests, and tokens of each."""


class Model(nn.Module):
    def __init__(self, hidden: int, rank: int, adapters: int) -> None:
        super().__init__()
        down = torch.randn(adapters, hidden, rank) / hidden**0.5
        up = torch.randn(adapters, rank, hidden) / rank**0.5
        self.down = nn.Parameter(down.bfloat16())
        self.up = nn.Parameter(up.bfloat16())

    def forward(self, x: torch.Tensor, base: torch.Tensor, adapter: torch.Tensor) -> torch.Tensor:
        """Shapes: x and base [requests, tokens, hidden], adapter [requests]."""
        return base + x @ self.down[adapter] @ self.up[adapter]


def get_inputs(case: str = "decode") -> list[torch.Tensor]:
    requests, tokens = SHAPES[case]
    return [
        torch.randn(requests, tokens, HIDDEN, dtype=torch.bfloat16),
        torch.randn(requests, tokens, HIDDEN, dtype=torch.bfloat16),
        torch.randint(0, ADAPTERS, (requests,)),
    ]


def get_init_inputs() -> list[int]:
    return [HIDDEN, RANK, ADAPTERS]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    requests, tokens = SHAPES[case]
    used = ADAPTERS * (1 - (1 - 1 / ADAPTERS) ** requests)  # on average
    moved = 3 * requests * tokens * HIDDEN * 2 + used * 2 * HIDDEN * RANK * 2 + requests * 8
    return moved, 2 * 2 * requests * tokens * HIDDEN * RANK
