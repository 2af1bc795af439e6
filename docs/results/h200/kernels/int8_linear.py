"""One launch per call. Few rows: one program per 32 (or 64) outputs streams its whole weight rows once through a deep cp.async
pipeline into int8 wgmma, with scales and bias in the epilogue: no split-K and no second launch, since the host limits this case.
Many rows: persistent 128x256 int8 wgmma tiles fed by TMA descriptors made in the kernel, scales and bias fused.
Expected: decode 8 to 9 us on the device (about 22 us with the host), prefill 205 us (roofline 5.3 and 180).
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DECODE_BN = 32  # tune: 32, 64
DECODE_STAGES = 4  # tune: 3, 4, 6
PREFILL_BK = 128  # tune: 64, 128, 256
PROCESSORS = 132


@triton.jit
def few_rows_kernel(
    x_ptr, w_ptr, row_ptr, column_ptr, bias_ptr, out_ptr, M, N, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    mc, nc = tl.minimum(m, M - 1), tl.minimum(n, N - 1)
    x_at = x_ptr + mc.to(tl.int64)[:, None] * K + k[None, :]
    w_at = w_ptr + nc.to(tl.int64)[:, None] * K + k[None, :]
    rows = tl.load(row_ptr + m, mask=m < M, other=0.0)
    columns = tl.load(column_ptr + n, mask=n < N, other=0.0)
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for start in tl.range(0, K, BK, num_stages=STAGES):
        x = tl.load(x_at + start)
        w = tl.load(w_at + start)
        acc = tl.dot(x, w.T, acc, out_dtype=tl.int32)
    value = acc.to(tl.float32) * rows[:, None] * columns[None, :] + bias[None, :]
    at = out_ptr + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(at, value.to(out_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def place(tile, rows, columns, GROUP: tl.constexpr):
    group = tile // (GROUP * columns)
    height = max(min(rows - group * GROUP, GROUP), 1)  # tiles beyond the last lie outside the matrix
    within = tile % (GROUP * columns)
    return group * GROUP + within % height, within // height


@triton.jit
def many_rows_kernel(
    x_ptr, w_ptr, row_ptr, column_ptr, bias_ptr, out_ptr, M, N, K: tl.constexpr, ROUNDS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    x_desc = tl.make_tensor_descriptor(x_ptr, [M, K], [K, 1], [BM, BK])
    w_desc = tl.make_tensor_descriptor(w_ptr, [N, K], [K, 1], [BN, BK])
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    done = tl.program_id(0) - tl.num_programs(0)
    for turn in tl.range(0, ROUNDS, flatten=True):
        tile = tl.program_id(0) + turn * tl.num_programs(0)
        row, column = place(tile, rows, columns, GROUP)
        acc = tl.zeros((BM, BN), dtype=tl.int32)
        for k in tl.range(0, K, BK, num_stages=STAGES):
            x = x_desc.load([row * BM, k])
            w = w_desc.load([column * BN, k])
            acc = tl.dot(x, w.T, acc, out_dtype=tl.int32)
        done += tl.num_programs(0)  # the tile's number again: nothing but the accumulator outlives the pipelined loop
        row, column = place(done, rows, columns, GROUP)
        m = row * BM + tl.arange(0, BM)
        scale = tl.load(row_ptr + m, mask=m < M, other=0.0)
        half: tl.constexpr = BN // 2
        left, right = acc.reshape(BM, 2, half).permute(0, 2, 1).split()
        for part in tl.static_range(2):
            n = column * BN + part * half + tl.arange(0, half)
            column_scale = tl.load(column_ptr + n, mask=n < N, other=0.0)
            bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
            if part == 0:
                value = left.to(tl.float32)
            else:
                value = right.to(tl.float32)
            value = value * scale[:, None] * column_scale[None, :] + bias[None, :]
            at = out_ptr + m.to(tl.int64)[:, None] * N + n[None, :]
            tl.store(at, value.to(out_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int8, device="cuda")


class ModelNew(nn.Module):
    def __init__(self, hidden: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer(
            "weight", torch.randint(-127, 128, (outputs, hidden), dtype=torch.int8)
        )
        self.scale = nn.Parameter((torch.rand(outputs) + 0.5) / 127 / hidden**0.5)
        self.bias = nn.Parameter(torch.randn(outputs, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        weight, parameters = self.weight, self._parameters
        columns, bias = parameters["scale"], parameters["bias"]
        M, K = x.shape
        N = weight.shape[0]
        if K % 64 or not M or not x.is_contiguous():
            sums = (x.double() @ weight.double().t()).float()
            return (sums * scale[:, None] * columns).to(bias.dtype) + bias
        out = torch.empty((M, N), dtype=bias.dtype, device=x.device)
        if M <= 64:
            few_rows_kernel[(triton.cdiv(N, DECODE_BN), triton.cdiv(M, 64))](
                x, weight, scale, columns, bias, out, M, N, K,
                BM=64, BN=DECODE_BN, BK=256 if K % 256 == 0 else 64, STAGES=DECODE_STAGES, num_warps=4,
            )  # fmt: skip
        else:
            triton.set_allocator(scratch)
            tiles = triton.cdiv(M, 128) * triton.cdiv(N, 256)
            programs = min(PROCESSORS, tiles)
            many_rows_kernel[(programs,)](
                x, weight, scale, columns, bias, out, M, N, K, triton.cdiv(tiles, programs),
                BM=128, BN=256, BK=PREFILL_BK, GROUP=8, STAGES=512 // PREFILL_BK, num_warps=8,
            )  # fmt: skip
        return out
