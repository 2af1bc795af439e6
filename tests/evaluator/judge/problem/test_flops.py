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


def test_causal_attention_does_the_work_of_the_keys_that_queries_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(flop_counter.flop_registry, ATTENTION, formula_of_causal)
    query, key = torch.empty(2, 8, 16, 32), torch.empty(2, 8, 20, 32)
    of_a_pair = 4 * 2 * 8 * 32

    assert of_a_pair * (16 * 17 // 2) == flops_of(
        ATTENTION, (query, query, query, 0.0, True), {}, query
    )
    assert of_a_pair * (16 * 17 // 2) == flops_of(
        ATTENTION, (query, key, key), {"is_causal": True}, query
    )
    assert of_a_pair * 16 * 16 == flops_of(ATTENTION, (query, query, query, 0.0, False), {}, query)


def formula_of_causal(
    query: Any, key: Any, value: Any, *_: object, out_val: object, **named: object
) -> int:
    return formula(query, key, value, out_val)


def test_products_in_int8_count_as_others() -> None:
    rows, columns = torch.empty(8, 16, dtype=torch.int8), torch.empty(16, 4, dtype=torch.int8)

    assert 2 * 8 * 16 * 4 == flops_of(torch.ops.aten._int_mm, (rows, columns), {}, None)
