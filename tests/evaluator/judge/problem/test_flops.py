"""Operations of attention with shared heads, where torch's formula refuses them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import flop_counter

from stark.evaluator.judge.problem.flops import flops_of

ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention


def formula(query: Any, key: Any, value: Any, out_val: object) -> int:
    """As torch 2.11's, which wants as many heads of keys as of queries."""
    batch, heads, length, width = query.shape
    assert key.shape[:2] == value.shape[:2] == (batch, heads)
    return 4 * batch * heads * length * key.shape[2] * width


def test_shared_heads_do_as_much_work_as_heads_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(flop_counter.flop_registry, ATTENTION, formula)
    query, key = torch.empty(2, 8, 16, 32), torch.empty(2, 2, 16, 32)

    assert 4 * 2 * 8 * 16 * 16 * 32 == flops_of(ATTENTION, (query, key, key), {}, query)


def test_what_no_formula_counts_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(flop_counter.flop_registry, ATTENTION, formula)
    odd = torch.empty(3, 2, 16, 32)

    assert flops_of(ATTENTION, (torch.empty(2, 8, 16, 32), odd, odd), {}, odd) is None
    assert flops_of(torch.ops.aten.relu, (odd,), {}, odd) is None
