"""By how much inputs move where a judge looks at how well a problem is conditioned."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.verify.conditioning import nudged, without_ties

ROUNDING = 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_numbers_move_a_little_and_those_of_the_problem_stay(dtype: torch.dtype) -> None:
    own = torch.randn(64, 3, dtype=dtype).t()
    before = own.clone()

    moved = nudged(own, 8 * ROUNDING, torch.Generator())

    assert torch.equal(before, own)
    assert not torch.equal(before, moved)
    assert dtype == moved.dtype
    torch.testing.assert_close(before, moved, rtol=16 * ROUNDING, atol=0.0)


@pytest.mark.parametrize("beyond", [0.0, 0.5])
def test_whole_numbers_are_exact_unless_one_is_not(beyond: float) -> None:
    own = torch.arange(4.0)
    own[-1] += beyond

    moved = nudged(own, ROUNDING, torch.Generator())

    assert torch.equal(own, moved) == (beyond == 0.0)


def test_an_empty_tensor_and_a_number_bear_it() -> None:
    assert 0 == nudged(torch.rand(0, 3), ROUNDING, torch.Generator()).numel()
    assert () == nudged(torch.tensor(0.3), ROUNDING, torch.Generator()).shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_zeros_become_different_tiny_numbers_but_not_those_of_masks(dtype: Any) -> None:
    values = torch.tensor([0.0, 0.0, 1.5, -0.5, 0.0]).to(dtype)

    found = without_ties(values, torch.Generator().manual_seed(0)).double()

    zeros, others = found[[0, 1, 4]].tolist(), found[[2, 3]].tolist()
    assert len(set(zeros)) == 3 and all(0 < each < 1e-4 for each in zeros)
    assert others == [1.5, -0.5]
    flags = torch.tensor([0.0, 1.0, 0.0]).to(dtype)
    assert torch.equal(without_ties(flags, torch.Generator()), flags)
