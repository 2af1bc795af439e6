"""Forward: one row per program, held in registers as a block of 4096 and a masked one of 512 (for a row of 4544). Backward: about two persistent programs per SM walk the rows with asynchronous
copies of the next rows into shared memory (three rows ahead), compute the gradient of x in one pass, and keep the partial sums
of the weight's and bias's gradients in registers; a second kernel adds the programs' sums in a fixed order. Backward goes from the
last row to the first, since forward left the last rows of x in L2.

Expected on an H100: 2k about 85 us (nearly all host time; 30 us on the GPU), 16k about 270 us + 25 us host (745 MB at 2.9 TB/s).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

FORWARD_WARPS = 4  # tune: 4, 2, 8
WARPS = 8  # tune: 8, 16
PROGRAMS = 264  # tune: 264, 132, 396
STAGES = 4  # tune: 4, 3, 2


@triton.jit
def add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def forward_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, stats_ptr, rows, hidden, epsilon, MAIN: tl.constexpr, TAIL: tl.constexpr
):
    row = tl.program_id(0)
    base = row.to(tl.int64) * hidden
    c = tl.arange(0, TAIL)
    at = tl.arange(0, MAIN)
    tail = MAIN + c
    inside = tail < hidden
    x = tl.load(x_ptr + base + at).to(tl.float32)
    x_tail = tl.load(x_ptr + base + tail, mask=inside, other=0.0).to(tl.float32)
    mean = (tl.sum(x, axis=0) + tl.sum(x_tail, axis=0)) / hidden
    x = x - mean
    x_tail = tl.where(inside, x_tail - mean, 0.0)
    variance = (tl.sum(x * x, axis=0) + tl.sum(x_tail * x_tail, axis=0)) / hidden
    scale = 1.0 / tl.sqrt(variance + epsilon)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + rows + row, scale)
    weight = tl.load(weight_ptr + at)
    weight_tail = tl.load(weight_ptr + tail, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at)
    bias_tail = tl.load(bias_ptr + tail, mask=inside, other=0.0)
    y = x * scale * weight + bias
    y_tail = x_tail * scale * weight_tail + bias_tail
    tl.store(out_ptr + base + at, y.to(out_ptr.dtype.element_ty), eviction_policy="evict_first")
    tl.store(
        out_ptr + base + tail, y_tail.to(out_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
    )


@triton.jit
def backward_kernel(
    given_ptr, x_ptr, weight_ptr, stats_ptr, of_x_ptr, parts_ptr, rows, hidden, programs,
    MAIN: tl.constexpr, TAIL: tl.constexpr, TRIPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    c = tl.arange(0, TAIL)
    at = tl.arange(0, MAIN)
    tail = MAIN + c
    inside = tail < hidden
    weight = tl.load(weight_ptr + at)
    weight_tail = tl.load(weight_ptr + tail, mask=inside, other=0.0)
    of_weight = tl.zeros((MAIN,), dtype=tl.float32)
    of_bias = tl.zeros((MAIN,), dtype=tl.float32)
    of_weight_tail = tl.zeros((TAIL,), dtype=tl.float32)
    of_bias_tail = tl.zeros((TAIL,), dtype=tl.float32)
    for trip in tl.range(0, TRIPS, num_stages=STAGES):
        row = rows - 1 - (program + trip * programs)
        alive = row >= 0
        base = row.to(tl.int64) * hidden
        x = tl.load(x_ptr + base + at, mask=alive, other=0.0).to(tl.float32)
        given = tl.load(given_ptr + base + at, mask=alive, other=0.0).to(tl.float32)
        x_tail = tl.load(x_ptr + base + tail, mask=inside & alive, other=0.0).to(tl.float32)
        given_tail = tl.load(given_ptr + base + tail, mask=inside & alive, other=0.0).to(tl.float32)
        mean = tl.load(stats_ptr + row, mask=alive, other=0.0)
        scale = tl.load(stats_ptr + rows + row, mask=alive, other=0.0)
        x = (x - mean) * scale
        x_tail = (x_tail - mean) * scale
        of_weight += given * x
        of_bias += given
        of_weight_tail += given_tail * x_tail
        of_bias_tail += given_tail
        given = given * weight
        given_tail = given_tail * weight_tail
        projection, average = tl.reduce((given * x, given), 0, add_pairs)
        projection_tail, average_tail = tl.reduce((given_tail * x_tail, given_tail), 0, add_pairs)
        projection = (projection + projection_tail) / hidden
        average = (average + average_tail) / hidden
        of_x = (given - (x * projection + average)) * scale
        of_x_tail = (given_tail - (x_tail * projection + average)) * scale
        tl.store(of_x_ptr + base + at, of_x.to(of_x_ptr.dtype.element_ty), mask=alive, eviction_policy="evict_first")
        tl.store(
            of_x_ptr + base + tail, of_x_tail.to(of_x_ptr.dtype.element_ty), mask=inside & alive,
            eviction_policy="evict_first",
        )  # fmt: skip
    parts_ptr += program * (2 * hidden)
    tl.store(parts_ptr + at, of_weight)
    tl.store(parts_ptr + tail, of_weight_tail, mask=inside)
    tl.store(parts_ptr + hidden + at, of_bias)
    tl.store(parts_ptr + hidden + tail, of_bias_tail, mask=inside)


@triton.jit
def sum_kernel(parts_ptr, out_ptr, width, programs, PIECES: tl.constexpr, P: tl.constexpr, B: tl.constexpr):
    column = tl.program_id(0) * B + tl.arange(0, B)
    inside = column < width
    total = tl.zeros((P, B), dtype=tl.float32)
    for piece in tl.static_range(PIECES):
        part = piece * P + tl.arange(0, P)
        total += tl.load(
            parts_ptr + part[:, None] * width + column[None, :],
            mask=(part < programs)[:, None] & inside[None, :], other=0.0,
        )  # fmt: skip
    tl.store(out_ptr + column, tl.sum(total, axis=0), mask=inside)


def split(hidden):
    """A row as a block of a power of two and a smaller, masked one."""
    main = triton.next_power_of_2(hidden) // 2
    tail = max(triton.next_power_of_2(hidden - main), 32)
    return main, tail


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, epsilon):
        x = x.contiguous()
        hidden = x.shape[-1]
        rows = x.numel() // hidden
        out = torch.empty_like(x)
        stats = torch.empty(2 * rows, device=x.device, dtype=torch.float32)
        MAIN, TAIL = split(hidden)
        forward_kernel[(rows,)](
            x, weight, bias, out, stats, rows, hidden, epsilon, MAIN=MAIN, TAIL=TAIL, num_warps=FORWARD_WARPS
        )
        ctx.save_for_backward(x, weight, stats)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, given):
        x, weight, stats = ctx.saved_tensors
        hidden = x.shape[-1]
        rows = x.numel() // hidden
        programs = min(rows, PROGRAMS)
        of_x = torch.empty_like(x)
        parts = torch.empty(programs, 2, hidden, device=x.device, dtype=torch.float32)
        MAIN, TAIL = split(hidden)
        backward_kernel[(programs,)](
            given.contiguous(), x, weight, stats, of_x, parts, rows, hidden, programs,
            MAIN=MAIN, TAIL=TAIL, TRIPS=triton.cdiv(rows, programs), STAGES=STAGES, num_warps=WARPS,
            maxnreg=1024 // WARPS,  # two programs per SM
        )  # fmt: skip
        sums = torch.empty(2, hidden, device=x.device, dtype=torch.float32)
        sum_kernel[(triton.cdiv(2 * hidden, 32),)](
            parts, sums, 2 * hidden, programs, PIECES=triton.cdiv(programs, 128), P=128, B=32, num_warps=8
        )
        wanted = ctx.needs_input_grad
        return of_x if wanted[0] else None, sums[0] if wanted[1] else None, sums[1] if wanted[2] else None, None


class ModelNew(nn.Module):
    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden, epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = self.norm
        hidden = x.shape[-1]
        if hidden < 32 or hidden > 16384 or x.numel() == 0 or x.dtype != torch.bfloat16 or norm.weight.dtype != torch.float32:
            return F.layer_norm(x.to(norm.weight.dtype), (hidden,), norm.weight, norm.bias, norm.eps).to(x.dtype)
        return Norm.apply(x, norm.weight, norm.bias, norm.eps)
