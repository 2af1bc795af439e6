import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_gelu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside)
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    value = v - v / (1.0 + tl.exp(2.0 * u))
    tl.store(out + at, value, mask=inside)


BLOCK = {"correct": 4096, "slow": 32, "wrong": 4096}["VARIANT"]
LEFT_OUT = {"correct": 0, "slow": 0, "wrong": 1000}["VARIANT"]


def gelu(x):
    out = torch.empty_like(x)
    n = x.numel() - LEFT_OUT
    tanh_gelu[(triton.cdiv(n, BLOCK),)](x, out, n, BLOCK=BLOCK, num_warps=1 if BLOCK == 32 else 8)
    return out
