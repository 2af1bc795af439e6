from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem.exchanged import LONE, MOST, exchanged


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) + 0.5


def after(tensor: torch.Tensor, seed: int = 1) -> torch.Tensor:
    return exchanged(tensor, seed)


def test_a_few_elements_become_others_of_the_tensor() -> None:
    tensor = drawn(64, 8, 256)
    before = tensor.clone()

    found = after(tensor)

    assert torch.equal(before, tensor)
    changed = found != tensor
    assert min(LONE) <= int(changed.sum()) <= max(LONE) + 64 // 32 + 256 // 32
    assert torch.equal(tensor.flatten().sort()[0], found.flatten().sort()[0]), "no value twice"
    assert torch.equal(found, after(tensor)) and not torch.equal(found, after(tensor, seed=2))


def test_they_can_be_large_too() -> None:
    tensor = drawn(64, 8, 256)

    usual, large = after(tensor), exchanged(tensor, 1, 64.0)

    assert torch.equal(usual != tensor, large != tensor)
    assert torch.equal(large[usual != tensor], 64.0 * usual[usual != tensor])


def test_rows_that_are_alike_differ_afterwards_and_seldom_in_their_first_numbers() -> None:
    tensor = drawn(64, 1, 256).repeat(1, 8, 1)

    found = [after(tensor, seed) for seed in range(100)]

    assert all(not torch.equal(each, each[:, :1].expand_as(each)) for each in found)
    seen = sum(bool((each[:, :, :2] != each[:, :1, :2]).any()) for each in found)
    assert seen < 40, "or a look at two numbers of each row would tell such inputs from others"


@pytest.mark.parametrize(
    "tensor",
    [
        drawn(128, 128).tril(),
        torch.block_diag(drawn(64, 64), drawn(64, 64)),
        drawn(4, 256) * (torch.arange(256) % 4 < 2),
        torch.zeros(64, 64).masked_fill(drawn(64, 64) < 0.8, float("-inf")),
    ],
    ids=["triangular", "blocks", "two of four", "mask"],
)
def test_zeros_that_may_be_structural_stay(tensor: torch.Tensor) -> None:
    assert all(torch.equal(tensor == 0, after(tensor, seed) == 0) for seed in range(8))


def test_rows_of_zeros_are_padding_and_do_not_stay() -> None:
    tensor = drawn(8, 64, 96)
    tensor[:, 12:] = 0

    assert 20 <= sum(bool((after(tensor, seed)[:, 12:] != 0).any()) for seed in range(32))


def test_zeros_at_the_end_of_all_rows_are_padding_too() -> None:
    tensor = drawn(8, 12, 640)
    tensor[..., 64:] = 0

    assert all(bool((after(tensor, seed)[..., 64:] != 0).any()) for seed in range(32))


def test_a_symmetric_matrix_stays_symmetric() -> None:
    tensor = drawn(3, 96, 96)
    tensor = tensor + tensor.mT

    found = after(tensor)

    assert torch.equal(found, found.mT)
    assert not torch.equal(found, tensor)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.float8_e4m3fn]
)
def test_other_types_and_strides(dtype: torch.dtype) -> None:
    tensor = drawn(96, 64).to(dtype).T

    found = after(tensor)

    assert (tensor.dtype, tensor.stride()) == (found.dtype, found.stride())
    wide = torch.complex128 if dtype.is_complex else torch.float64
    assert 0 < int((found.to(wide) != tensor.to(wide)).sum()) <= max(LONE) + 96 // 32 + 64 // 32


def test_sorted_rows_stay_sorted() -> None:
    found = [after(drawn(64, 256).sort(1)[0], seed) for seed in range(8)]

    assert all(torch.equal(each, each.sort(1)[0]) for each in found)
    assert not torch.equal(found[0], found[1])


def test_small_tensors_and_vectors() -> None:
    one, vector = drawn(3), drawn(256) * (torch.arange(256) % 2)

    assert 2.0 == after(torch.tensor(2.0))
    assert (0, 4) == after(drawn(0, 4)).shape
    assert (after(one) != one).sum() <= 1
    found = after(vector)
    assert torch.equal(vector == 0, found == 0)
    assert not torch.equal(vector, found)


def test_long_rows_take_no_time_and_no_memory() -> None:
    tensor = torch.zeros(2, 4 << 20)
    tensor[0] = 1 + (torch.arange(4 << 20) * 7919) % 99991
    begin = time.monotonic()

    found = after(tensor)

    assert 0 < int((found != tensor).sum()) <= max(LONE) + MOST
    assert time.monotonic() - begin < 2
