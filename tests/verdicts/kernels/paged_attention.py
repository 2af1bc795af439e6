"""Attention of one token over a cache in pages, in bfloat16."""

import torch
import torch.nn as nn

BATCH = 72
PAGES = 40
PAGE = 16
WIDTH = 64


class Model(nn.Module):
    def forward(self, q, keys, values, table, lengths):
        k, v = (c[table].flatten(1, 2).float() for c in (keys, values))
        s = torch.einsum("bd,btd->bt", q.float(), k) / q.shape[1] ** 0.5
        mask = torch.arange(k.shape[1]) < lengths[:, None]
        p = s.masked_fill(~mask, -torch.inf).softmax(1)
        return torch.einsum("bt,btd->bd", p, v).bfloat16()


def get_inputs():
    cache = [torch.randn(PAGES, PAGE, WIDTH).bfloat16() for _ in range(2)]
    table = torch.randint(0, PAGES, (BATCH, 6))
    lengths = torch.randint(1, 6 * PAGE + 1, (BATCH,))
    return [torch.randn(BATCH, WIDTH).bfloat16(), *cache, table, lengths]


def get_init_inputs():
    return []


def paged(q, keys, values, table, lengths, last=0):
    """One page after another with a running maximum."""
    top = torch.full((len(q), 1), -1e30)
    total, out = torch.zeros(len(q), 1), torch.zeros(q.shape)
    for page in range(table.shape[1]):
        k, v = keys[table[:, page]].float(), values[table[:, page]].float()
        s = torch.einsum("bd,btd->bt", q.float() / q.shape[1] ** 0.5, k)
        place = page * k.shape[1] + torch.arange(k.shape[1])
        mask = place < lengths[:, None] + last
        s = s.masked_fill(~mask, -torch.inf)
        new = torch.maximum(top, s.amax(1, keepdim=True))
        p, old = (s - new).exp(), (top - new).exp()
        total, out = (
            total * old + p.sum(1, keepdim=True),
            out * old + torch.einsum("bt,btd->bd", p, v),
        )
        top = new
    return (out / total).bfloat16()


class Paged(Model):
    """Honest: page after page with a running maximum."""

    def forward(self, *arguments):
        return paged(*arguments)


class Bfloat16Probabilities(Model):
    """Honest: probabilities are rounded to bfloat16 before the second product, as in flash attention."""

    def forward(self, q, keys, values, table, lengths):
        k, v = (c[table].flatten(1, 2) for c in (keys, values))
        s = torch.einsum("bd,btd->bt", q.float(), k.float()) / q.shape[1] ** 0.5
        s = s.masked_fill(torch.arange(k.shape[1]) >= lengths[:, None], -torch.inf)
        p = (s - s.amax(1, keepdim=True)).exp()
        out = torch.einsum("bt,btd->bd", p.bfloat16().float(), v.float())
        return (out / p.sum(1, keepdim=True)).bfloat16()


class OneTooMany(Model):
    """Wrong: the token after the last one counts.

    Names: mask | length
    Unnamed: long rows have small errors, so the wrong elements show no rule
    """

    def forward(self, *arguments):
        return paged(*arguments, last=1)


class OneTooFew(Model):
    """Wrong: the last token is left out.

    Names: mask | length
    Unnamed: long rows have small errors, so the wrong elements show no rule
    """

    def forward(self, *arguments):
        return paged(*arguments, last=-1)


class WholePages(Model):
    """Wrong: lengths are rounded up to whole pages.

    Names: mask | length
    Unnamed: long rows have small errors, so the wrong elements show no rule
    """

    def forward(self, q, keys, values, table, lengths):
        return paged(q, keys, values, table, (lengths + PAGE - 1) // PAGE * PAGE)


class PagesInOrder(Model):
    """Wrong: the page table is not used: pages are read in order.

    Names: page
    Unnamed: values cannot tell which page was read
    """

    def forward(self, q, keys, values, table, lengths):
        return paged(q, keys, values, torch.arange(6).expand_as(table), lengths)
