"""Attention whose scores are proven small takes the exponential as a packed fp16 polynomial, so neither MUFU nor TF32 limits it.

With x centred by its mean over tokens (softmax ignores a shift common to all keys, and weights that sum to one carry the mean
value through exactly), the result is W_v mean + b_v, in float32, plus a small correction. The projection records the largest
norms of q, k and v; by Cauchy-Schwarz these bound every score. Where the bound is at most LIMIT (and there are at least 1024
tokens, over which rounding averages out), one fp16 product with fp16 scores, exp as a polynomial with HFMA2 and fp16 PV
have a final error of 2e-6 in a simulation at 16384 tokens (4e-6 at 1024). The bound on the scores is proven; that
rounding averages out over tokens is not. Elsewhere, decided on the device for each batch and head, an online softmax in tf32x3
computes the same from float32 projections: so the time depends on the data, about 1.7 ms where no head is fast.
None of it was measured on a GPU. Expected on an H200: 450 us (attention 350, projections 15, mean 8, output 15, the unused path 6, host 20).
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

DEGREE = 5  # tune: 5, 6
BM = 256  # tune: 128, 256
BN = 64  # tune: 64, 128
STAGES = 3  # tune: 2, 3, 4

LIMIT = tl.constexpr(1.5)
FEWEST = tl.constexpr(1024)
# Weighted minimax polynomials of exp on [-1.5, 1.5], in fp16, the highest power first.
COEFFICIENTS = {
    5: [0.007537841796875, 0.044708251953125, 0.1689453125, 0.499267578125, 0.99951171875, 1.0],
    6: [0.0012712478637695312, 0.00887298583984375, 0.042083740234375, 0.1663818359375, 0.499755859375, 1.0, 1.0],
}


def polynomial(coefficients):
    lines = ["{", ".reg .b32 p, c;"]
    for number, value in enumerate(coefficients):
        bits = int(torch.tensor(value, dtype=torch.float16, device="cpu").view(torch.int16).item()) & 0xFFFF
        lines.append(f"mov.b32 {'c' if number else 'p'}, {bits | bits << 16};")
        if number:
            lines.append("fma.rn.f16x2 p, p, $1, c;")
    return "\n".join([*lines, "mov.b32 $0, p;", "}"])


ASM = tl.constexpr(polynomial(COEFFICIENTS[DEGREE]))
POWERS = tl.constexpr(tuple(COEFFICIENTS[DEGREE]))


@triton.jit
def mean_kernel(x_ptr, mean_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        total += tl.load(x_ptr + row.to(tl.int64) * N + start + at, mask=start + at < N, other=0.0)
    tl.store(mean_ptr + row, tl.sum(total, axis=0) / N)


@triton.jit
def project_kernel(
    x_ptr, w_ptr, bias_ptr, mean_ptr, qkv_ptr, stats_ptr, BH, scale, N: tl.constexpr,
    C: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """q, k and v of BT tokens in fp16, k and v of centred tokens, and each head's largest squared norms."""
    block, b = tl.program_id(0), tl.program_id(1)
    n, c, o = block * BT + tl.arange(0, BT), tl.arange(0, C), tl.arange(0, C)
    mean = tl.load(mean_ptr + b * C + c)
    x = tl.load(x_ptr + b.to(tl.int64) * C * N + c[:, None] * N + n[None, :])
    centred = tl.trans((x - mean[:, None]).to(tl.float16))
    for part in tl.static_range(3):
        w = tl.load(w_ptr + (part * C + o)[:, None] * C + c[None, :])
        y = tl.dot(centred, tl.trans(w.to(tl.float16)))
        if part == 0:
            y = (y + (tl.sum(w * mean[None, :], axis=1) + tl.load(bias_ptr + o))[None, :]) * scale
        norms = tl.sum(tl.reshape(y * y, (BT, H, D)), axis=2)
        norms = tl.where(norms == norms, norms, float("inf"))
        row = part * BH + b * H
        tl.store(stats_ptr + (row + tl.arange(0, H)) * (N // BT) + block, tl.max(norms, axis=0))
        at = ((row + o // D)[None, :] * N + n[:, None]) * D + (o % D)[None, :]
        tl.store(qkv_ptr + at, y.to(tl.float16))


@triton.jit
def is_fast(stats_ptr, bh, BH, blocks, N: tl.constexpr, BLOCKS: tl.constexpr):
    """Whether no score can exceed LIMIT and fp16 holds q, k and v well. NaN says no."""
    i = tl.arange(0, BLOCKS)
    at, inside = stats_ptr + bh * blocks + i, i < blocks
    q = tl.max(tl.load(at, mask=inside, other=0.0), axis=0)
    k = tl.max(tl.load(at + BH * blocks, mask=inside, other=0.0), axis=0)
    v = tl.max(tl.load(at + 2 * BH * blocks, mask=inside, other=0.0), axis=0)
    small = (q * k <= LIMIT * LIMIT) & (q <= 4096.0) & (k <= 4096.0)
    return small & (v <= 67108864.0) & (v >= 5.9604645e-08) & (N >= FEWEST)


@triton.jit
def exponential(s, INTERPRET: tl.constexpr):
    if INTERPRET:
        x = s.to(tl.float32)
        p = tl.full(s.shape, POWERS.value[0], tl.float32)
        for i in range(1, len(POWERS.value)):
            p = (p * x + POWERS.value[i]).to(tl.float16).to(tl.float32)
        return p.to(tl.float16)
    else:
        return tl.inline_asm_elementwise(ASM, "=r,r", [s], dtype=tl.float16, is_pure=True, pack=2)


@triton.jit
def fast_kernel(
    qkv_ptr, stats_ptr, w_ptr, bias_ptr, mean_ptr, out_ptr, BH, blocks, N: tl.constexpr,
    C: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCKS: tl.constexpr, STAGES: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    bh = tl.program_id(1)
    if is_fast(stats_ptr, bh, BH, blocks, N, BLOCKS):
        m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
        q = tl.load(qkv_ptr + (bh * N + m)[:, None] * D + d[None, :], mask=(m < N)[:, None], other=0.0)
        k_at = qkv_ptr + ((BH + bh) * N + tl.arange(0, BN))[:, None] * D + d[None, :]
        v_at = k_at + BH * N * D
        acc = tl.zeros((BM, D), dtype=tl.float32)
        total = tl.zeros((BM, 8), dtype=tl.float32)
        ones = tl.full((BN, 8), 1.0, tl.float16)
        for _ in tl.range(0, N, BN, num_stages=STAGES):
            s = tl.dot(q, tl.trans(tl.load(k_at)), out_dtype=tl.float16)
            p = exponential(s, INTERPRET)
            acc = tl.dot(p, tl.load(v_at), acc)
            total = tl.dot(p, ones, total)
            k_at += BN * D
            v_at += BN * D
        b, h, c = bh // H, bh % H, tl.arange(0, C)
        w = tl.load(w_ptr + (2 * C + h * D + d)[:, None] * C + c[None, :])
        mean = tl.load(mean_ptr + b * C + c)
        base = tl.sum(w * mean[None, :], axis=1) + tl.load(bias_ptr + 2 * C + h * D + d)
        o = acc / tl.max(total, axis=1)[:, None] + base[None, :]
        tl.store(out_ptr + (b * N + m)[:, None] * C + (h * D + d)[None, :], o, mask=(m < N)[:, None])


@triton.jit
def exact_project_kernel(
    x_ptr, w_ptr, bias_ptr, mean_ptr, stats_ptr, out_ptr, BH, blocks, scale, N: tl.constexpr,
    C: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    BLOCKS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """float32 q, k and transposed v of one head, where the fast path does not apply."""
    bh = tl.program_id(1)
    if not is_fast(stats_ptr, bh, BH, blocks, N, BLOCKS):
        b, h, c, d = bh // H, bh % H, tl.arange(0, BK), tl.arange(0, D)
        for turn in range(0, 3 * N // BT, PROGRAMS):
            task = turn + tl.program_id(0)
            if task < 3 * N // BT:
                part, n = task % 3, (task // 3) * BT + tl.arange(0, BT)
                y = tl.zeros((BT, D), dtype=tl.float32)
                shift = tl.zeros((D,), dtype=tl.float32)
                for start in range(0, C, BK):
                    mean = tl.load(mean_ptr + b * C + start + c)
                    w = tl.load(w_ptr + (part * C + h * D + d)[:, None] * C + (start + c)[None, :])
                    x = tl.load(x_ptr + (b.to(tl.int64) * C + (start + c)[:, None]) * N + n[None, :])
                    y = tl.dot(tl.trans(x - mean[:, None]), tl.trans(w), y, input_precision="tf32x3")
                    shift += tl.sum(w * mean[None, :], axis=1)
                if part == 0:
                    y = (y + (shift + tl.load(bias_ptr + h * D + d))[None, :]) * scale
                along, across = tl.where(part == 2, 1, D), tl.where(part == 2, N, 1)
                at = (part * BH + bh) * N * D + n[:, None] * along + d[None, :] * across
                tl.store(out_ptr + at, y)


@triton.jit
def exact_kernel(
    q_ptr, stats_ptr, w_ptr, bias_ptr, mean_ptr, out_ptr, BH, blocks, N: tl.constexpr,
    C: tl.constexpr, H: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCKS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Online softmax in tf32x3, where the fast path does not apply."""
    bh = tl.program_id(1)
    if not is_fast(stats_ptr, bh, BH, blocks, N, BLOCKS):
        b, h, c, d, n = bh // H, bh % H, tl.arange(0, C), tl.arange(0, D), tl.arange(0, BN)
        w = tl.load(w_ptr + (2 * C + h * D + d)[:, None] * C + c[None, :])
        mean = tl.load(mean_ptr + b * C + c)
        base = tl.sum(w * mean[None, :], axis=1) + tl.load(bias_ptr + 2 * C + h * D + d)
        for turn in range(0, N // BM, PROGRAMS):
            tile = turn + tl.program_id(0)
            if tile < N // BM:
                m = tile * BM + tl.arange(0, BM)
                q = tl.load(q_ptr + (bh * N + m)[:, None] * D + d[None, :])
                k_at = q_ptr + ((BH + bh) * N + n)[:, None] * D + d[None, :]
                v_at = q_ptr + (2 * BH + bh) * N * D + d[:, None] * N + n[None, :]
                acc = tl.zeros((BM, D), dtype=tl.float32)
                top = tl.full((BM,), -1.0e38, dtype=tl.float32)
                total = tl.zeros((BM,), dtype=tl.float32)
                for _ in tl.range(0, N, BN, num_stages=2):
                    s = tl.dot(q, tl.trans(tl.load(k_at)), input_precision="tf32x3")
                    new = tl.maximum(top, tl.max(s, axis=1))
                    p = tl.exp2(s - new[:, None])
                    less = tl.exp2(top - new)
                    total = total * less + tl.sum(p, axis=1)
                    acc = tl.dot(p, tl.trans(tl.load(v_at)), acc * less[:, None], input_precision="tf32x3")
                    top = new
                    k_at += BN * D
                    v_at += BN
                o = acc / total[:, None] + base[None, :]
                tl.store(out_ptr + (b * N + m)[:, None] * C + (h * D + d)[None, :], o)


@triton.jit
def output_kernel(
    o_ptr, w_ptr, bias_ptr, x_ptr, gain_ptr, offset_ptr, out_ptr, eps, N: tl.constexpr,
    C: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Output projection, residual and layer norm of BT tokens, with channels in the first dimension as in x."""
    b, n, c, e = tl.program_id(1), tl.program_id(0) * BT + tl.arange(0, BT), tl.arange(0, C), tl.arange(0, BK)
    acc = tl.zeros((C, BT), dtype=tl.float32)
    for start in range(0, C, BK):
        w = tl.load(w_ptr + c[:, None] * C + (start + e)[None, :])
        o = tl.load(o_ptr + (b * N + n)[:, None] * C + (start + e)[None, :])
        acc = tl.dot(w, tl.trans(o), acc, input_precision="tf32x3")
    at = b.to(tl.int64) * C * N + c[:, None] * N + n[None, :]
    y = acc + tl.load(bias_ptr + c)[:, None] + tl.load(x_ptr + at)
    y -= (tl.sum(y, axis=0) / C)[None, :]
    scale = tl.rsqrt(tl.sum(y * y, axis=0) / C + eps)
    y = y * scale[None, :] * tl.load(gain_ptr + c)[:, None] + tl.load(offset_ptr + c)[:, None]
    tl.store(out_ptr + at, y)


class ModelNew(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads)
        self.norm = nn.LayerNorm(embed_dim)

    def plain(self, x):
        B, C, H, W = x.shape
        x = x.reshape(B, C, H * W).permute(2, 0, 1)
        y = self.norm(self.attn(x, x, x)[0] + x)
        return y.permute(1, 2, 0).reshape(B, C, H, W)

    def forward(self, x):
        B, C, N, H = x.shape[0], x.shape[1], x.shape[2] * x.shape[3], self.attn.num_heads
        if C != 128 or H != 4 or N % 128 or not B * N or B * N > 1 << 22 or x.dtype != torch.float32:
            return self.plain(x)
        x, BH, blocks, D = x.contiguous(), B * H, N // 64, 32
        attn, norm = self.attn, self.norm
        w, bias = attn.in_proj_weight, attn.in_proj_bias
        mean = torch.empty(B * C, device=x.device, dtype=torch.float32)
        stats = torch.empty(3 * BH * blocks, device=x.device, dtype=torch.float32)
        qkv = torch.empty(3 * BH * N * D, device=x.device, dtype=torch.float16)
        mean_kernel[(B * C,)](x, mean, N=N, BLOCK=4096, num_warps=8)
        project_kernel[(blocks, B)](
            x, w, bias, mean, qkv, stats, BH, D**-0.5, N=N, C=C, H=H, D=D, BT=64, num_warps=8
        )
        o = torch.empty(B * N * C, device=x.device, dtype=torch.float32)
        many = triton.next_power_of_2(blocks)
        fast_kernel[(triton.cdiv(N, BM), BH)](
            qkv, stats, w, bias, mean, o, BH, blocks, N=N, C=C, H=H, D=D, BM=BM, BN=BN, BLOCKS=many,
            STAGES=STAGES, INTERPRET=bool(triton.knobs.runtime.interpret), num_warps=8,
        )  # fmt: skip
        exact = torch.empty(3 * BH * N * D, device=x.device, dtype=torch.float32)
        programs = max(1, 264 // BH)
        exact_project_kernel[(programs, BH)](
            x, w, bias, mean, stats, exact, BH, blocks, 1.4426950408889634 * D**-0.5, N=N,
            C=C, H=H, D=D, BT=64, BK=32, BLOCKS=many, PROGRAMS=programs, num_warps=4, num_stages=2,
        )  # fmt: skip
        exact_kernel[(programs, BH)](
            exact, stats, w, bias, mean, o, BH, blocks, N=N, C=C, H=H, D=D, BM=128, BN=64,
            BLOCKS=many, PROGRAMS=programs, num_warps=8,
        )  # fmt: skip
        out = torch.empty_like(x)
        output_kernel[(N // 64, B)](
            o, attn.out_proj.weight, attn.out_proj.bias, x, norm.weight, norm.bias, out, norm.eps, N=N,
            C=C, BT=64, BK=32, num_warps=8, num_stages=2,
        )  # fmt: skip
        return out
