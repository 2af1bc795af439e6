"""Runs modules without leaving a trace: buffers, attributes, gradients and random states are put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

INSIDE = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""Containers in a module's `__dict__` that forward may change in place."""


@contextmanager
def unchanged(module: nn.Module, trains: bool = False) -> Iterator[None]:
    """Put back what running `module` may change, and draw from copies of the random states.

    If running it `trains` it, parameters and the contents of gradients are put back, too. The state of an optimizer is
    not the module's, and stays changed.
    """
    submodules = list(module.modules())
    attributes = [(each, dict(vars(each))) for each in submodules]
    inside = [(each, name, vars(each)[name].copy()) for each in submodules for name in INSIDE]
    gradients = [(each, each.grad) for each in module.parameters()]
    state = list(module.buffers())
    if trains:
        state += [tensor for pair in gradients for tensor in pair if tensor is not None]
    before = [tensor.detach().to("cpu", copy=True) for tensor in state]
    devices = sorted({t.device.index or 0 for t in module.parameters() if t.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices), _other_generators():
            yield
    finally:
        for each, known in attributes:
            vars(each).clear()
            vars(each).update(known)
        for each, name, content in inside:
            container = vars(each)[name]
            container.clear()
            container.update(content)
        with torch.no_grad():
            for tensor, content in zip(state, before, strict=True):
                if not torch.equal(tensor.cpu(), content):
                    tensor.copy_(content)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def random_states(module: nn.Module) -> list[Any]:
    """The states of the generators that running `module` may advance, in a form that can be compared."""
    states: list[Any] = [torch.get_rng_state().tolist(), random.getstate()]
    for device in {t.device for t in module.parameters() if t.is_cuda}:
        states.append(torch.cuda.get_rng_state(device).tolist())
    if "numpy" in sys.modules:
        states.append(repr(numpy_state()))
    return states


def numpy_state() -> Any:
    """The state of numpy's global generator."""
    return sys.modules["numpy"].random.get_state()


@contextmanager
def _other_generators() -> Iterator[None]:
    """Put back the states of Python's and numpy's generators."""
    known = random.getstate()
    of_numpy = numpy_state() if "numpy" in sys.modules else None
    try:
        yield
    finally:
        random.setstate(known)
        if of_numpy is not None:
            sys.modules["numpy"].random.set_state(of_numpy)


def plain_state(module: nn.Module) -> dict[str, Any]:
    """The numbers and texts among the attributes of all submodules, by path."""
    return {
        f"{path}.{name}".lstrip("."): value
        for path, each in module.named_modules()
        for name, value in vars(each).items()
        if type(value) in (bool, int, float, str)
    }
