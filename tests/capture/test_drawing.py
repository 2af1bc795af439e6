"""Recorded tensors become short expressions with the same form and like values."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.capturing.cannot import CannotCapture
from stark.capturing.expressions.drawing import draw, draw_value, parameter
from stark.capturing.expressions.stored import UNPACKED, exact

GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Any:
    return torch.randn(shape, generator=GENERATOR)


def integers(low: int, high: int, *shape: int) -> Any:
    return torch.randint(low, high, shape, generator=GENERATOR)


def made(text: str) -> Any:
    space: dict[str, Any] = {"torch": torch, "zlib": zlib, "base64": base64}
    exec(UNPACKED, space)
    return eval(text, space)


CAUSAL = torch.full((6, 6), float("-inf")).triu(1)

DRAWS = {
    "normal": (random(4, 6, 8), "torch.randn(4, 6, 8)"),
    "shifted and scaled": (5 + 3 * random(400, 80), "+ 3 * torch.randn(400, 80)"),
    "bf16": (random(4, 600).bfloat16(), "torch.randn(4, 600, dtype=torch.bfloat16)"),
    "float8": (random(4, 600).to(torch.float8_e4m3fn), ".to(torch.float8_e4m3fn)"),
    "uniform": (torch.rand(500, generator=GENERATOR), "torch.rand(500)"),
    "complex": (torch.randn(3, dtype=torch.cfloat), "torch.randn(3, dtype=torch.complex64)"),
    "channels last": (
        random(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "torch.empty_strided((2, 3, 4, 5), (60, 1, 15, 3), dtype=torch.float32).copy_(torch.randn(2, 3, 4, 5))",
    ),
    "transposed": (random(4, 6, 8).transpose(1, 2), "torch.empty_strided((4, 8, 6), (48, 1, 8)"),
    "expanded": (random(1, 6, 8).expand(4, 6, 8), "(torch.randn(1, 6, 8)).expand(4, -1, -1)"),
    "sliced": (random(4, 6, 8)[:, :5, :3], "torch.empty_strided((4, 5, 3), (48, 8, 1)"),
    "with gaps": (
        random(4, 6, 8)[:, 1:3, 2:4].transpose(1, 2),
        "torch.empty_strided((4, 2, 2), (48, 1, 8)",
    ),
    "dimensions of one element": (random(1, 64).as_strided((1, 4, 16, 1), (4, 1, 4, 4)), ""),
    "overlapping": (random(40).unfold(0, 8, 2), ".as_strided((17, 8), (2, 1))"),
    "indices": (integers(2, 90, 400), "torch.randint(2, 90, (400,))"),
    "indices, transposed": (
        integers(0, 9, 400, 4).t(),
        ".copy_(torch.randint(0, 9, (4, 400)))",
    ),
    "positions": (torch.arange(3, 40).int(), "torch.arange(3, 40, dtype=torch.int32)"),
    "expanded positions": (torch.arange(6).expand(2, 6), "torch.arange(6).expand((2, 6))"),
    "a permutation": (torch.randperm(40, generator=GENERATOR), "torch.randperm(40)"),
    "offsets": (torch.tensor([0, 3, 9, 17]), "torch.tensor([0, 3, 9, 17])"),
    "one number": (torch.tensor(3), "torch.full((), 3, dtype=torch.int64)"),
    "nothing": (torch.zeros(0, 3), "torch.empty((0, 3), dtype=torch.float32)"),
    "causal": (
        CAUSAL[None, None],
        ".tril().expand((1, 1, 6, 6)), torch.tensor(0.0, dtype=torch.float32)",
    ),
    "causal, boolean": (
        torch.ones(6, 6, dtype=torch.bool).tril(),
        "torch.ones(6, 6, dtype=torch.bool).tril()",
    ),
    "padding": (torch.arange(40) < torch.tensor([[3], [5]]), "unpacked("),
    "full": (torch.ones(2, 8, dtype=torch.bool), "torch.ones(2, 8, dtype=torch.bool)"),
    "another mask": (random(5, 7) > 0, "unpacked("),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_has_the_recorded_form(name: str) -> None:
    tensor, expected = DRAWS[name]

    text = draw(tensor)

    fresh = made(text)
    assert (tensor.shape, tensor.dtype, tensor.stride()) == (
        fresh.shape,
        fresh.dtype,
        fresh.stride(),
    )
    assert expected in text
    if not tensor.dtype.is_floating_point and not tensor.is_complex() and tensor.numel():
        assert tensor.min() <= fresh.min() and fresh.max() <= tensor.max()


MASKS = [
    "causal",
    "causal, boolean",
    "padding",
    "full",
    "another mask",
    "positions",
    "offsets",
]


@pytest.mark.parametrize("name", MASKS)
def test_masks_and_structured_integers_are_the_recorded_ones(name: str) -> None:
    tensor, _ = DRAWS[name]

    assert torch.equal(tensor, made(draw(tensor)))


def test_nested_values_are_drawn() -> None:
    text = draw_value({"a": (torch.arange(3),), "b": [None, 2.5, "x"]})

    assert "{'a': (torch.arange(3),), 'b': [None, 2.5, 'x']}" == text


def test_weights_are_drawn_like_the_originals() -> None:
    assert "torch.ones(4)" == parameter(torch.ones(4))
    assert "torch.full((4,), 0.5)" == parameter(torch.full((4,), 0.5))
    assert "0.02 * torch.randn(64, 64)" == parameter(0.02 * random(64, 64)).replace(
        "0.0199", "0.02"
    )


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
def test_stored_tensors_are_exact(dtype: Any) -> None:
    for shape in ((3,), (5, 7), ()):
        tensor = (3 * random(*shape)).to(dtype)
        again = made(exact(tensor))
        assert (dtype, tensor.shape) == (again.dtype, again.shape)
        assert torch.equal(tensor, again)


def test_large_tensors_are_not_stored() -> None:
    with pytest.raises(CannotCapture, match="kB of text"):
        exact(random(200, 200))
