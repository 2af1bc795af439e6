"""Split keys; a software pipeline of asynchronous copies. Pages, keys, values and scales (as words of two heads) go through
shared memory stages ahead of their use, so few programs keep the memory busy. The query is split into two int8 parts for int8
tensor cores; values become bfloat16 in registers, with their scales folded into the weights. A second kernel merges.

Two launches per call. Expected on an H200: 80 µs in both cases (bound 65).
"""

import os

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 64  # tune: 64, 128
SPLIT = 512  # tune: 512, 1024, 2048
SPLIT_MANY = 512  # tune: 256, 512, 1024
STAGES = 4  # tune: 2, 4, 5
WARPS = BLOCK // 32  # other shapes of a program copy pages several times

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # it has no assembly, and no products of bfloat16
ASSEMBLY = not INTERPRETED


@triton.jit
def dequantized(v, ASSEMBLY: tl.constexpr):
    """int8 as bfloat16, exactly: 128 + the low 7 bits, minus 128, or 256 where the sign is set.

    Not declared pure: else Triton moves it behind the change of layout, and that reads single bytes of shared memory.
    """
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, c, d;
            prmt.b32 a, $2, 0x43434343, 0x4140;
            prmt.b32 b, $2, 0x43434343, 0x4342;
            and.b32 c, a, 0xff80ff80;
            and.b32 d, b, 0xff80ff80;
            and.b32 a, a, 0xff7fff7f;
            and.b32 b, b, 0xff7fff7f;
            sub.rn.bf16x2 $0, a, c;
            sub.rn.bf16x2 $1, b, d;
            }""",
            "=r,=r,r", [v], tl.bfloat16, False, 4,
        )  # fmt: skip
    else:
        return v.to(tl.float32).to(tl.bfloat16)


@triton.jit
def nearest(x):
    return tl.floor(x + 0.5)


@triton.jit
def half(word, head):
    """The scale of an even head is in the low half of a word."""
    return ((word >> (head % 2 * 16)) << 16).to(tl.float32, bitcast=True)


@triton.jit
def part_kernel(
    query_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, table_ptr, length_ptr, part_ptr, out_ptr,
    pages, rows, splits, scale,
    KV: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr, WHOLE: tl.constexpr, ASSEMBLY: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    head, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.minimum(tl.load(length_ptr + batch).to(tl.int32), pages * PAGE)
    begin = split * SPLIT
    if (begin < length) | WHOLE:
        end = tl.minimum(begin + SPLIT, length)
        table_ptr += batch.to(tl.int64) * pages
        lane = tl.arange(0, BLOCK)
        d = tl.arange(0, DP)

        g = tl.arange(0, 16)
        row = batch * KV * GROUP + head * GROUP + g
        known = (g < GROUP)[:, None] & (d < D)[None, :]
        q = tl.load(query_ptr + row[:, None] * D + d[None, :], mask=known, other=0.0).to(tl.float32)
        top = tl.maximum(tl.max(tl.abs(q), axis=1), 1e-30)
        q = q * (127.0 / top)[:, None]
        coarse = nearest(q)
        fine = nearest((q - coarse) * 254.0).to(tl.int8)
        coarse = coarse.to(tl.int8)
        unit = top * (scale * 1.4426950408889634 / 127.0)

        largest = tl.full((16,), -1.0e30, dtype=tl.float32)
        total = tl.zeros((16,), dtype=tl.float32)
        acc = tl.zeros((16, DP), dtype=tl.float32)
        # The interpreter takes no tensor as a bound.
        for i in tl.range(0, SPLIT // BLOCK if INTERPRETED else tl.cdiv(end - begin, BLOCK), num_stages=STAGES):
            t = begin + i * BLOCK + lane
            inside = t < end
            page = tl.load(table_ptr + t // PAGE, mask=inside, other=0)
            at = (page * PAGE + t % PAGE) * KV + head
            mask = inside[None, :] & (d < D)[:, None]
            k = tl.load(k_ptr + at[None, :] * D + d[:, None], mask=mask, other=0)
            k_scale = tl.load(k_scale_ptr.to(tl.pointer_type(tl.int32)) + at // 2, mask=inside, other=0)
            mask = inside[:, None] & (d < D)[None, :]
            v = tl.load(v_ptr + at[:, None] * D + d[None, :], mask=mask, other=0)
            v_scale = tl.load(v_scale_ptr.to(tl.pointer_type(tl.int32)) + at // 2, mask=inside, other=0)
            s = tl.dot(coarse, k, out_dtype=tl.int32).to(tl.float32)
            s += tl.dot(fine, k, out_dtype=tl.int32).to(tl.float32) * (1.0 / 254.0)
            s = s * unit[:, None] * half(k_scale, head)[None, :]
            s = tl.where(inside[None, :], s, -1.0e30)
            new = tl.maximum(largest, tl.max(s, axis=1))
            old = tl.exp2(largest - new)
            largest = new
            p = tl.exp2(s - new[:, None])
            total = total * old + tl.sum(p, axis=1)
            p = (p * half(v_scale, head)[None, :]).to(tl.bfloat16)
            wide = dequantized(v, ASSEMBLY)
            if INTERPRETED:
                acc = tl.dot(p.to(tl.float32), wide.to(tl.float32), acc * old[:, None])
            else:
                acc = tl.dot(p, wide, acc * old[:, None])

        if WHOLE:
            tl.store(out_ptr + row[:, None] * D + d[None, :], acc / total[:, None], mask=known)
        else:
            at = row * splits + split
            tl.store(part_ptr + at.to(tl.int64)[:, None] * D + d[None, :], acc, mask=known)
            part_ptr += rows.to(tl.int64) * splits * D
            tl.store(part_ptr + at * 2, largest, mask=g < GROUP)
            tl.store(part_ptr + at * 2 + 1, total, mask=g < GROUP)


@triton.jit
def merge_kernel(
    part_ptr, length_ptr, out_ptr, rows, splits, most,
    HEADS: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, SPLIT: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    length = tl.minimum(tl.load(length_ptr + row // HEADS).to(tl.int32), most)
    s, d = tl.arange(0, S), tl.arange(0, DP)
    used = s * SPLIT < length
    at = row.to(tl.int64) * splits + s
    ends = part_ptr + rows.to(tl.int64) * splits * D
    mask = used[:, None] & (d < D)[None, :]
    acc = tl.load(part_ptr + at[:, None] * D + d[None, :], mask=mask, other=0.0)
    largest = tl.load(ends + at * 2, mask=used, other=-1.0e30)
    total = tl.load(ends + at * 2 + 1, mask=used, other=0.0)
    weight = tl.where(used, tl.exp2(largest - tl.max(largest, axis=0)), 0.0)
    value = tl.sum(acc * weight[:, None], axis=0) / tl.sum(total * weight, axis=0)
    tl.store(out_ptr + row * D + d, value, mask=d < D)


class ModelNew(nn.Module):
    def __init__(self, kv_heads: int) -> None:
        super().__init__()
        self.kv_heads = kv_heads

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_scales: torch.Tensor,
        value_scales: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        batch, heads, width = query.shape
        kv = self.kv_heads
        page, pages = keys.shape[1], table.shape[1]
        if (
            query.dtype != torch.bfloat16 or keys.dtype != torch.int8 or values.dtype != torch.int8
            or heads % kv or kv % 2 or key_scales.dtype != query.dtype or value_scales.dtype != query.dtype
            or heads > 16 * kv or width > 256 or batch > 65535 or batch * pages == 0 or batch * heads < 2
            or not (
                query.is_contiguous() and keys.is_contiguous() and values.is_contiguous() and table.is_contiguous()
                and key_scales.is_contiguous() and value_scales.is_contiguous() and lengths.is_contiguous()
            )
        ):  # fmt: skip
            return self.plain(query, keys, values, key_scales, value_scales, table, lengths)
        # With many sequences, a program for each key head fills the device already.
        split = SPLIT_MANY if batch * kv >= 512 else SPLIT
        splits = -(-pages * page // split)
        out = torch.empty_like(query)
        rows = batch * heads
        part = out if splits == 1 else torch.empty(rows * splits * (width + 2), device=query.device, dtype=torch.float32)
        padded = max(32, 1 << (width - 1).bit_length())
        part_kernel[(kv, splits, batch)](
            query, keys, values, key_scales, value_scales, table, lengths, part, out, pages, rows, splits, width**-0.5,
            KV=kv, GROUP=heads // kv, D=width, DP=padded, PAGE=page, BLOCK=BLOCK, SPLIT=split, STAGES=STAGES, WHOLE=splits == 1,
            ASSEMBLY=ASSEMBLY, INTERPRETED=INTERPRETED, num_warps=WARPS,
        )  # fmt: skip
        if splits > 1:
            merge_kernel[(rows,)](
                part, lengths, out, rows, splits, pages * page,
                HEADS=heads, D=width, DP=padded, SPLIT=split, S=1 << (splits - 1).bit_length(),
                num_warps=1 if splits <= 8 else 4,
            )  # fmt: skip
        return out

    def plain(self, query, keys, values, key_scales, value_scales, table, lengths):
        k, v = (
            (cache[table].to(query.dtype) * scales[table][..., None]).flatten(1, 2)
            for cache, scales in ((keys, key_scales), (values, value_scales))
        )
        q = query.unflatten(1, (self.kv_heads, -1))
        scores = torch.einsum("bkgd,btkd->bkgt", q, k) / query.shape[-1] ** 0.5
        unseen = torch.arange(k.shape[1], device=query.device) >= lengths[:, None]
        scores = scores.masked_fill(unseen[:, None, None], float("-inf"))
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = torch.softmax(scores, dim=-1, dtype=wide).to(query.dtype)
        return torch.einsum("bkgt,btkd->bkgd", weights, v).reshape(query.shape)
