"""Methods, attributes and classes that replace the captured ones: on an instance, in a nearer class, or by a new definition."""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_captured import Layer, X, captured
from torch import nn

from stark.deploy import guard


class Base(Layer):
    factor = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(x)) * self.factor

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


class Derived(Base):
    """Inherits everything."""


class Inner(nn.Module):
    """Has a submodule with code and attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Derived()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class Wider(Base):
    """Another class than the captured one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 100


def times(factor: float) -> Callable[..., torch.Tensor]:
    return lambda *arguments: factor * arguments[-1]


def own_method(module: nn.Module, _: pytest.MonkeyPatch) -> None:
    module.act = types.MethodType(times(7), module)


def own_attribute(module: nn.Module, _: pytest.MonkeyPatch) -> None:
    module.factor = 5.0


def own_forward(module: nn.Module, _: pytest.MonkeyPatch) -> None:
    """As accelerate does."""
    linear = module.get_submodule("linear")
    linear.forward = functools.wraps(linear.forward)(times(5))  # type: ignore[method-assign]


def nearer_method(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Derived, "act", times(9))


def nearer_attribute(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Derived, "factor", 4.0)


def forward_of_torch(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nn.Linear, "forward", times(2))


OVERRIDES = [own_method, own_attribute, own_forward, nearer_method, nearer_attribute]
Override = Callable[[nn.Module, pytest.MonkeyPatch], None]


@pytest.fixture(params=[Derived, Inner], ids=["module", "submodule"])
def model(request: pytest.FixtureRequest) -> nn.Module:
    made: nn.Module = request.param()
    return made.eval()


def part(model: nn.Module) -> nn.Module:
    return model.get_submodule("inner") if isinstance(model, Inner) else model


@pytest.mark.parametrize("override", [*OVERRIDES, forward_of_torch])
def test_what_is_overridden_later_runs_the_original(
    model: nn.Module, override: Override, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = copy.deepcopy(model)
    applied = guard.apply(model, captured(model))

    with torch.no_grad():
        torch.testing.assert_close(model(X), own(X))
        for each in (own, model):
            override(part(each), monkeypatch)
        assert torch.equal(own(X), model(X))
        monkeypatch.undo()
    assert 1 == applied.report().kernel_calls


@pytest.mark.parametrize("override", OVERRIDES)
def test_a_module_with_an_override_runs_the_original(
    model: nn.Module, override: Override, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = captured(model)
    override(part(model), monkeypatch)
    own = copy.deepcopy(model)
    override(part(own), monkeypatch)

    try:
        applied = guard.apply(model, made)
    except guard.NothingBound:
        return
    with torch.no_grad():
        assert torch.equal(own(X), model(X))
        assert torch.equal(own(X), model(X))
    assert 0 == applied.report().kernel_calls


def test_an_override_is_forgotten_once_it_is_undone(model: nn.Module) -> None:
    applied = guard.apply(model, captured(model))
    with torch.no_grad():
        model(X)
        own_method(part(model), pytest.MonkeyPatch())
        model(X)
        del part(model).act
        model(X)

    report = applied.report()
    assert 2 == report.kernel_calls
    assert {"the original's code differs from what was captured": 1} == report.original_calls


def test_a_submodule_may_have_a_kernel_of_its_own() -> None:
    model, own = Inner().eval(), Inner().eval()
    own.load_state_dict(model.state_dict())
    both, inner = captured(model), captured(model.inner)

    outer = [guard.apply(model, inner), guard.apply(model, both)][1]

    with torch.no_grad():
        torch.testing.assert_close(model(X), own(X))
    assert 1 == outer.report().kernel_calls


def test_only_the_captured_class_is_bound() -> None:
    model = nn.ModuleList([Base(), Wider()]).eval()
    own = copy.deepcopy(model)

    applied = guard.apply(model, captured(Base().eval()), ["*"])

    assert {"0"} == set(applied.bound)
    assert f"it is a {__name__}:Wider, not a {__name__}:Base" == applied.skipped["1"]
    with torch.no_grad():
        assert torch.equal(own[1](X), model[1](X))


@pytest.mark.parametrize("name", ["Derived", "Base"])
def test_an_instance_of_an_earlier_definition_is_not_bound(
    model: nn.Module, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after importlib.reload, or when a notebook's cell runs again."""
    made = captured(model)
    earlier = getattr(sys.modules[__name__], name)
    again: Any = type(name, earlier.__bases__, dict(vars(earlier)))
    monkeypatch.setattr(sys.modules[__name__], name, again)

    with pytest.raises(guard.NothingBound, match=f"{__name__}:{name} was defined again"):
        guard.apply(model, made)


SCALE = 2.0


def helper(x: torch.Tensor) -> torch.Tensor:
    return x + 1


class Traced(Base):
    """Whose code reads whatever can change after it was compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.order = list(range(16))
        self.slopes = torch.full((16,), 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = helper(self.drop(self.act(self.linear(x)))) * self.factor
        return x[..., self.order] * self.slopes * SCALE


def train_dropout(module: Any, _: pytest.MonkeyPatch) -> None:
    module.drop.train()


def replace_tensor(module: Any, _: pytest.MonkeyPatch) -> None:
    module.slopes = torch.full((16,), 3.0)


def reverse(module: Any, _: pytest.MonkeyPatch) -> None:
    module.order.reverse()


def scale(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys.modules[__name__], "SCALE", 5.0)


def another_helper(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys.modules[__name__], "helper", times(4))


def class_method(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Base, "act", times(4))


def class_attribute(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Base, "factor", 4.0)


IN_GRAPHS = [
    train_dropout, replace_tensor, reverse, scale, another_helper, class_method, class_attribute,
    own_method, own_attribute, own_forward,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("override", IN_GRAPHS)
def test_compiled_graphs_notice_what_changes(
    override: Override, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Traced().eval()
    own = copy.deepcopy(model)
    applied = guard.apply(model, captured(model))
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")

    with torch.no_grad():
        torch.testing.assert_close(compiled(X), own(X))
        assert 1 == applied.report().kernel_calls
        for each in (own, model):
            override(each, monkeypatch)
        found = [torch.manual_seed(0) and each(X) for each in (own, compiled)]
        monkeypatch.undo()
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert 1 == applied.report().kernel_calls
