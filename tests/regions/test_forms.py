from __future__ import annotations

from enum import Enum
from typing import Any

import torch
from torch import nn

from stark.regions.forms import Form, form_of_call


class Mode(Enum):
    FAST = 1
    EXACT = 2


class Module(nn.Module):
    def forward(self, x: Any, mask: Any = None, start: int = 0, mode: Any = None) -> Any:
        return x


def form(*args: Any, **kwargs: Any) -> Form:
    with torch.no_grad():
        return form_of_call(Module().eval(), args, kwargs)


X = torch.ones(2, 8)


def test_positional_and_keyword_calls_are_alike() -> None:
    assert form(X, None, 3) == form(x=X, mask=None, start=3)


def test_the_first_tensor_counts_with_its_shape_dtype_and_strides() -> None:
    assert "2x8 fp32" == form(X).text
    assert form(X).key == form(X + 1).key
    for other in (torch.ones(3, 8), X.double(), torch.ones(8, 2).t()):
        assert form(X).key != form(other).key


def test_sizes_of_other_tensors_and_integers_may_vary() -> None:
    short, long = form(X, torch.ones(3), 1), form(X, torch.ones(4), 2)

    assert short.key == long.key
    assert short.exact != long.exact
    assert short.key != form(X, torch.ones(3, 1), 1).key
    assert short.key != form(X, None, 1).key


def test_other_constants_count_by_value() -> None:
    for one, other in ((True, False), (1.0, 2.0), ("a", "b"), (Mode.FAST, Mode.EXACT)):
        assert form(X, mode=one).key == form(X, mode=one).key
        assert form(X, mode=one).key != form(X, mode=other).key
    assert () == form(X, mode=Mode.FAST).objects
    assert ("Module",) == form(X, mode=Module()).objects


def test_modes_count() -> None:
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = form_of_call(Module().train(), (X,), {})

    assert "2x8 fp32 train grad autocast" == found.text
    assert form(X).key != found.key


def test_arguments_that_forward_does_not_take_have_a_form() -> None:
    """The call fails later, with the module's own message."""
    assert "2x8 fp32" == form(X, None, 0, None, 5).text
    assert "no tensor" == form(3).text
