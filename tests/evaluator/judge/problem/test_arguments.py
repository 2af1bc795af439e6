from __future__ import annotations

import math
import random

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem.arguments import (
    seed_all,
    serialized,
    unsupported,
    variation,
    without_overlap,
)


@pytest.mark.parametrize(
    ("shared", "tensor"),
    [
        (True, torch.randn(1, 8).expand(8, 8)),
        (True, torch.randn(20).unfold(0, 8, 2)),
        (True, torch.randn(8).as_strided((4, 4), (1, 1))),
        (False, torch.randn(6, 8).t()),
        (False, torch.randn(8, 16)[:, ::2]),
        (False, torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)),
        (False, torch.randn(1, 8).expand(1, 8)),
        (False, torch.randn(0, 8)),
        (False, torch.tensor(1.0)),
    ],
)
def test_only_a_tensor_whose_elements_share_memory_gets_its_own(
    shared: bool, tensor: torch.Tensor
) -> None:
    owned = without_overlap(tensor)

    assert shared == (owned is not tensor)
    assert torch.equal(tensor, owned)
    assert owned.is_contiguous() or not shared


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_the_usual_eight_bit_floats_are_arguments(dtype: torch.dtype) -> None:
    assert unsupported(torch.zeros(4).to(dtype)) is None


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz])
def test_other_eight_bit_floats_are_refused_in_a_sentence(dtype: torch.dtype) -> None:
    said = unsupported(torch.zeros(4).to(dtype))

    assert said is not None
    assert "not supported; return it in bfloat16" in said
    assert unsupported(torch.zeros(4, dtype=torch.bfloat16)) is None
    assert unsupported(torch.zeros(4, dtype=torch.uint8)) is None


def test_a_seed_rules_every_generator() -> None:
    numpy = pytest.importorskip("numpy")

    def drawn() -> tuple[float, float, float]:
        seed_all(1 << 40)
        return float(torch.rand(())), random.random(), float(numpy.random.rand())

    assert drawn() == drawn()


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([1, "a", None], [1, "a", None], None),
        ([math.nan], [math.nan], None),
        ([1], [2], "an argument of type int that changes from draw to draw (1, then 2)"),
        ([1], [1.0], "an argument of type int that changes"),
        ([[1, 2]], [[1]], "arguments whose structure changes from draw to draw"),
    ],
)
def test_what_changes_between_two_draws_is_named(
    first: list[object], second: list[object], said: str | None
) -> None:
    found = variation(first, second)

    assert said is None if found is None else said is not None and found.startswith(said)


def test_what_cannot_travel_says_why() -> None:
    with pytest.raises(ValueError, match="cannot be sent to another process"):
        serialized([lambda: 0])
    assert serialized([torch.float32, {"a": (1, "b")}])
