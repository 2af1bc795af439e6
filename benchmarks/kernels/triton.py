import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_leaky_relu(x, out, n, scale, slope, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside) * scale
    tl.store(out + at, tl.where(value > 0, value, value * slope), mask=inside)


BLOCK = {"correct": 4096, "slow": 32, "wrong": 4096}["VARIANT"]
LEFT_OUT = {"correct": 0, "slow": 0, "wrong": 1000}["VARIANT"]


def activate(x, scale, slope):
    out = torch.empty_like(x)
    n = x.numel() - LEFT_OUT
    scaled_leaky_relu[(triton.cdiv(n, BLOCK),)](
        x, out, n, scale, slope, BLOCK=BLOCK, num_warps=1 if BLOCK == 32 else 8
    )
    return out
