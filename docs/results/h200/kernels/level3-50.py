"""float32 on half the tensor work of a three-product split. The projection is one fp16 product of the rows (scaled to a maximum
of 1) plus both of its rounding corrections in int8, which run at twice the rate: the corrections need 8 bits only. Per tile the
int8 loop comes first; its int32 sum, scaled, seeds the float32 accumulator of the fp16 loop (2 units of bf16 work instead of 3).
Rows with outliers (max > 6 rms) would make the 8 bits too coarse: then, by a flag read on the GPU, the correction is computed
from the float32 values in fp16. The projection writes q, k, v as two bf16 parts; the attention takes three bf16 products
(hi hi + hi lo + lo hi) for q k^T and for relu(.) v, and skips the blocks above the diagonal.

Three launches. Expected on an H200: split 27 µs + projection 180 µs (117 at peak) + attention 140 µs (88 at peak) = 350 µs.
Error by a model of the rounding at full size: 2e-6 to 4e-6 on the own inputs, 8e-6 for one head or normal inputs (budget 2e-5).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

GEMM_BK = 128  # tune: 128, 256
GEMM_BN = 256  # tune: 256, 128
ATT_BN = 64  # tune: 64, 128
ATT_GROUP = 32  # tune: 32, 16, 64, 192

SIM = triton.knobs.runtime.interpret
ROWS = 8
SMS = 132


@triton.jit
def product(a, b, acc, SIM: tl.constexpr):
    if SIM:  # the interpreter's dot needs float32
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    else:
        acc = tl.dot(a, b, acc)
    return acc


@triton.jit
def brain(v, SIM: tl.constexpr):
    if SIM:  # the interpreter's cast to bf16 truncates
        bits = v.to(tl.uint32, bitcast=True)
        v = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).to(tl.uint32).to(tl.float32, bitcast=True)
    return v.to(tl.bfloat16)


@triton.jit
def bound(value, SIM: tl.constexpr):
    if SIM:  # the interpreter's range takes no tensors with numpy 2.4
        return value.handle.data.item()
    else:
        return value


@triton.jit
def split_kernel(
    x_ptr, w_ptr, xh_ptr, x8_ptr, wh_ptr, w8_ptr, xs_ptr, ws_ptr, flag_ptr, blocks_x,
    K: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Scale each row to a maximum of 1; write it as fp16, its 8 leading bits, and 8 bits of what fp16 rounds off."""
    pid = tl.program_id(0)
    is_x = pid < blocks_x
    block = pid
    src = x_ptr
    high = xh_ptr
    eight = x8_ptr
    scale_ptr = xs_ptr
    at_lo = 0  # x8 = [lo | hi], w8 = [hi | lo]: their product is lo hi + hi lo
    if not is_x:
        block = pid - blocks_x
        src = w_ptr
        high = wh_ptr
        eight = w8_ptr
        scale_ptr = ws_ptr
        at_lo = K
    r = block * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BK)
    inside = (c < K)[None, :] & (r >= 0)[:, None]
    v = tl.load(src + r[:, None] * K + c[None, :], mask=inside, other=0.0)
    top = tl.maximum(tl.max(tl.abs(v), axis=1), 1e-30)
    v = v * (1.0 / top)[:, None]
    h = v.to(tl.float16)
    lo = (v - h.to(tl.float32)) * (4096.0 * 127.0)
    hi = v * 127.0
    magic = 12582912.0  # adding 1.5 * 2^23 rounds to the nearest integer
    lo = tl.minimum(tl.maximum((lo + magic) - magic, -127.0), 127.0)
    hi = tl.minimum(tl.maximum((hi + magic) - magic, -127.0), 127.0)
    tl.store(high + r[:, None] * K + c[None, :], h, mask=inside)
    tl.store(eight + r[:, None] * (2 * K) + at_lo + c[None, :], lo.to(tl.int8), mask=inside)
    tl.store(eight + r[:, None] * (2 * K) + (K - at_lo) + c[None, :], hi.to(tl.int8), mask=inside)
    tl.store(scale_ptr + r, top)
    outlier = (tl.sum(v * v, axis=1) * 36.0 < K) & (top > 1e-30)
    tl.store(flag_ptr + pid, tl.max(outlier.to(tl.int32), axis=0))


@triton.jit
def project_kernel(
    x_ptr, w_ptr, xh_ptr, x8_ptr, wh_ptr, w8_ptr, xs_ptr, ws_ptr, flag_ptr, flags, bias_ptr, o_ptr, M,
    N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FLAGS: tl.constexpr,
    STAGES: tl.constexpr, BK8: tl.constexpr, SIM: tl.constexpr,
):  # fmt: skip
    xh = tl.make_tensor_descriptor(xh_ptr, [M, K], [K, 1], [BM, 64])
    wh = tl.make_tensor_descriptor(wh_ptr, [N, K], [K, 1], [BN, 64])
    x8 = tl.make_tensor_descriptor(x8_ptr, [M, 2 * K], [2 * K, 1], [BM, BK8])
    w8 = tl.make_tensor_descriptor(w8_ptr, [N, 2 * K], [2 * K, 1], [BN, BK8])
    o = tl.make_tensor_descriptor(o_ptr, [M, 2 * N], [2 * N, 1], [BM, BN // 2])
    at = tl.arange(0, FLAGS)
    outliers = tl.max(tl.load(flag_ptr + at, mask=at < flags, other=0), axis=0)
    columns: tl.constexpr = N // BN
    for tile in range(bound(tl.program_id(0), SIM), bound((M // BM) * columns, SIM), bound(tl.num_programs(0), SIM)):
        m = (tile // columns) * BM
        n = (tile % columns) * BN
        rm = m + tl.arange(0, BM)
        rn = n + tl.arange(0, BN)
        if outliers != 0:
            inv_x = 1.0 / tl.load(xs_ptr + rm)
            inv_w = 1.0 / tl.load(ws_ptr + rn)
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            ck = tl.arange(0, 16)
            for k in tl.range(0, K, 16, num_stages=1):
                a = tl.load(x_ptr + rm[:, None] * K + (k + ck)[None, :]) * inv_x[:, None]
                ah = a.to(tl.float16)
                al = ((a - ah.to(tl.float32)) * 4096.0).to(tl.float16)
                b = tl.load(w_ptr + rn[:, None] * K + (k + ck)[None, :]) * inv_w[:, None]
                bh = b.to(tl.float16)
                bl = ((b - bh.to(tl.float32)) * 4096.0).to(tl.float16)
                acc = product(ah, bl.T, acc, SIM)
                acc = product(al, bh.T, acc, SIM)
            acc = acc * (1.0 / 4096.0)
        else:
            part = tl.zeros((BM, BN), dtype=tl.int32)
            for k in tl.range(0, 2 * K, BK8, num_stages=STAGES * 128 // BK8):
                part = tl.dot(x8.load([m, k]), w8.load([n, k]).T, part, out_dtype=tl.int32)
            acc = part.to(tl.float32) * (1.0 / (127.0 * 127.0 * 4096.0))
        for k in tl.range(0, K, 64, num_stages=STAGES):
            acc = product(xh.load([m, k]), wh.load([n, k]).T, acc, SIM)
        left, right = acc.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
        finish(left, xs_ptr, ws_ptr, bias_ptr, o, m, n, N, BM, BN // 2, SIM)
        finish(right, xs_ptr, ws_ptr, bias_ptr, o, m, n + BN // 2, N, BM, BN // 2, SIM)


@triton.jit
def finish(acc, xs_ptr, ws_ptr, bias_ptr, o, m, n, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, SIM: tl.constexpr):
    rn = n + tl.arange(0, BN)
    sx = tl.load(xs_ptr + m + tl.arange(0, BM))
    acc = acc * sx[:, None] * tl.load(ws_ptr + rn)[None, :] + tl.load(bias_ptr + rn)[None, :]
    high = brain(acc, SIM)
    o.store([m, n], high)
    o.store([m, N + n], brain(acc - high.to(tl.float32), SIM))


@triton.jit
def attend(qh, ql, base, offsets, rows, keys, acc, C: tl.constexpr, MASK: tl.constexpr, SIM: tl.constexpr):
    kh = tl.load(base + offsets)
    kl = tl.load(base + 3 * C + offsets)
    s = tl.zeros((qh.shape[0], kh.shape[0]), dtype=tl.float32)
    s = product(qh, kh.T, s, SIM)
    s = product(qh, kl.T, s, SIM)
    s = product(ql, kh.T, s, SIM)
    s = tl.where(s < 0.0, 0.0, s)
    if MASK:
        s = tl.where(rows[:, None] >= keys[None, :], s, 0.0)
    ph = brain(s, SIM)
    pl = brain(s - ph.to(tl.float32), SIM)
    vh = tl.load(base + C + offsets)
    vl = tl.load(base + 4 * C + offsets)
    acc = product(ph, vh, acc, SIM)
    acc = product(ph, vl, acc, SIM)
    acc = product(pl, vh, acc, SIM)
    return acc


@triton.jit
def attention_kernel(
    o_ptr, y_ptr, scale, T, heads,
    C: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr, SIM: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    blocks = T // BM
    total = tl.num_programs(0) // blocks
    group = pid // (blocks * GROUP)  # GROUP heads share the L2; the longest query blocks first
    width = min(GROUP, total - group * GROUP)
    inner = pid - group * (blocks * GROUP)
    block = blocks - 1 - inner // width
    both = group * GROUP + inner % width
    batch = both // heads
    head = both % heads
    d = tl.arange(0, 64)
    rows = block * BM + tl.arange(0, BM)
    base = o_ptr + (batch * T * (6 * C) + head * 64)  # a row: q, k, v, and the second parts of q, k, v
    q_at = base + rows[:, None] * (6 * C) + d[None, :]
    qh = tl.load(q_at)
    ql = tl.load(q_at + 3 * C)
    acc = tl.zeros((BM, 64), dtype=tl.float32)
    key = tl.arange(0, BN)
    offsets = key[:, None] * (6 * C) + (d[None, :] + C)
    for start in tl.range(0, bound(block * BM, SIM), BN):
        acc = attend(qh, ql, base + start * (6 * C), offsets, rows, start + key, acc, C, False, SIM)
    for start in tl.range(bound(block * BM, SIM), bound(block * BM + BM, SIM), BN):
        acc = attend(qh, ql, base + start * (6 * C), offsets, rows, start + key, acc, C, True, SIM)
    y_at = batch * T * C + rows[:, None] * C + head * 64 + d[None, :]
    tl.store(y_ptr + y_at, acc * scale)


def scratch(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


class ModelNew(nn.Module):
    def __init__(self, n_embd, n_head, max_seqlen):
        super().__init__()
        assert n_embd % n_head == 0
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen)).view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd

    def plain(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / k.size(-1) ** 0.5)
        att = F.relu(att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")))
        return (att @ v).transpose(1, 2).contiguous().view(B, T, C)

    def forward(self, x):
        B, T, C = x.shape
        M, N, heads = B * T, 3 * C, self.n_head
        if x.dtype != torch.float32 or C != 64 * heads or C % 128 or T % 128 or M == 0 or 2 * M * N >= 2**31:
            return self.plain(x)
        x = x.contiguous()
        w, bias = self.c_attn.weight, self.c_attn.bias
        new = lambda *shape, dtype: torch.empty(shape, dtype=dtype, device=x.device)
        halves = new(M + N, C, dtype=torch.float16)
        eights = new(M + N, 2 * C, dtype=torch.int8)
        scales = new(M + N, dtype=torch.float32)
        flags = (M + N) // ROWS
        flag = new(flags, dtype=torch.int32)
        xh, wh, x8, w8, xs, ws = halves[:M], halves[M:], eights[:M], eights[M:], scales[:M], scales[M:]
        split_kernel[(flags,)](
            x, w, xh, x8, wh, w8, xs, ws, flag, M // ROWS,
            K=C, BK=triton.next_power_of_2(C), ROWS=ROWS, num_warps=8,
        )  # fmt: skip
        out = new(M, 2 * N, dtype=torch.bfloat16)
        bn = GEMM_BN if N % GEMM_BN == 0 else 128
        if not SIM:
            triton.set_allocator(scratch)
        project_kernel[(min(SMS, (M // 128) * (N // bn)),)](
            x, w, xh, x8, wh, w8, xs, ws, flag, flags, bias, out, M,
            N=N, K=C, BM=128, BN=bn, FLAGS=triton.next_power_of_2(flags), STAGES=4, BK8=GEMM_BK, SIM=SIM, num_warps=8,
        )  # fmt: skip
        y = torch.empty_like(x)
        attention_kernel[(B * heads * (T // 128),)](
            out, y, 0.125, T, heads,
            C=C, BM=128, BN=ATT_BN, GROUP=ATT_GROUP, SIM=SIM, num_warps=8, num_stages=2,
        )  # fmt: skip
        return y
