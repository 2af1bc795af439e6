"""Two launches. Kernel 1 (two programs per SM, each a segment of a row) marks the tokens of its segment in a bitmap,
counts them by atomics in the part of `out` that belongs to it, puts their penalized logits there, and reduces the segment
(unmarked words from a stream of 16-byte loads, marked ones from the token list) to a maximum and a sum. Kernel 2 reads the
logits again (from L2), replaces the marked ones, and writes the probabilities once; it starts by programmatic dependent launch.

Expected on an H100, from the call to the results: llama 55 µs, qwen 42 µs, gemma 34 µs (30, 18 and 8 µs are the memory bound
alone; two Python launches take about 20 µs, of which only the first delays the larger cases).
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

LEAST = 0.01
SUB = 8192  # tune: 8192, 4096
PROGRAMS = 264  # tune: 264, 528
WRITE = 4096  # tune: 4096, 2048, 8192
PDL = 1  # tune: 1, 0


@triton.jit
def reduce_kernel(
    logits_ptr, tokens_ptr, repetition_ptr, frequency_ptr, presence_ptr, temperature_ptr, out_ptr, scratch_ptr,
    V: tl.constexpr, L: tl.constexpr, SEGS: tl.constexpr, SEG: tl.constexpr, ROWS: tl.constexpr,
    SUB: tl.constexpr, TB: tl.constexpr, WB: tl.constexpr, PDL: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    row = pid // SEGS
    begin = (pid % SEGS) * SEG
    end = min(begin + SEG, V)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    x_row = logits_ptr + row.to(tl.int64) * V
    out_row = out_ptr + row.to(tl.int64) * V
    bits_row = scratch_ptr + 2 * ROWS * SEGS + row * (V // 32)

    # the first block of logits is on its way while the tokens are counted
    group = tl.arange(0, SUB // 8)
    column = tl.arange(0, 8)
    place = group[:, None] * 8 + column[None, :]
    raw = tl.load(x_row + begin + place, mask=(begin + group * 8 < end)[:, None], other=-float("inf"))

    repetition = tl.maximum(tl.load(repetition_ptr + row), LEAST)
    scale = 1.4426950408889634 / tl.maximum(tl.load(temperature_ptr + row), LEAST)
    frequency = tl.load(frequency_ptr + row)
    presence = tl.load(presence_ptr + row)
    tokens_row = tokens_ptr + row.to(tl.int64) * L
    word = tl.arange(0, WB)
    tl.store(bits_row + begin // 32 + word, tl.zeros((WB,), tl.int32), mask=begin + word * 32 < end)
    for c in range(0, L, TB):
        t = c + tl.arange(0, TB)
        token = tl.load(tokens_row + t, mask=t < L, other=-1).to(tl.int32)
        tl.store(out_row + token, tl.zeros((TB,), tl.float32), mask=(token >= begin) & (token < end))
    tl.debug_barrier()
    for c in range(0, L, TB):
        t = c + tl.arange(0, TB)
        token = tl.load(tokens_row + t, mask=t < L, other=-1).to(tl.int32)
        tl.atomic_add(out_row + token, 1.0, mask=(token >= begin) & (token < end), sem="relaxed")
    tl.debug_barrier()
    # of equal tokens, the one that sets the bit is responsible: it alone uses the count and writes
    peak = tl.full((TB,), -1.0e30, tl.float32)
    sparse = tl.zeros((TB,), tl.float32)
    for c in range(0, L, TB):
        t = c + tl.arange(0, TB)
        token = tl.load(tokens_row + t, mask=t < L, other=-1).to(tl.int32)
        inside = (token >= begin) & (token < end)
        count = tl.load(out_row + token, mask=inside, other=0.0, cache_modifier=".cg")
        seen = tl.load(x_row + token, mask=inside, other=0.0).to(tl.float32)
        bit = tl.full((TB,), 1, tl.int32) << (token & 31)
        old = tl.atomic_or(bits_row + (token >> 5), bit, mask=inside, sem="relaxed")
        first = inside & ((old & bit) == 0)
        value = tl.where(seen > 0.0, seen / repetition, seen * repetition) - presence - frequency * count
        tl.store(out_row + token, value, mask=first)
        value = tl.where(first, value, -float("inf"))
        new = tl.maximum(peak, value)
        sparse = sparse * tl.exp2((peak - new) * scale) + tl.exp2((value - new) * scale)
        peak = new
    tl.debug_barrier()
    raw2 = tl.load(x_row + begin + SUB + place, mask=(begin + SUB + group * 8 < end)[:, None], other=-float("inf"))

    largest = tl.full((SUB // 8,), -1.0e30, tl.float32)
    total = tl.zeros((SUB // 8,), tl.float32)
    for step in tl.static_range(0, SEG, SUB):
        start = begin + step
        # a word for four groups, so that the layout is that of the logits
        mark = tl.load(bits_row + (start // 32 + group // 4), mask=start + group * 8 < end, other=0, cache_modifier=".cg")
        mark = mark >> ((group & 3) * 8)
        value = raw.to(tl.float32)
        raw = raw2
        if step + 2 * SUB < SEG:
            after = start + 2 * SUB
            raw2 = tl.load(x_row + after + place, mask=(after + group * 8 < end)[:, None], other=-float("inf"))
        marked = ((mark[:, None] >> column[None, :]) & 1) != 0
        value = tl.where(marked, -float("inf"), value)
        new = tl.maximum(largest, tl.max(value, axis=1))
        power = tl.exp2((value - new[:, None]) * scale)  # exact where values are large and near
        total = total * tl.exp2((largest - new) * scale) + tl.sum(power, axis=1)
        largest = new
    top = tl.maximum(tl.max(largest, axis=0), tl.max(peak, axis=0))
    total = tl.sum(total * tl.exp2((largest - top) * scale), axis=0)
    total += tl.sum(sparse * tl.exp2((peak - top) * scale), axis=0)
    parts_ptr = scratch_ptr.to(tl.pointer_type(tl.float32))
    tl.store(parts_ptr + pid, top)
    tl.store(parts_ptr + ROWS * SEGS + pid, total)


@triton.jit
def write_kernel(
    logits_ptr, temperature_ptr, out_ptr, scratch_ptr,
    V: tl.constexpr, SEGS: tl.constexpr, SEGS_UP: tl.constexpr, ROWS: tl.constexpr,
    WRITE: tl.constexpr, PDL: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    PIECES: tl.constexpr = (V + WRITE - 1) // WRITE
    pid = ROWS * PIECES - 1 - tl.program_id(0)  # last rows first: they are in L2
    row = pid // PIECES
    begin = (pid % PIECES) * WRITE
    group = tl.arange(0, WRITE // 4)
    column = tl.arange(0, 4)
    place = row.to(tl.int64) * V + begin + (group[:, None] * 4 + column[None, :])
    inside = begin + group * 4 < V
    scale = 1.4426950408889634 / tl.maximum(tl.load(temperature_ptr + row), LEAST)
    raw = tl.load(logits_ptr + place, mask=inside[:, None], other=0.0, eviction_policy="evict_first")
    if PDL:
        tl.extra.cuda.gdc_wait()
    bytes_row = (scratch_ptr + 2 * ROWS * SEGS + row * (V // 32)).to(tl.pointer_type(tl.uint8))
    mark = tl.load(bytes_row + (begin // 8 + group // 2), mask=inside, other=0, cache_modifier=".cg").to(tl.int32) >> ((group & 1) * 4)
    marked = ((mark[:, None] >> column[None, :]) & 1) != 0
    penalized = tl.load(out_ptr + place, mask=marked, other=0.0, cache_modifier=".cg")
    parts_ptr = scratch_ptr.to(tl.pointer_type(tl.float32))
    segment = tl.arange(0, SEGS_UP)
    tops = tl.load(parts_ptr + row * SEGS + segment, mask=segment < SEGS, other=-1.0e30, cache_modifier=".cg")
    totals = tl.load(parts_ptr + (ROWS + row) * SEGS + segment, mask=segment < SEGS, other=0.0, cache_modifier=".cg")
    top = tl.max(tops, axis=0)
    share = tl.log2(tl.sum(totals * tl.exp2((tops - top) * scale), axis=0))
    value = tl.where(marked, penalized, raw.to(tl.float32))
    tl.store(out_ptr + place, tl.exp2((value - top) * scale - share), mask=inside[:, None])


def plain(logits, tokens, repetition, frequency, presence, temperature):
    counts = torch.zeros_like(logits, dtype=repetition.dtype)
    counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=counts.dtype))
    repetition, temperature = repetition.clamp(min=LEAST), temperature.clamp(min=LEAST)
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(counts > 0, repeated - presence, logits) - frequency * counts
    return torch.softmax(logits / temperature, dim=-1)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plans = {}  # of shapes alone

    def plan(self, logits, tokens):
        rows, V = logits.shape
        L = tokens.shape[1]
        segs = max(1, min(PROGRAMS // rows, 64, triton.cdiv(V, 2048)))
        seg = triton.cdiv(triton.cdiv(V, segs), 32) * 32
        segs = triton.cdiv(V, seg)
        pdl = PDL if logits.device.type != "cpu" else 0
        sub = min(SUB, max(256, triton.next_power_of_2(seg)))
        first = (V, L, segs, seg, rows, sub, min(2048, triton.next_power_of_2(L)), triton.next_power_of_2(seg // 32), pdl, LEAST)
        second = (V, segs, max(4, triton.next_power_of_2(segs)), rows, WRITE, pdl, LEAST)
        words = 2 * rows * segs + rows * (V // 32)
        options = {"num_warps": 8, "launch_pdl": True} if pdl else {"num_warps": 8}
        return (rows * segs,), (rows * triton.cdiv(V, WRITE),), words, first, second, options

    def forward(
        self,
        logits: torch.Tensor,
        tokens: torch.Tensor,
        repetition: torch.Tensor,
        frequency: torch.Tensor,
        presence: torch.Tensor,
        temperature: torch.Tensor,
    ) -> torch.Tensor:
        form = (logits.shape, tokens.shape, logits.device)
        plan = self.plans.get(form)
        if plan is None:
            fits = logits.dim() == 2 and tokens.dim() == 2 and logits.dtype == torch.bfloat16
            fits = fits and logits.shape[1] % 32 == 0 and 0 < tokens.shape[1] < 2**24 and 0 < logits.numel() < 2**31
            fits = fits and all(p.shape == (logits.shape[0], 1) and p.dtype == torch.float32
                                for p in (repetition, frequency, presence, temperature))  # fmt: skip
            self.plans[form] = plan = self.plan(logits, tokens) if fits else ()
        if not plan or not (logits.is_contiguous() and tokens.is_contiguous() and repetition.is_contiguous()
                            and frequency.is_contiguous() and presence.is_contiguous()
                            and temperature.is_contiguous()):  # fmt: skip
            return plain(logits, tokens, repetition, frequency, presence, temperature)
        grid, grid2, words, first, second, options = plan
        out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
        scratch = torch.empty(words, dtype=torch.int32, device=logits.device)
        reduce_kernel[grid](logits, tokens, repetition, frequency, presence, temperature, out, scratch, *first, num_warps=16, maxnreg=64)
        write_kernel[grid2](logits, temperature, out, scratch, *second, **options)
        return out
