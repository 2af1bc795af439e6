"""What a careless copy would change is copied exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import traps
from test_capture import names_of
from torch import nn

import stark
from stark.capturing.calls.recording import recording

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def captured(
    module: nn.Module, *args: Any, grad: bool = False, **kwargs: Any
) -> tuple[Any, Any, str]:
    """The results of the module and of its copy, and the source. Copies are by source."""
    with torch.set_grad_enabled(grad), recording(module) as calls:
        module(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
    problem = stark.capture(module, calls)
    assert "By torch.export" not in problem.source, problem.source
    model = names_of(problem.source)["Model"]()
    model.load_state_dict(module.state_dict())
    values = dict(zip(problem.declared.original.arguments, args, strict=False)) | kwargs
    taken = [values[name] for name in problem.declared.original.arguments]
    return module(*args, **kwargs), model(*taken), problem.source


SAME: dict[str, Callable[[], nn.Module]] = {
    "a base called with another constant": traps.BaseCalledWithAnotherConstant,
    "a builtin function that is hidden": traps.HidesABuiltin,
    "an attribute that forward sets": traps.AttributeOfForward,
    "one submodule, two constants": traps.SameClassOtherArguments,
    "lists and dicts of parameters": traps.Parameters,
    "cached properties and enums": traps.Cached,
    "an object as configuration": traps.Configured,
    "another name of self, a named tuple, an autograd function": traps.AnotherName,
    "a part without gradients": traps.NoGradientInside,
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("grad", [False, True])
def test_a_trap_is_copied_exactly(name: str, grad: bool) -> None:
    expected, actual, _ = captured(SAME[name](), X, grad=grad)

    assert torch.equal(expected, actual)


def test_a_call_of_forward_that_hooks_do_not_see_is_not_misjudged() -> None:
    module = traps.DirectForward()
    with torch.no_grad(), recording(module) as calls:
        module(X)

    model = names_of(stark.capture(module, calls).source)["Model"]()

    assert torch.equal(module(X), model(X))


def test_a_function_that_was_replaced_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traps, "doubled", traps.tripled)

    expected, actual, source = captured(traps.ReplacedFunction(), X)

    assert torch.equal(X * 3, actual)
    assert torch.equal(expected, actual)
    assert "def tripled" in source and "def doubled" not in source


def test_a_function_of_torch_that_was_replaced_is_not_taken_for_torch_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.nn.functional, "relu", traps.tripled)
    module = traps.CallsRelu()
    with torch.no_grad(), recording(module) as calls:
        module(X)

    source = stark.capture(module, calls).source

    assert "torch.nn.functional.relu was replaced by a function of traps" in " ".join(
        source.split()
    )
    monkeypatch.undo()
    assert torch.equal(X * 3, names_of(source)["Model"]()(X))


def test_a_layer_of_torch_whose_forward_was_replaced_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nn.ReLU, "forward", traps.forward_of_another)
    module = nn.Sequential(nn.ReLU())
    with torch.no_grad(), recording(module) as calls:
        module(X)

    source = stark.capture(module, calls).source

    monkeypatch.undo()
    assert torch.equal(X * 2, names_of(source)["Model"]()(X))


def test_a_table_is_copied_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(traps.TABLE, "tripled", traps.tripled)
    monkeypatch.setattr(traps, "SCALES", [1.0, 7.0])

    _, actual, _ = captured(traps.ChangedTable(), X)

    assert torch.equal(X * 3 * 7.0, actual)


def test_a_module_that_changes_its_argument_with_and_without_gradients() -> None:
    for grad in (False, True):
        with torch.set_grad_enabled(grad), recording(module := traps.InPlace()) as calls:
            module(X.clone().requires_grad_(grad) * 1)

        assert "By torch.export" not in stark.capture(module, calls).source


def test_statistics_of_training_are_updated_and_put_back() -> None:
    module = traps.Statistics()
    with recording(module) as calls:
        module(X)
    before = {name: each.clone() for name, each in module.state_dict().items()}

    problem = stark.capture(module, calls, backward=True)

    assert all(torch.equal(before[n], each) for n, each in module.state_dict().items())
    model = names_of(problem.source)["Model"]()
    assert model.training
    model.load_state_dict(before)
    model(X), module(X)
    assert torch.equal(model[0].running_mean, module[0].running_mean)


def test_variable_arguments_enums_and_nested_results() -> None:
    module = traps.ManyExits()
    with torch.no_grad(), recording(module) as calls:
        module(X, X[:2], X, mode=traps.Speed.SLOW, offset=3)

    problem = stark.capture(module, calls)

    original = problem.declared.original
    assert ("x", "more") == original.arguments
    assert {"mode": "<Speed.SLOW: 1>", "offset": "3"} == original.constants
    model = names_of(problem.source)["Model"]()
    expected, actual = module(X, X[:2], X, mode=traps.Speed.SLOW, offset=3), model(X, (X[:2], X))
    assert torch.equal(expected["x"], actual["x"])
    assert expected["list"][1] is actual["list"][1]


def test_weights_in_half_precision_and_in_training_with_gradients() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).bfloat16()

    expected, actual, source = captured(module, X.bfloat16(), grad=True)

    assert torch.equal(expected, actual)
    assert "nn.Linear(4, 4, dtype=torch.bfloat16)" in source
