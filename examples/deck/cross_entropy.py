"""The loss of a language model, forward and backward: projection to a vocabulary of 128k words, then cross entropy."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {"4k": 1.0, "8k": 1.0}
BACKWARD = True

# Llama-3.2-1B
HIDDEN = 2048  # hidden_size
VOCABULARY = 128256  # vocab_size

TOKENS = {"4k": 4096, "8k": 8192}


class Model(nn.Module):
    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.head = nn.Linear(hidden, vocabulary, bias=False, dtype=torch.bfloat16)
        nn.init.normal_(self.head.weight, std=0.02)  # initializer_range

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.head(x)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return F.cross_entropy(wide, targets, reduction="none")


def get_inputs(case: str = "4k") -> list[torch.Tensor]:
    tokens = TOKENS[case]
    return [
        torch.randn(tokens, HIDDEN, dtype=torch.bfloat16),
        torch.randint(0, VOCABULARY, (tokens,)),
    ]


def get_init_inputs() -> list[int]:
    return [HIDDEN, VOCABULARY]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    tokens = TOKENS[case]
    with_gradients = 2 * (tokens + VOCABULARY) * HIDDEN * 2
    return with_gradients + tokens * (8 + 2 * 4), 3 * 2 * tokens * HIDDEN * VOCABULARY
