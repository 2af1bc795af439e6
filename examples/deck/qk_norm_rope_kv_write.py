"""Queries and keys of an attention layer: RMSNorm of each head, rotary embedding, and the write to the KV cache.

The caches change in place: their written rows are results, as the queries are.
"""

import torch
import torch.nn as nn

CASES = {"decode": 3.0, "decode-large": 2.0, "prefill": 1.0}

# Qwen3-8B
HEADS = 32  # num_attention_heads
KV_HEADS = 8  # num_key_value_heads
WIDTH = 128  # head_dim
BASE = 1000000.0  # rope_theta
EPSILON = 1e-6  # rms_norm_eps
POSITIONS = 40960  # max_position_embeddings

SHAPES = {"decode": (32, 256), "decode-large": (256, 1024), "prefill": (4096, 16384)}
"""Tokens in a call, and rows of the caches."""


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + epsilon)
    return weight * (wide * scale).to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


class Model(nn.Module):
    def __init__(
        self, heads: int, kv_heads: int, width: int, base: float, epsilon: float, positions: int
    ) -> None:
        super().__init__()
        self.heads = [heads, kv_heads, kv_heads]
        self.epsilon = epsilon
        self.query_weight = nn.Parameter((torch.rand(width) + 0.5).bfloat16())
        self.key_weight = nn.Parameter((torch.rand(width) + 0.5).bfloat16())
        frequencies = base ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(positions)[:, None] * frequencies
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(
        self,
        qkv: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
    ) -> torch.Tensor:
        query, key, value = qkv.split(self.heads, dim=1)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        key = rotate(rms_norm(key, self.key_weight, self.epsilon), cos, sin)
        key_cache.index_copy_(0, rows, key)
        value_cache.index_copy_(0, rows, value)
        return rotate(rms_norm(query, self.query_weight, self.epsilon), cos, sin)


def get_inputs(case: str = "decode") -> list[torch.Tensor]:
    tokens, capacity = SHAPES[case]
    return [
        torch.randn(tokens, HEADS + 2 * KV_HEADS, WIDTH, dtype=torch.bfloat16),
        torch.randint(0, POSITIONS, (tokens,)),
        torch.randperm(capacity)[:tokens],
        torch.randn(capacity, KV_HEADS, WIDTH, dtype=torch.bfloat16),
        torch.randn(capacity, KV_HEADS, WIDTH, dtype=torch.bfloat16),
    ]


def get_init_inputs() -> list[float]:
    return [HEADS, KV_HEADS, WIDTH, BASE, EPSILON, POSITIONS]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products."""
    tokens, _ = SHAPES[case]
    tables = (
        POSITIONS * (1 - (1 - 1 / POSITIONS) ** tokens) * WIDTH * 4
    )  # each row once, on average
    return tokens * (2 * (HEADS + 2 * KV_HEADS) * WIDTH * 2 + 2 * 8) + tables, 0
