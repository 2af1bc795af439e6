"""Probabilities of the next token: penalties for tokens that occurred, then softmax at a temperature for each request."""

import torch
import torch.nn as nn

CASES = {"llama": 1.0, "qwen": 1.0, "gemma": 1.0}

SHAPES = {
    "llama": (128, 128256, 2048),  # vocab_size of Llama-3.1-8B
    "qwen": (64, 151936, 4096),  # vocab_size of Qwen3-8B
    "gemma": (16, 262208, 1024),  # vocab_size of Gemma-3-4B
}
"""Requests, words of the vocabulary, and earlier tokens of each request."""

LEAST = 0.01
"""The lowest temperature and repetition penalty, so that none is zero."""


class Model(nn.Module):
    def forward(
        self,
        logits: torch.Tensor,
        tokens: torch.Tensor,
        repetition: torch.Tensor,
        frequency: torch.Tensor,
        presence: torch.Tensor,
        temperature: torch.Tensor,
    ) -> torch.Tensor:
        """Shapes: logits [requests, vocabulary], tokens [requests, length]; the others [requests, 1]."""
        counts = torch.zeros_like(logits, dtype=repetition.dtype)
        counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=counts.dtype))
        repetition, temperature = repetition.clamp(min=LEAST), temperature.clamp(min=LEAST)
        repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
        logits = torch.where(counts > 0, repeated - presence, logits) - frequency * counts
        return torch.softmax(logits / temperature, dim=-1)


def get_inputs(case: str = "llama") -> list[torch.Tensor]:
    requests, vocabulary, length = SHAPES[case]
    return [
        4 * torch.randn(requests, vocabulary, dtype=torch.bfloat16),
        (vocabulary * torch.rand(requests, length) ** 3).long().clamp(max=vocabulary - 1),
        1 + torch.rand(requests, 1),
        torch.rand(requests, 1),
        torch.rand(requests, 1),
        0.5 + torch.rand(requests, 1),
    ]


def get_init_inputs() -> list[int]:
    return []


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    requests, vocabulary, length = SHAPES[case]
    return requests * (vocabulary * (2 + 4) + length * 8 + 4 * 4), 0
