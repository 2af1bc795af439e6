"""Residual addition and RMSNorm in CuTe DSL: a row in registers, all its loads in flight at once."""

import functools

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass import BFloat16, Float32
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

WIDTH, WARPS = 8, 4  # bf16 values in 16 bytes; warps per row
THREADS = 32 * WARPS


@cute.kernel
def norm_kernel(
    x: cute.Tensor, residual: cute.Tensor, weight: cute.Tensor, out: cute.Tensor, total: cute.Tensor,
    eps: Float32, columns: cutlass.Constexpr,
):  # fmt: skip
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row = cutlass.Int64(block)
    packs = columns // WIDTH
    partial = cutlass.memory.SmemAllocator().allocate_tensor(Float32, cute.make_layout(WARPS))
    held = cute.make_rmem_tensor((WIDTH, cute.ceil_div(packs, THREADS)), Float32)
    held.fill(0.0)
    loaded = cute.make_rmem_tensor((WIDTH, 2, cute.ceil_div(packs, THREADS)), BFloat16)
    loaded.fill(0.0)
    for i in cutlass.range_constexpr(cute.size(held, mode=[1])):  # all loads are in flight at once
        pack = i * THREADS + thread
        if pack < packs:
            cute.autovec_copy(cute.local_tile(x[row, None], (WIDTH,), (pack,)), loaded[None, 0, i])
            cute.autovec_copy(
                cute.local_tile(residual[row, None], (WIDTH,), (pack,)), loaded[None, 1, i]
            )
    square = Float32(0.0)
    for i in cutlass.range_constexpr(cute.size(held, mode=[1])):
        value = loaded[None, 0, i].load().to(Float32) + loaded[None, 1, i].load().to(Float32)
        held[None, i].store(value)
        square += (value * value).reduce(cute.ReductionOp.ADD, 0.0, 0)
    square = cute.arch.warp_reduction_sum(square)
    if thread % 32 == 0:
        partial[thread // 32] = square
    cute.arch.sync_threads()
    square = partial.load().reduce(cute.ReductionOp.ADD, 0.0, 0)
    scale = cute.math.rsqrt(square / columns + eps)
    factor = cute.make_rmem_tensor(WIDTH, BFloat16)
    result = cute.make_rmem_tensor(WIDTH, BFloat16)
    for i in cutlass.range_constexpr(cute.size(held, mode=[1])):
        pack = i * THREADS + thread
        if pack < packs:
            value = held[None, i].load()
            result.store(value.to(BFloat16))
            cute.autovec_copy(result, cute.local_tile(total[row, None], (WIDTH,), (pack,)))
            cute.autovec_copy(cute.local_tile(weight, (WIDTH,), (pack,)), factor)
            result.store((value * scale * factor.load().to(Float32)).to(BFloat16))
            cute.autovec_copy(result, cute.local_tile(out[row, None], (WIDTH,), (pack,)))


@cute.jit
def norm(x, residual, weight, out, total, eps: Float32, stream: cuda.CUstream):
    norm_kernel(x, residual, weight, out, total, eps, x.shape[1]).launch(
        grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream
    )


@functools.cache
def compiled(columns: int):
    rows = cute.sym_int()
    x, residual, out, total = (
        make_fake_compact_tensor(BFloat16, (rows, columns), stride_order=(1, 0), assumed_align=16)
        for _ in range(4)
    )
    weight = make_fake_compact_tensor(BFloat16, (columns,), assumed_align=16)
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    given = (x, residual, weight, out, total, Float32(0.0), stream)
    return cute.compile(norm, *given, options="--enable-tvm-ffi")


compiled(4096)


class ModelNew(nn.Module):
    def __init__(self, hidden: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden, dtype=torch.bfloat16))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        out, total = torch.empty_like(x), torch.empty_like(x)
        compiled(x.shape[1])(x, residual, self.weight, out, total, self.epsilon)
        return out, total
