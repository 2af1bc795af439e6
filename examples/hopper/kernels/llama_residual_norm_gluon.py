"""Residual addition and RMSNorm in Gluon: TMA keeps three rows in flight for each program."""

import torch
import torch.nn as nn
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

STAGES, PROGRAMS = 4, 132 * 3  # three programs of 64 KB on each of the 132 SMs of an H100 or H200


@gluon.jit
def fetch(x_desc, residual_desc, row, rows, bars, xs, residuals, slot):
    bar, wanted = bars.index(slot), row < rows
    mbarrier.expect(bar, 2 * x_desc.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(x_desc, [row, 0], bar, xs.index(slot), pred=wanted)
    tma.async_copy_global_to_shared(
        residual_desc, [row, 0], bar, residuals.index(slot), pred=wanted
    )


@gluon.jit
def norm_kernel(
    x_desc, residual_desc, weight_ptr, out_ptr, total_ptr, eps,
    columns: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    BLOCK: gl.constexpr = x_desc.block_type.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [1, gl.num_warps()], [1, 0])
    rows = x_desc.shape[0]
    xs = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, BLOCK], x_desc.layout)
    residuals = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 1, BLOCK], x_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(bars.index(i), count=1)
    first, programs = gl.program_id(0), gl.num_programs(0)
    for i in gl.static_range(STAGES - 1):
        fetch(x_desc, residual_desc, first + i * programs, rows, bars, xs, residuals, i)
    at = gl.arange(0, BLOCK, layout=gl.SliceLayout(0, layout))[None, :]
    inside = at < columns
    weight = gl.load(weight_ptr + at, mask=inside, other=0.0).to(gl.float32)
    step = 0
    for row in range(first, rows, programs):
        slot = step % STAGES
        mbarrier.wait(bars.index(slot), step // STAGES & 1)
        total = xs.index(slot).load(layout).to(gl.float32)
        total += residuals.index(slot).load(layout).to(gl.float32)
        fence_async_shared()  # the previous slot was read by loads, and TMA fills it now
        fetch(x_desc, residual_desc, row + (STAGES - 1) * programs, rows, bars, xs, residuals,
              (step + STAGES - 1) % STAGES)  # fmt: skip
        scale = gl.rsqrt(gl.sum(total * total, axis=1) / columns + eps)
        to = row.to(gl.int64) * columns + at
        gl.store(total_ptr + to, total.to(gl.bfloat16), mask=inside)
        value = total * gl.expand_dims(scale, 1) * weight
        gl.store(out_ptr + to, value.to(gl.bfloat16), mask=inside)
        step += 1


def described(tensor: torch.Tensor, block: int) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for([1, block], gl.bfloat16)
    return TensorDescriptor.from_tensor(tensor, [1, block], layout)


class ModelNew(nn.Module):
    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        out, total = torch.empty_like(x), torch.empty_like(x)
        rows, columns = x.shape
        block = max(1024, triton.next_power_of_2(columns))
        norm_kernel[(min(rows, PROGRAMS),)](
            described(x, block), described(residual, block), self.weight, out, total, self.epsilon,
            columns, STAGES=STAGES, num_warps=4,
        )  # fmt: skip
        return out, total
