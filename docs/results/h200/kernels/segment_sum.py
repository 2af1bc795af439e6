"""Edge-balanced walkers. Each warp takes CHUNK consecutive edges, split over lane groups ("walkers") that each hold all of their
edges of a tile in registers, so that the segmented sum is a scan inside a thread: no shuffles, no atomics, no imbalance, whatever
the degrees are. Features are cut into slices, slice by slice over the whole graph, so that a slice of x (22 MB at 32 features)
stays in L2 while it is gathered about seven times. A chunk's leading partial sum goes to a scratch row, and a small second kernel
adds these. Small graphs: one launch after a memset that is hidden behind the launch's host time; rows of edges that cross walkers
are added atomically.

Expected on an H100: citations 250 to 300 us (1.19 GB of gathers through L2; about 400 us if every gather missed L2), molecules
about 25 us (nearly all host time; 8 us on the GPU).
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

SLICE = 32  # tune: 32, 64, 256
TILES = 4  # tune: 4, 2, 8
SMALL_SLICE = 256  # tune: 256, 128
SMALL_EDGES = 8  # tune: 8, 4


@triton.jit
def combine(a_start, a_value, b_start, b_value):
    return a_start | b_start, tl.where(b_start != 0, b_value, a_value + b_value)


@triton.jit
def walk_kernel(
    x_ptr, source_ptr, target_ptr, weight_ptr, out_ptr, heads_ptr, nodes, edges, features, chunks,
    F: tl.constexpr, N: tl.constexpr, L: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0) % chunks
    column = (tl.program_id(0) // chunks) * F + tl.arange(0, F)
    wide = column < features
    l = tl.arange(0, L)
    n = tl.arange(0, N)
    chunk_begin = chunk * (N * L * T)
    walker = chunk_begin + n * (L * T)  # each walker's first edge
    before = tl.load(target_ptr + walker - 1, mask=(walker > 0) & (walker <= edges), other=-1).to(tl.int32)
    chunk_before = tl.load(
        target_ptr + chunk_begin - 1, mask=(chunk_begin > 0) & (chunk_begin <= edges), other=-1
    ).to(tl.int32)

    carry = tl.zeros((N, F), dtype=tl.float32)
    head = tl.zeros((N, F), dtype=tl.float32)
    e = walker[:, None] + l[None, :]
    s = tl.load(source_ptr + e, mask=e < edges, other=0).to(tl.int32)
    w = tl.load(weight_ptr + e, mask=e < edges, other=0.0)
    t = tl.load(target_ptr + e, mask=e < edges, other=nodes).to(tl.int32)
    p = tl.load(target_ptr + e - 1, mask=(e > 0) & (e <= edges), other=-1).to(tl.int32)
    q = tl.load(target_ptr + e + 1, mask=e + 1 < edges, other=nodes).to(tl.int32)
    for j in range(T):
        inside = e < edges
        rows = tl.load(
            x_ptr + ((s * features)[:, :, None] + column[None, None, :]),
            mask=inside[:, :, None] & wide[None, None, :], other=0.0,
        )  # fmt: skip
        this_e, this_w, this_t, this_p, this_q = e, w, t, p, q
        e += L
        more = (e < edges) & (j + 1 < T)
        s = tl.load(source_ptr + e, mask=more, other=0).to(tl.int32)
        w = tl.load(weight_ptr + e, mask=more, other=0.0)
        t = tl.load(target_ptr + e, mask=more, other=nodes).to(tl.int32)
        p = tl.load(target_ptr + e - 1, mask=(e <= edges) & (j + 1 < T), other=-1).to(tl.int32)
        q = tl.load(target_ptr + e + 1, mask=(e + 1 < edges) & (j + 1 < T), other=nodes).to(tl.int32)

        starts = (this_t != this_p) & (this_e <= edges)
        # nodes without edges, in front of this edge's target
        gap = tl.where(starts, this_t - this_p - 1, 0)
        most = tl.max(tl.max(gap, axis=0), axis=0)
        k = 0
        while k < most:
            tl.store(
                out_ptr + (((this_p + 1 + k) * features)[:, :, None] + column[None, None, :]),
                tl.zeros((N, L, F), dtype=tl.float32),
                mask=(k < gap)[:, :, None] & wide[None, None, :], eviction_policy="evict_first",
            )
            k += 1

        value = rows * this_w[:, :, None]
        first = (l == 0)[None, :] & (this_t == this_p)
        value += tl.where(first[:, :, None], carry[:, None, :], 0.0)
        flag = tl.broadcast_to(starts.to(tl.int32)[:, :, None], (N, L, F))
        _, total = tl.associative_scan((flag, value), 1, combine)
        carry = tl.sum(tl.where((l == L - 1)[None, :, None], total, 0.0), axis=1)
        ends = inside & (this_t != this_q) & (this_e < edges)
        ends = ends & (this_e - walker[:, None] < L * T - 1)  # the walker's last segment is written below
        opened = this_t == before[:, None]  # began before this walker
        tl.store(
            out_ptr + ((this_t * features)[:, :, None] + column[None, None, :]),
            total,
            mask=(ends & ~opened)[:, :, None] & wide[None, None, :], eviction_policy="evict_first",
        )
        head += tl.sum(tl.where((ends & opened)[:, :, None], total, 0.0), axis=1)

    # the walkers' last segments, with what the next walkers of this chunk add to them
    final = tl.minimum(walker + L * T, edges) - 1
    alive = walker < edges
    last = tl.load(target_ptr + final, mask=alive, other=nodes).to(tl.int32)
    # a walker that the edges' end cuts short has written its last segment already
    uncut = walker + L * T <= edges
    whole = alive & (last == before)
    head += tl.where((whole & uncut)[:, None], carry, 0.0)
    opens = tl.load(target_ptr + walker, mask=alive, other=nodes).to(tl.int32)
    continues = alive & (opens == before)
    before_row = tl.where(continues, before, -2)
    # member[m, n]: walker n continues walker m's last segment
    member = (last[:, None] == before_row[None, :]) & (n[:, None] < n[None, :])
    added = tl.sum(tl.where(member[:, :, None], head[None, :, :], 0.0), axis=1)
    tl.store(
        out_ptr + ((last * features)[:, None] + column[None, :]),
        carry + added,
        mask=(alive & uncut & ~whole)[:, None] & wide[None, :],
    )
    leading = continues & (before == chunk_before)
    tl.store(
        heads_ptr + chunk.to(tl.int64) * features + column,
        tl.sum(tl.where(leading[:, None], head, 0.0), axis=0),
        mask=wide,
    )


@triton.jit
def heads_kernel(
    target_ptr, heads_ptr, out_ptr, edges, features, chunks, SPAN: tl.constexpr, H: tl.constexpr, F: tl.constexpr
):
    chunk = tl.program_id(0) + 1
    begin = chunk * SPAN
    t = tl.load(target_ptr + begin)
    previous = tl.load(target_ptr + begin - 1)
    earlier = tl.load(target_ptr + begin - SPAN - 1, mask=chunk > 1, other=-1)
    if (t == previous) & (t != earlier):
        column = tl.program_id(1) * F + tl.arange(0, F)
        wide = column < features
        h = chunk + tl.arange(0, H)
        acc = tl.zeros((H, F), dtype=tl.float32)
        going = 1
        while going != 0:
            same = tl.load(target_ptr + h * SPAN, mask=h < chunks, other=-1) == t
            acc += tl.load(
                heads_ptr + h[:, None].to(tl.int64) * features + column[None, :],
                mask=same[:, None] & wide[None, :], other=0.0,
            )  # fmt: skip
            going = tl.min(same.to(tl.int32), axis=0)
            h += H
        at = out_ptr + t * features + column
        old = tl.load(at, mask=wide, other=0.0)
        tl.store(at, old + tl.sum(acc, axis=0), mask=wide)


@triton.jit
def small_kernel(
    x_ptr, source_ptr, target_ptr, weight_ptr, out_ptr, edges, features,
    F: tl.constexpr, N: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * F + tl.arange(0, F)
    wide = column < features
    l = tl.arange(0, L)
    walker = tl.program_id(0) * (N * L) + tl.arange(0, N) * L
    e = walker[:, None] + l[None, :]
    inside = e < edges
    s = tl.load(source_ptr + e, mask=inside, other=0).to(tl.int32)
    w = tl.load(weight_ptr + e, mask=inside, other=0.0)
    t = tl.load(target_ptr + e, mask=inside, other=-2).to(tl.int32)
    p = tl.load(target_ptr + e - 1, mask=inside & (e > 0), other=-1).to(tl.int32)
    q = tl.load(target_ptr + e + 1, mask=e + 1 < edges, other=-1).to(tl.int32)
    before = tl.load(target_ptr + walker - 1, mask=(walker > 0) & (walker < edges), other=-1).to(tl.int32)
    rows = tl.load(
        x_ptr + ((s * features)[:, :, None] + column[None, None, :]),
        mask=inside[:, :, None] & wide[None, None, :], other=0.0,
    )  # fmt: skip
    flag = tl.broadcast_to((t != p).to(tl.int32)[:, :, None], (N, L, F))
    _, total = tl.associative_scan((flag, rows * w[:, :, None]), 1, combine)
    ends = inside & (t != q)
    closed = ends & (t != before[:, None])
    shared = inside & ((ends & (t == before[:, None])) | ((l == L - 1)[None, :] & (t == q)))
    at = out_ptr + ((t * features)[:, :, None] + column[None, None, :])
    tl.store(at, total, mask=closed[:, :, None] & wide[None, None, :])
    tl.atomic_add(at, total, mask=shared[:, :, None] & wide[None, None, :], sem="relaxed")


class ModelNew(nn.Module):
    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        nodes, features = x.shape
        edges = source.shape[0]
        if edges == 0 or features == 0 or x.dtype != torch.float32 or edges >= 2**30 or x.numel() >= 2**31:
            return torch.zeros_like(x).index_add_(0, target, x[source] * weight[:, None])
        x, source, target, weight = x.contiguous(), source.contiguous(), target.contiguous(), weight.contiguous()
        if edges * features <= 2**24:
            out = torch.zeros_like(x)
            F = min(SMALL_SLICE, max(4, triton.next_power_of_2(features)))
            N = max(1, 128 // F)
            grid = (triton.cdiv(edges, N * SMALL_EDGES), triton.cdiv(features, F))
            small_kernel[grid](
                x, source, target, weight, out, edges, features, F=F, N=N, L=SMALL_EDGES,
                num_warps=max(1, F // 128),
            )  # fmt: skip
            return out
        out = torch.empty_like(x)
        F = min(SLICE, max(4, triton.next_power_of_2(features)))
        N = 4  # walkers in a chunk
        warps = 1 if F <= 64 else F // 32
        span = N * 8 * TILES
        chunks = edges // span + 1  # one edge more than there are: it fills the nodes behind the last target
        heads = torch.empty(chunks, features, device=x.device, dtype=torch.float32)
        walk_kernel[(chunks * triton.cdiv(features, F),)](
            x, source, target, weight, out, heads, nodes, edges, features, chunks,
            F=F, N=N, L=8, T=TILES, num_warps=warps,
        )  # fmt: skip
        full = triton.cdiv(edges, span)
        if full > 1:
            width = min(256, triton.next_power_of_2(features))
            heads_kernel[(full - 1, triton.cdiv(features, width))](
                target, heads, out, edges, features, full, SPAN=span, H=16, F=width, num_warps=4
            )
        return out
