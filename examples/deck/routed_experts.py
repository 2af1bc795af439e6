"""The experts of a mixture: each token goes through the SwiGLU layers of its experts, whose outputs are weighted and added."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {"decode": 3.0, "prefill": 1.0}

# Qwen3-30B-A3B
HIDDEN = 2048  # hidden_size
INNER = 768  # moe_intermediate_size
EXPERTS = 128  # num_experts
CHOSEN = 8  # num_experts_per_tok

TOKENS = {"decode": 16, "prefill": 4096}


class Model(nn.Module):
    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        up = torch.randn(experts, 2 * inner, hidden) / hidden**0.5
        down = torch.randn(experts, hidden, inner) / inner**0.5
        self.up = nn.Parameter(up.bfloat16())
        self.down = nn.Parameter(down.bfloat16())

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Shapes: x [tokens, hidden]; chosen and weight [tokens, CHOSEN]."""
        mixed = torch.zeros_like(x)
        for expert in chosen.unique().tolist():
            token, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = F.linear(x[token], self.up[expert]).chunk(2, dim=-1)
            found = F.linear(F.silu(gate) * up, self.down[expert])
            mixed.index_add_(0, token, found * weight[token, place, None])
        return mixed


def get_inputs(case: str = "decode") -> list[torch.Tensor]:
    tokens = TOKENS[case]
    scores, chosen = torch.randn(tokens, EXPERTS).topk(CHOSEN, dim=-1)
    return [
        torch.randn(tokens, HIDDEN, dtype=torch.bfloat16),
        chosen,
        scores.softmax(dim=-1).bfloat16(),
    ]


def get_init_inputs() -> list[int]:
    return [HIDDEN, INNER, EXPERTS]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    tokens = TOKENS[case]
    used = EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** tokens)  # on average
    moved = used * 3 * HIDDEN * INNER * 2 + tokens * (2 * HIDDEN * 2 + CHOSEN * (8 + 2))
    return moved, 2 * tokens * CHOSEN * 3 * HIDDEN * INNER
