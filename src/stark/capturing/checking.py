"""Checks a captured file against the original: same state, same results to the bit on the recorded inputs."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stark.capturing.calls.cases import Binding, Case
from stark.capturing.calls.repeating import Outcome, call
from stark.capturing.calls.values import form_of, tensors_of
from stark.capturing.cannot import CannotCapture, users_code
from stark.capturing.forms import TensorForm

FILE = "<captured>"
MODULE = "stark_captured"


def check(
    module: nn.Module, text: str, binding: Binding, cases: Sequence[Case], draws: int = 1
) -> None:
    """Run the captured Model with the original's weights. Raises CannotCapture if anything differs.

    With more `draws` of inputs, shapes of outputs that depend on values are noticed more surely.
    """
    with torch.random.fork_rng(devices=[]), _loaded(text) as space:
        model = _model(module, space)
        for case in cases:
            _check_case(module, model, binding, case)
            for _ in range(draws):
                _check_inputs(model, space, binding, case, len(cases) > 1)


@contextmanager
def _loaded(text: str) -> Iterator[dict[str, Any]]:
    """The names of the captured file, which is a module meanwhile, as dataclasses need it."""
    home = types.ModuleType(MODULE)
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    sys.modules[MODULE] = home
    try:
        with users_code("the copied code does not load (REASON)"):
            exec(compile(text, FILE, "exec"), vars(home))
        yield vars(home)
    finally:
        sys.modules.pop(MODULE, None)
        linecache.cache.pop(FILE, None)


def _model(module: nn.Module, space: dict[str, Any]) -> nn.Module:
    """The captured Model on the original's device, with its weights. There, large weights are drawn in no time."""
    device = next(
        (t.device for t in [*module.parameters(), *module.buffers()]), torch.device("cpu")
    )
    with users_code("the captured __init__ fails (REASON)"), device:
        model = space["Model"]()
    ours, theirs = model.state_dict(), module.state_dict()
    if difference := set(ours) ^ set(theirs):
        raise CannotCapture(f"the captured state differs in {', '.join(sorted(difference)[:3])}")
    for name in theirs:
        if (ours[name].shape, ours[name].dtype) != (theirs[name].shape, theirs[name].dtype):
            raise CannotCapture(f"the captured {name} has another shape or dtype")
    model.to(device)
    model.load_state_dict(theirs)
    known = dict(module.named_buffers())
    for name, buffer in model.named_buffers():
        if name not in theirs and name in known and not _same_bits(buffer, known[name]):
            raise CannotCapture(f"the captured values of {name} differ")
    for name, each in module.named_parameters():
        if model.get_parameter(name).requires_grad != each.requires_grad:
            raise CannotCapture(f"requires_grad of {name} differs")
    if model.training != module.training:
        raise CannotCapture("the captured module is in the other training mode")
    return model  # type: ignore[no-any-return]


def _check_case(module: nn.Module, model: nn.Module, binding: Binding, case: Case) -> None:
    example = case.form.example
    assert example is not None
    first = call(module, example, case.form.grad, ordered=binding.values)
    again = call(module, example, case.form.grad, ordered=binding.values)
    given = tuple(binding.values(example)), dict[str, Any]()
    with users_code("the captured forward fails (REASON)"):
        ours = call(model, given, case.form.grad, ordered=lambda example: example[0])
    _compare(first, again, ours)


def _compare(first: Outcome, again: Outcome, ours: Outcome) -> None:
    kept = set(first.buffers) & set(ours.buffers)
    for what, a, b, c in (
        ("outputs", first.outputs, again.outputs, ours.outputs),
        (
            "arguments after the call",
            list(first.arguments),
            list(again.arguments),
            list(ours.arguments),
        ),
        (
            "buffers",
            *({n: b for n, b in o.buffers.items() if n in kept} for o in (first, again, ours)),
        ),
        ("gradients", first.gradients, again.gradients, ours.gradients),
    ):
        if reason := difference(a, b, c):
            raise CannotCapture(f"the captured {what} differ: {reason}")


def difference(first: Any, again: Any, ours: Any) -> str | None:
    """How `ours` differs from `first`; None if it is equal to the bit, or as close as `again` is to `first`."""
    (a, structure), (b, _), (c, captured) = map(pytree.tree_flatten, (first, again, ours))
    if structure != captured:
        return "their structure is another"
    for index, (x, y, z) in enumerate(zip(a, b, c, strict=True)):
        if not isinstance(x, torch.Tensor):
            if type(x) is not type(z) or (x is not z and x != z):
                return f"number {index + 1} is {z!r} instead of {x!r}"
        elif not isinstance(z, torch.Tensor):
            return f"number {index + 1} is {z!r} instead of a tensor"
        elif form_of(x) != form_of(z):
            return f"number {index + 1} is {_form_text(z)} instead of {_form_text(x)}"
        elif not _same_bits(x, z) and not _within(x, y, z):
            error = (x.double() - z.double()).abs().max().item() if x.numel() else 0.0
            return f"values of number {index + 1} differ by up to {error:.3g}"
    return None


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    a, b = (each.detach().contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(a, b)


def _within(first: torch.Tensor, again: torch.Tensor, ours: torch.Tensor) -> bool:
    """Whether the original itself varies from run to run, and by as much."""
    if not first.is_floating_point() or _same_bits(first, again):
        return False
    varies = (first.double() - again.double()).abs().max()
    return bool((first.double() - ours.double()).abs().max() <= 2 * varies)


def _form_text(tensor: torch.Tensor) -> str:
    text = f"{tensor.dtype} of shape {tuple(tensor.shape)} with strides {tensor.stride()}"
    return f"{text}{' that requires gradients' if tensor.requires_grad else ''}"


def _check_inputs(
    model: nn.Module, space: dict[str, Any], binding: Binding, case: Case, several: bool
) -> None:
    """The drawn inputs have the recorded forms, and forward takes them and returns outputs of the recorded shapes."""
    assert case.form.example is not None
    recorded = binding.values(case.form.example)
    with users_code("get_inputs fails (REASON)"):
        drawn = space["get_inputs"](case.name) if several else space["get_inputs"]()
    for name, theirs, ours in zip(binding.arguments, recorded, drawn, strict=True):
        for a, b in zip(tensors_of(theirs), tensors_of(ours), strict=True):
            if fault := TensorForm.of(a).fault(b):
                raise CannotCapture(f"the drawn {name} has {fault[0]}: {fault[1]}")
    device = next((t.device for t in tensors_of(recorded)), torch.device("cpu"))
    drawn = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), drawn)
    with users_code("the captured forward fails on drawn inputs (REASON)"):
        fresh = call(model, (tuple(drawn), {}))
    known = call(model, (tuple(recorded), {}))
    for a, b in zip(tensors_of(known.outputs), tensors_of(fresh.outputs), strict=False):
        if a.shape != b.shape:
            raise CannotCapture(
                f"the shape of an output depends on values: {tuple(a.shape)}, and {tuple(b.shape)} for other inputs"
            )
