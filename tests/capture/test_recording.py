"""Calls are recorded by form, with one example that forward cannot change, and hooks are always removed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn

import stark
from stark.capturing.calls.recording import recording


class InPlace(nn.Module):
    def forward(self, x: Any, *, factor: float = 2.0) -> Any:
        return x.mul_(factor)


def hooks(model: nn.Module) -> int:
    return sum(len(each._forward_pre_hooks) for each in model.modules())


def test_forms_are_counted_by_path() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))

    with torch.no_grad(), stark.recording(model) as calls:
        model(torch.randn(3, 4))
        model(torch.randn(3, 4))
        model(torch.randn(5, 4))

    assert 0 == hooks(model)
    large, small = calls.of(model[0])
    assert ({"0": 2, "1": 2}, {"0": 1, "1": 1}) == (large.counts, small.counts)
    assert (4, ("0", "1")) == (large.calls, large.paths)
    assert ["2"] == list(calls.of(model[2])[0].counts)
    assert "Calls(12 calls in 6 forms of torch.nn.modules.container:Sequential)" == repr(calls)
    assert 6 == len(calls)


def test_the_example_is_from_before_the_call() -> None:
    module = InPlace()

    with recording(module) as calls:
        module(torch.ones(2, 3).t(), factor=5.0)

    args, kwargs = calls.of(module)[0].example or ((), {})
    assert (1.0, (1, 3), {"factor": 5.0}) == (float(args[0].max()), args[0].stride(), kwargs)


def test_dtype_strides_constants_and_modes_are_other_forms() -> None:
    module = InPlace().eval()
    x = torch.ones(2, 2)

    with recording(module) as calls:
        module(x)
        module(x.clone().double())
        module(x.clone().t().contiguous().t())
        module(x.clone(), factor=3.0)
        with torch.no_grad():
            module(x.clone())
        with torch.inference_mode():
            module(x.clone())

    assert [1, 1, 1, 1, 2] == [form.calls for form in calls]
    assert [True, True, True, True, False] == [form.grad for form in calls]


def test_a_tensor_that_occurs_twice_occurs_twice_in_the_example() -> None:
    class Same(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a if a is b else None

    module, x = Same(), torch.ones(2)
    with recording(module) as calls:
        module(x, x)

    (a, b), _ = calls.of(module)[0].example or ((), {})
    assert a is b is not x


def test_hooks_go_when_forward_fails() -> None:
    model = nn.Sequential(nn.Linear(4, 4))

    with pytest.raises(RuntimeError), recording(model):
        model(torch.randn(3, 5))

    assert 0 == hooks(model)


def test_expanded_and_sliced_arguments_keep_their_strides() -> None:
    class Identity(nn.Module):
        def forward(self, *args: Any) -> Any:
            return args

    module = Identity()
    given = (torch.randn(1, 4).expand(3, 4), torch.randn(4, 8)[:, 2:5], torch.randn(6)[::2])
    with recording(module) as calls:
        module(*given)

    args, _ = calls.of(module)[0].example or ((), {})
    for ours, theirs in zip(args, given, strict=True):
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours, theirs)
