"""Kernels of captured problems: everything that the file takes over from the original is compared with the live module."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from deploy_samples import kernel
from torch import nn

import stark
from stark.capturing.described import described, found
from stark.core.errors import ProblemError
from stark.deploy import guard

X = torch.arange(64.0).reshape(4, 16) / 64 - 0.3
FACTOR = 2.0
SLOPES = torch.full((16,), 2.0)


@dataclass
class Config:
    scale: float = 0.5


def scaled(config: Config, x: torch.Tensor) -> torch.Tensor:
    return x * config.scale


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)


class ByHelper(Layer):
    def __init__(self, scale: float = 0.5) -> None:
        super().__init__()
        self.config = Config(scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(self.config, self.linear(x))


class ByLocalName(ByHelper):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config = self.config
        return self.linear(x) * config.scale


class PlainTensor(Layer):
    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.slopes = torch.full((16,), value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.slopes


class PlainTensorInAGraph(PlainTensor):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (lambda y: self.linear(y) * self.slopes)(x)


class Activation(Layer):
    def __init__(self, activation: Callable[..., torch.Tensor] = F.relu) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.linear(x))


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class NormOfGemma(Norm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + self.weight)


class Normed(Layer):
    def __init__(self, norm: type[nn.Module] = Norm) -> None:
        super().__init__()
        self.norm = norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


class Rotary(Layer):
    def __init__(self, base: float = 10.0) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(16) / 16)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.frequencies


class Scalar(Layer):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


class Order(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.order = [i % 16 for i in range(256)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)[..., self.order]


class Nested(Order):
    def __init__(self) -> None:
        super().__init__()
        self.orders = (self.order, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)[..., self.orders[0]]


class GlobalTensor(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * SLOPES


class Global(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * FACTOR


class Ready(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ready", torch.tensor(True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if bool(self.ready) else x


class NotReady(Ready):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        if not self.ready:
            x = 3 * x
        return x


def captured(module: nn.Module) -> guard.Kernel:
    """The captured Model itself as the kernel."""
    with torch.no_grad(), stark.recording(module) as calls:
        module(X)
    source = stark.capture(module, calls).source
    new = source.replace("class Model(", "class ModelNew(")
    return kernel(new, source, f"captured_{type(module).__name__.lower()}")


def set_scale(module: Any) -> None:
    module.config.scale = 9.0


def replace_slopes(module: Any) -> None:
    module.slopes = torch.zeros(16)


def change_slopes(module: Any) -> None:
    module.slopes.zero_()


def replace_activation(module: Any) -> None:
    module.activation = torch.tanh


def change_frequencies(module: Any) -> None:
    module.frequencies.mul_(2)


def load(module: Any) -> None:
    module.load_state_dict({"scale": torch.tensor(3.0)}, strict=False)


def reverse(module: Any) -> None:
    module.order.reverse()


OTHERS: list[tuple[Callable[[], nn.Module], Callable[[Any], None] | None, nn.Module | None]] = [
    (ByHelper, set_scale, ByHelper(0.7)),
    (ByLocalName, set_scale, ByLocalName(0.7)),
    (PlainTensor, replace_slopes, PlainTensor(2.0)),
    (PlainTensor, change_slopes, None),
    (PlainTensorInAGraph, replace_slopes, PlainTensorInAGraph(2.0)),
    (Activation, replace_activation, Activation(F.silu)),
    (
        functools.partial(Activation, functools.partial(F.gelu, approximate="tanh")),
        None,
        Activation(functools.partial(F.gelu, approximate="none")),
    ),
    (Normed, None, Normed(NormOfGemma)),
    (Rotary, change_frequencies, Rotary(20.0)),
    (Scalar, load, Scalar(3.0)),
    (Order, reverse, None),
    (Nested, reverse, None),
]


@pytest.mark.parametrize(("make", "change", "other"), OTHERS)
def test_a_module_that_differs_from_the_captured_one_runs_the_original(
    make: Callable[[], nn.Module],
    change: Callable[[Any], None] | None,
    other: nn.Module | None,
) -> None:
    first = make().eval()
    made = captured(first)
    model = nn.ModuleList([first, *([] if other is None else [other.eval()])])
    own = copy.deepcopy(model)
    applied = guard.apply(model, made)

    with torch.no_grad():
        for _ in range(2):
            for each, expected in zip(model, own, strict=True):
                torch.testing.assert_close(each(X), expected(X))
        assert {"0"} == set(applied.bound)
        assert 2 == applied.report().kernel_calls
        if change is not None:
            change(model[0])
            change(own[0])
            assert torch.equal(own[0](X), model[0](X))
            assert {"an attribute differs": 1} == applied.report().original_calls


def test_a_global_constant_that_was_changed_runs_the_original(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Global().eval()
    own = copy.deepcopy(model)
    applied = guard.apply(model, captured(model))

    with torch.no_grad():
        torch.testing.assert_close(model(X), own(X))
        monkeypatch.setattr(f"{__name__}.FACTOR", 3.0)
        assert torch.equal(own(X), model(X))
    reason = "the original's code differs from what was captured"
    assert {reason: 1} == applied.report().original_calls
    assert f"{__name__}:FACTOR" == applied.report().examples[reason]


class OfClass(Layer):
    factor = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.doubled(self.linear(x)) * self.factor * TABLE["factor"]

    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


TABLE = {"factor": 3.0}


@pytest.mark.parametrize("what", ["factor", "doubled", "table"])
def test_a_class_or_table_that_was_changed_runs_the_original(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = OfClass().eval()
    own = copy.deepcopy(model)
    applied = guard.apply(model, captured(model))

    with torch.no_grad():
        torch.testing.assert_close(model(X), own(X))
        if what == "table":
            monkeypatch.setitem(TABLE, "factor", 5.0)
        else:
            monkeypatch.setattr(OfClass, what, 5.0 if what == "factor" else lambda self, x: x)
        assert torch.equal(own(X), model(X))
    assert 1 == applied.report().kernel_calls


def test_a_global_tensor_that_was_changed_in_place_runs_the_original() -> None:
    model = GlobalTensor().eval()
    own = copy.deepcopy(model)
    applied = guard.apply(model, captured(model))

    with torch.no_grad():
        torch.testing.assert_close(model(X), own(X))
        SLOPES.mul_(3)
        assert torch.equal(own(X), model(X))
        SLOPES.div_(3)
    assert 1 == applied.report().kernel_calls


@pytest.mark.parametrize("name", ["scaled", "ByHelper.forward"])
def test_a_module_whose_code_was_edited_is_not_bound(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = captured(ByHelper().eval())

    def edited(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    monkeypatch.setattr(f"{__name__}.{name}", edited)

    with pytest.raises(guard.NothingBound, match=f"code differs .* {__name__}:{name}"):
        guard.apply(ByHelper(), made)


@pytest.mark.parametrize("kind", [Ready, NotReady])
def test_a_branch_on_the_value_of_a_buffer_is_kept(kind: type[nn.Module]) -> None:
    own = kind().eval()
    model = captured(own).reference.Model()
    own.get_buffer("ready").fill_(False)
    model.load_state_dict(own.state_dict())

    with torch.no_grad():
        assert torch.equal(own(X), model(X))


def test_weights_outside_of_the_state_are_refused() -> None:
    class Shared(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.shared = [nn.Linear(16, 16)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.shared[0](self.linear(x))

    with pytest.raises(ProblemError, match="shared holds weights that are not in the module's"):
        captured(Shared().eval())


@pytest.mark.parametrize("value", [1, "a", None, 0.5, (1,), (1, [2]), {"a": (1, 2)}, [], ()])
def test_plain_values_are_described_as_repr_shows_them(value: object) -> None:
    assert repr(value) == described(value)


def test_descriptions_are_the_same_in_every_process() -> None:
    assert described({"b", "a"}) == "set([\"'a'\", \"'b'\"])"
    assert described(F.relu) == "torch.nn.functional.relu"
    assert described(torch.ones(2)) == described(torch.ones(2)) != described(torch.zeros(2))
    assert len(described(list(range(1000)))) < 100
    assert described(list(range(1000))) != described(list(range(1, 1001)))
    with pytest.raises(LookupError, match="nowhere is not imported"):
        found("nowhere:function")
