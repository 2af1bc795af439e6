"""Kernels run only in the modes in which a module was recorded, which is said where those are not inference's."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn

import stark
from stark.capturing.entry import ModeWarning


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def warned(train: bool, grad: bool, backward: bool = False, frozen: bool = False) -> list[str]:
    module = Scaled().train(train).requires_grad_(not frozen)
    with stark.recording(module) as calls, torch.set_grad_enabled(grad):
        module(torch.ones(2, 4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stark.capture(module, calls, backward=backward)
    return [str(each.message) for each in caught if each.category is ModeWarning]


def test_inference_gives_no_warning() -> None:
    assert [] == warned(train=False, grad=False)
    assert [] == warned(train=False, grad=True, frozen=True)


def test_training_mode_without_gradients_is_named() -> None:
    [said] = warned(train=True, grad=False)

    assert "train() without gradients, so its kernel is verified for train() only" in said
    assert "call eval() and record again" in said


def test_gradients_without_backward_are_named() -> None:
    [said] = warned(train=False, grad=True)

    assert "will run the original where gradients are needed" in said
    assert "torch.no_grad(), or pass backward=True" in said
    assert "train() with gradients" in warned(train=True, grad=True)[0]
    assert [] == warned(train=True, grad=True, backward=True)


def test_what_is_no_recording_is_refused() -> None:
    with pytest.raises(stark.ProblemError, match="The calls are a list; give what"):
        stark.capture(Scaled(), [])  # type: ignore[arg-type]
