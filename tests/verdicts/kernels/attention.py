"""Causal attention in float32."""

import torch
import torch.nn as nn

BATCH = 2
HEADS = 3
TOKENS = 96
WIDTH = 32


class Model(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.masked_fill(~causal(q.shape[-2]), -torch.inf).softmax(-1) @ v


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []


def causal(tokens, offset=0):
    return torch.ones(tokens, tokens, dtype=torch.bool).tril(offset)


def flash(q, k, v, keys=40, rescale=True, offset=0):
    """Blocks of keys with a running maximum."""
    q = q / q.shape[-1] ** 0.5
    tokens = q.shape[-2]
    mask = causal(tokens, offset)
    top = torch.full((*q.shape[:-1], 1), -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros_like(q)
    for begin in range(0, tokens, keys):
        at = slice(begin, begin + keys)
        s = (q @ k[..., at, :].transpose(-1, -2)).masked_fill(~mask[:, at], -torch.inf)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        safe = new.masked_fill(new == -torch.inf, 0.0)
        p, old = (s - safe).exp(), (top - safe).exp() if rescale else 1.0
        total, out = total * old + p.sum(-1, keepdim=True), out * old + p @ v[..., at, :]
        top = new
    return out / total


class Flash(Model):
    """Honest: flash attention: running maximum over blocks of 40 keys."""

    def forward(self, q, k, v):
        return flash(q, k, v)


class QueriesInBlocks(Model):
    """Honest: blocks of 64 queries, each with the keys up to its end."""

    def forward(self, q, k, v):
        out = torch.empty_like(q)
        for begin in range(0, q.shape[-2], 64):
            end = min(begin + 64, q.shape[-2])
            s = q[..., begin:end, :] @ k[..., :end, :].transpose(-1, -2) / q.shape[-1] ** 0.5
            s = s.masked_fill(~causal(q.shape[-2])[begin:end, :end], -torch.inf)
            out[..., begin:end, :] = s.softmax(-1) @ v[..., :end, :]
        return out


class LibraryCall(Model):
    """Honest: PyTorch's own fused attention."""

    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class SplitKeys(Model):
    """Honest: two halves of the keys with their own maxima, joined at the end (flash decoding)."""

    def forward(self, q, k, v):
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        s = s.masked_fill(~causal(q.shape[-2]), -torch.inf)
        half = q.shape[-2] // 2
        parts = [(s[..., :half], v[..., :half, :]), (s[..., half:], v[..., half:, :])]
        tops = [p.amax(-1, keepdim=True).clamp(min=-1e30) for p, _ in parts]
        top = torch.maximum(*tops)
        sums = [(p - t).exp() for (p, _), t in zip(parts, tops)]
        outs = [(e @ w) * (t - top).exp() for e, (_, w), t in zip(sums, parts, tops)]
        totals = [e.sum(-1, keepdim=True) * (t - top).exp() for e, t in zip(sums, tops)]
        return sum(outs) / sum(totals)


class NoScale(Model):
    """Wrong: the factor 1 / sqrt(d) is missing.

    Names: only the first row is right & scale
    """

    def forward(self, q, k, v):
        s = (q @ k.transpose(-1, -2)).masked_fill(~causal(q.shape[-2]), -torch.inf)
        return s.softmax(-1) @ v


class SeesTheNext(Model):
    """Wrong: the causal mask is off by one: each query sees the next key.

    Names: only the last row is right & mask
    """

    def forward(self, q, k, v):
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return s.masked_fill(~causal(q.shape[-2], 1), -torch.inf).softmax(-1) @ v


class NoMask(Model):
    """Wrong: the causal mask is missing.

    Names: only the last row is right & mask
    """

    def forward(self, q, k, v):
        return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


class NotItself(Model):
    """Wrong: the causal mask excludes the token itself; the first row has no key.

    Names: NaN
    """

    def forward(self, q, k, v):
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return s.masked_fill(~causal(q.shape[-2], -1), -torch.inf).softmax(-1) @ v


class NotRescaled(Model):
    """Wrong: flash attention that does not rescale when the maximum grows.

    Names: the last
    """

    def forward(self, q, k, v):
        return flash(q, k, v, rescale=False)


class LastKeysDropped(Model):
    """Wrong: keys after the last full block of 64 are left out.

    Names: rows 64 to 95, the last 32
    """

    def forward(self, q, k, v):
        full = k.shape[-2] // 64 * 64
        s = q @ k[..., :full, :].transpose(-1, -2) / q.shape[-1] ** 0.5
        return (
            s.masked_fill(~causal(q.shape[-2])[:, :full], -torch.inf).softmax(-1) @ v[..., :full, :]
        )


class OnlyFirstHead(Model):
    """Wrong: every head uses the keys of the first one.

    Names: axis-1 slices 1 to 2
    """

    def forward(self, q, k, v):
        return super().forward(q, k[:, :1], v)


class HeadsSwapped(Model):
    """Wrong: the output is laid out with tokens before heads, without a transposition back.

    Names: another order | transposed
    """

    def forward(self, q, k, v):
        out = super().forward(q, k, v)
        return out.transpose(1, 2).reshape(out.shape)
