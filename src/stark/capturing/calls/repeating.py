"""Calls a module as it was recorded, on copies of the arguments, and puts everything back that running it may change."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from stark.capturing.calls.held import Held
from stark.capturing.calls.recording import Example, eagerly
from stark.capturing.calls.values import copied, tensors_of, with_each


@dataclass(frozen=True)
class Outcome:
    """What one call returned and changed."""

    outputs: Any
    arguments: Any
    """After the call, so that in-place changes show."""

    buffers: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor | None]
    """Of inputs and parameters that require them; empty if the call was recorded without gradients."""

    random: bool
    """Whether random numbers were drawn."""

    changed: str | None
    """The path of an attribute that holds something else after the call, such as a counter; None if there is none."""


def call(
    module: nn.Module,
    example: Example,
    grad: bool = False,
    mode: AbstractContextManager[Any] | None = None,
    ordered: Callable[[Example], Any] = lambda example: example,
) -> Outcome:
    """Call `module` on a copy of `example`, and put everything back that it changed.

    `mode` is active during forward; `ordered` says in which order the arguments are compared. Raises what forward
    raises.
    """
    with unchanged(module):
        return _run(module, example, grad, mode, ordered)


def settled(module: nn.Module, example: Example, grad: bool) -> Outcome:
    """Like `call`, but `changed` names only what an equal call after the first one changes again.

    So a cache that the first call fills is no change.
    """
    with unchanged(module):
        first = _run(module, example, grad)
        if first.changed is None:
            return first
        again = _run(module, example, grad)
        return replace(again, random=first.random or again.random)


def _run(
    module: nn.Module,
    example: Example,
    grad: bool,
    mode: AbstractContextManager[Any] | None = None,
    ordered: Callable[[Example], Any] = lambda example: example,
) -> Outcome:
    leaves = copied(example)
    args, kwargs = _inside_a_graph(leaves) if grad else leaves
    held, before = Held(module), random_states(module)
    with (
        eagerly(),
        torch.inference_mode(False),
        torch.set_grad_enabled(grad),
        mode or nullcontext(),
    ):
        outputs = module(*args, **kwargs)
    after, changed = random_states(module), held.changed()
    arguments = ordered((args, kwargs))
    inputs = {f"argument {i}": each for i, each in enumerate(tensors_of(ordered(leaves)))}
    gradients = _gradients(outputs, inputs | dict(module.named_parameters())) if grad else {}
    return Outcome(
        outputs=outputs,
        arguments=arguments,
        buffers={name: each.detach().clone() for name, each in module.named_buffers()},
        gradients=gradients,
        random=before != after,
        changed=changed,
    )


def _inside_a_graph(leaves: Any) -> Any:
    """Copies through which gradients flow, since leaves that require them cannot be changed in place."""

    def inside(leaf: torch.Tensor) -> torch.Tensor:
        copy = leaf.clone(memory_format=torch.preserve_format) if leaf.requires_grad else leaf
        return copy if copy.stride() == leaf.stride() else leaf

    return with_each(leaves, inside)


def _gradients(outputs: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """Gradients of a fixed function of all outputs."""
    wanted = {name: each for name, each in inputs.items() if each.requires_grad and each.is_leaf}
    reached = [each for each in tensors_of(outputs) if each.requires_grad]
    if not wanted or not reached:
        return {}
    cotangents = [_cotangent(each) for each in reached]
    found = torch.autograd.grad(reached, list(wanted.values()), cotangents, allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def _cotangent(output: torch.Tensor) -> torch.Tensor:
    """A fixed tensor of the output's form, without a repeating pattern."""
    values = torch.cos(torch.arange(output.numel(), device=output.device))
    return values.reshape(output.shape).to(output.dtype)


@contextmanager
def unchanged(module: nn.Module, trains: bool = False) -> Iterator[None]:
    """Put back what running `module` may change, and draw from copies of the random states.

    If running it `trains` it, parameters and the contents of gradients are put back, too. The state of an optimizer is
    not the module's, and stays changed.
    """
    held = Held(module)
    gradients = [(each, each.grad) for each in module.parameters()]
    plain = [t for t in held.tensors if type(t) is torch.Tensor and t.layout == torch.strided]
    state = [*module.buffers(), *(tensor for tensor in plain if not tensor.is_meta)]
    if trains:
        state += [tensor for pair in gradients for tensor in pair if tensor is not None]
    before = [tensor.detach().to("cpu", copy=True) for tensor in state]
    devices = sorted({t.device.index or 0 for t in module.parameters() if t.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices), _other_generators():
            yield
    finally:
        held.put_back()
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
