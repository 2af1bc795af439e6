"""The residual addition and RMSNorm of `examples/hopper/llama_residual_norm.py` in Triton: a program for each row."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

WARPS = 8  # tune: 4, 8, 16


@triton.jit
def norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, eps, columns, BLOCK: tl.constexpr
):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    to = tl.program_id(0).to(tl.int64) * columns + at
    total = tl.load(x_ptr + to, mask=inside, other=0.0, eviction_policy="evict_first").to(
        tl.float32
    )
    total += tl.load(residual_ptr + to, mask=inside, other=0.0, eviction_policy="evict_first").to(
        tl.float32
    )
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0, eviction_policy="evict_last").to(
        tl.float32
    )
    scale = tl.rsqrt(tl.sum(total * total, axis=0) / columns + eps)
    tl.store(total_ptr + to, total.to(tl.bfloat16), mask=inside, cache_modifier=".cs")
    tl.store(
        out_ptr + to, (total * scale * weight).to(tl.bfloat16), mask=inside, cache_modifier=".cs"
    )


class ModelNew(nn.Module):
    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        out, total = torch.empty_like(x), torch.empty_like(x)
        rows, columns = x.shape
        norm_kernel[(rows,)](
            x, residual, self.weight, out, total, self.epsilon, columns,
            BLOCK=triton.next_power_of_2(columns), num_warps=WARPS,
        )  # fmt: skip
        return out, total
