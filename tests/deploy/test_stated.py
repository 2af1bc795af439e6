"""What decided the captured code is stated: a module for which it is otherwise runs its original."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from deploy_samples import kernel
from torch import nn
from userpkg import stated
from userpkg.stated import CONFIG, Config, Inner, Kind

import stark
from stark.core.errors import ProblemError
from stark.deploy import guard

X = torch.arange(64.0).reshape(4, 16) / 64 - 0.3


def captured(module: nn.Module) -> str:
    with torch.no_grad(), stark.recording(module) as calls:
        module(X)
    return stark.capture(module, calls).source


def kernel_of(module: nn.Module, name: str) -> guard.Kernel:
    """The captured Model itself as the kernel."""
    source = captured(module)
    return kernel(source.replace("class Model(", "class ModelNew("), source, name)


def check(made: guard.Kernel, model: nn.Module, change: Callable[[Any], None]) -> None:
    """A change after binding, and a module that was changed before, run the original."""
    model, other = model.eval(), copy.deepcopy(model).eval()
    applied = guard.apply(model, made)
    with torch.no_grad():
        for _ in range(2):
            model(X)
        assert 2 == applied.report().kernel_calls
        change(model)
        change(other)
        torch.testing.assert_close(model(X), other(X), rtol=0, atol=0)
        assert 2 == applied.report().kernel_calls
        with pytest.raises(guard.NothingBound):
            guard.apply(other, made)


def set_extra(module: Any) -> None:
    module.extra = module.config.extra = True


BY_ATTRIBUTE = [
    "ByGetattr", "ByGetattrOfConfig", "ByHasattr", "ByAlias", "ByHelper", "ByHelperThatAsks", "InOneLine",
]  # fmt: skip


@pytest.mark.parametrize("name", BY_ATTRIBUTE)
@pytest.mark.parametrize("there", [False, True])
def test_an_attribute_that_decided_a_branch_is_stated(name: str, there: bool) -> None:
    kind = getattr(stated, name)
    if not there and name in ("ByAlias", "ByHelper"):
        pytest.skip("it reads the attribute")
    module = kind(**({"extra": False} if there else {})).eval()
    if name == "ByHasattr" and there:

        def remove(module: Any) -> None:
            del module.extra

        check(kernel_of(module, f"{name.lower()}_there"), module, remove)
    else:
        check(kernel_of(module, f"{name.lower()}_{there}".lower()), module, set_extra)


@pytest.mark.parametrize("add", ["module", "parameter"])
def test_a_submodule_or_parameter_that_code_asks_for_is_noticed(add: str) -> None:
    module = stated.ByHasattr().eval()

    def change(module: Any) -> None:
        module.extra = nn.Linear(1, 1) if add == "module" else nn.Parameter(torch.ones(1))

    check(kernel_of(module, f"asks_for_{add}"), module, change)


@pytest.mark.parametrize("name", ["ByFlag", "ByObject", "ByEnum", "ByFunction", "ByClass"])
@pytest.mark.parametrize("first", [False, True])
def test_a_global_that_decided_a_branch_is_stated(
    name: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def switch(on: bool) -> None:
        monkeypatch.setattr("userpkg.flags.USE", on)
        monkeypatch.setattr(CONFIG, "flag", on)
        monkeypatch.setattr(stated, "KIND", Kind.A if on else Kind.B)
        monkeypatch.setattr(Config, "extra", on)

    switch(first)
    module = getattr(stated, name)().eval()

    check(kernel_of(module, f"{name.lower()}_{first}".lower()), module, lambda _: switch(not first))


def test_a_branch_on_the_environment_is_refused() -> None:
    with pytest.raises(ProblemError, match="reads the environment"):
        captured(stated.ByEnvironment().eval())


def set_private(module: Any) -> None:
    module._factor = 5.0


def set_inner(module: Any) -> None:
    module.held.inner.factor = 5.0


def set_act(module: Any) -> None:
    module.act = stated.scaling(3.0)


@pytest.mark.parametrize("change", [set_private, set_inner, set_act])
def test_a_graph_states_what_it_contains(change: Callable[[Any], None]) -> None:
    module = stated.InAGraph().eval()
    made = kernel_of(module, f"graph_{change.__name__}")
    assert "By torch.export" in made.source

    check(made, module, change)


@pytest.mark.parametrize(
    ("name", "value"), [("SCALE", 9.0), ("scaled", lambda x: x * 8), ("HELD", Inner(5.0))]
)
def test_a_graph_states_globals(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = stated.InAGraph().eval()

    check(
        kernel_of(module, f"graph_{name.lower()}"),
        module,
        lambda _: monkeypatch.setattr(stated, name, value),
    )


def test_a_graph_of_an_instance_with_its_own_method_is_not_for_others() -> None:
    module: Any = stated.InAGraph().eval()
    module.changed = types.MethodType(stated.patched, module)
    made = kernel_of(module, "graph_patched")

    with pytest.raises(guard.NothingBound, match="changed"):
        guard.apply(stated.InAGraph().eval(), made)


def test_a_class_that_was_made_in_a_function_is_not_captured_by_its_graph() -> None:
    with pytest.raises(ProblemError, match=r"the class block_of\.<locals>\.Block was made"):
        captured(stated.block_of(2.0)().eval())


def test_a_closure_over_weights_is_refused() -> None:
    module: Any = stated.InAGraph().eval()
    module.act = stated.applying(nn.Linear(16, 16))

    with pytest.raises(ProblemError, match=r"InAGraph.act is a function that cannot be compared"):
        captured(module)


def test_texts_that_no_code_reads_are_in_no_file() -> None:
    for kind in (stated.InAGraph, stated.ByAlias):
        module: Any = kind(extra=False).eval()
        module.hf_token = "hf_abcdef"
        module.config.data_dir = "/home/alice/patients"
        module.config.names = {"alice": ["bob"]}
        made = kernel_of(module, f"secret_{kind.__name__.lower()}")

        for text in ("hf_abcdef", "alice", "bob"):
            assert text not in made.source
        guard.apply(copy.deepcopy(module), made)
        if kind is stated.InAGraph:
            module.hf_token = "hf_ghijkl"
            with pytest.raises(guard.NothingBound, match="differs: hf_token") as raised:
                guard.apply(module, made)
            assert "hf_ghijkl" not in str(raised.value)
