"""Attention of one new token over a paged cache of keys and values in int8, with a scale for each token and head.

A page holds PAGE tokens. A sequence's pages lie anywhere in the cache, in the order of its row of the table.
"""

import torch
import torch.nn as nn

CASES = {"short": 1.0, "long": 1.0}

# Llama-3.1-8B
HEADS = 32  # num_attention_heads
KV_HEADS = 8  # num_key_value_heads
WIDTH = 128  # head_dim

PAGE = 16
"""Tokens in a page."""

SHAPES = {"short": (128, 1024), "long": (8, 16384)}
"""Sequences, and the most tokens of each. They have between 7/8 of it and all of it."""

STEP = 1 / 73
"""A scale that gives keys and values a standard deviation of one."""


class Model(nn.Module):
    def __init__(self, kv_heads: int) -> None:
        super().__init__()
        self.kv_heads = kv_heads

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_scales: torch.Tensor,
        value_scales: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        """Shapes: query [batch, heads, width], keys and values [pages, PAGE, kv_heads, width], scales without width,
        table [batch, pages of a sequence], lengths [batch].
        """
        k, v = (
            (cache[table].to(query.dtype) * scales[table][..., None]).flatten(1, 2)
            for cache, scales in ((keys, key_scales), (values, value_scales))
        )
        q = query.unflatten(1, (self.kv_heads, -1))
        scores = torch.einsum("bkgd,btkd->bkgt", q, k) / query.shape[-1] ** 0.5
        unseen = torch.arange(k.shape[1], device=query.device) >= lengths[:, None]
        scores = scores.masked_fill(unseen[:, None, None], float("-inf"))
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = torch.softmax(scores, dim=-1, dtype=wide).to(query.dtype)
        return torch.einsum("bkgt,btkd->bkgd", weights, v).reshape(query.shape)


def get_inputs(case: str = "short") -> list[torch.Tensor]:
    batch, tokens = SHAPES[case]
    pages = batch * tokens // PAGE
    cache = pages, PAGE, KV_HEADS
    return [
        torch.randn(batch, HEADS, WIDTH, dtype=torch.bfloat16),
        torch.randint(-127, 128, (*cache, WIDTH), dtype=torch.int8),
        torch.randint(-127, 128, (*cache, WIDTH), dtype=torch.int8),
        ((torch.rand(cache) + 0.5) * STEP).to(torch.bfloat16),
        ((torch.rand(cache) + 0.5) * STEP).to(torch.bfloat16),
        torch.randperm(pages).view(batch, -1),
        torch.randint(tokens * 7 // 8, tokens + 1, (batch,)),
    ]


def get_init_inputs() -> list[int]:
    return [KV_HEADS]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products, for the mean length.

    The reference looks up whole sequences of the most tokens, a fifteenth more.
    """
    batch, tokens = SHAPES[case]
    seen = batch * tokens * 15 / 16
    ends = 2 * batch * HEADS * WIDTH * 2
    return 2 * seen * KV_HEADS * (WIDTH + 2) + ends, 4 * seen * HEADS * WIDTH
