"""Attention over a sliding window with a sink: a learned logit of each head that takes weight and adds no value.

Keys and values begin with the WINDOW of the tokens before the call. A query sees the WINDOW keys up to its own.
"""

import torch
import torch.nn as nn

CASES = {"decode": 3.0, "prefill": 1.0}

# gpt-oss-20b
HEADS = 64  # num_attention_heads
KV_HEADS = 8  # num_key_value_heads
WIDTH = 64  # head_dim
WINDOW = 128  # sliding_window

BLOCK = 16
"""Queries in a block. With the 8 heads that share keys they are 128 rows, which see WINDOW + BLOCK keys."""

SHAPES = {"decode": (128, 1), "prefill": (2, 8192)}
"""Sequences, and new tokens of each."""


class Model(nn.Module):
    def __init__(self, heads: int, kv_heads: int, window: int, block: int) -> None:
        super().__init__()
        self.kv_heads, self.window, self.block = kv_heads, window, block
        self.sinks = nn.Parameter(torch.randn(heads, dtype=torch.bfloat16))

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Shapes: query [batch, steps, heads, width], key and value [batch, WINDOW + steps, kv_heads, width]."""
        block = min(self.block, query.shape[1])
        span = self.window + block
        row = torch.arange(block, device=query.device)[:, None]
        column = torch.arange(span, device=query.device)
        seen = (column > row) & (column <= row + self.window)

        q = query.unflatten(2, (self.kv_heads, -1)).unflatten(1, (-1, block))
        k, v = (each.unfold(1, span, block) for each in (key, value))
        scores = torch.einsum("bnikgd,bnkdj->bnkgij", q, k) / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~seen, float("-inf"))
        sinks = self.sinks.view(self.kv_heads, -1, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
        return torch.einsum("bnkgij,bnkdj->bnikgd", weights, v).reshape(query.shape)


def get_inputs(case: str = "decode") -> list[torch.Tensor]:
    batch, steps = SHAPES[case]
    return [
        torch.randn(batch, steps, HEADS, WIDTH, dtype=torch.bfloat16),
        torch.randn(batch, WINDOW + steps, KV_HEADS, WIDTH, dtype=torch.bfloat16),
        torch.randn(batch, WINDOW + steps, KV_HEADS, WIDTH, dtype=torch.bfloat16),
    ]


def get_init_inputs() -> list[int]:
    return [HEADS, KV_HEADS, WINDOW, BLOCK]


def roofline(case: str) -> tuple[float, float]:
    """Bytes that a call must move, and operations of its matrix products.

    The reference multiplies (WINDOW + BLOCK) / WINDOW times as much, since a block sees more keys than each query in it.
    """
    batch, steps = SHAPES[case]
    moved = 2 * steps * HEADS + 2 * (WINDOW + steps - 1) * KV_HEADS
    return batch * moved * WIDTH * 2 + HEADS * 2, 4 * batch * steps * HEADS * WIDTH * WINDOW
