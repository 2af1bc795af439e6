"""Writes how a module's parameters and buffers are named, registered, laid out in memory, frozen and tied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from stark.capturing.cannot import CannotCapture
from stark.capturing.expressions.drawing import parameter
from stark.capturing.expressions.stored import exact


def finishing(module: nn.Module) -> Iterable[str]:
    """Statements that give a captured model the strides, frozen and tied parameters and the mode of `module`."""
    yield from _strides(module)
    yield from _freezing(module)
    yield f"self.train({module.training})"


def _strides(module: nn.Module) -> Iterable[str]:
    """New weights are contiguous. `module` may have others, such as channels last."""
    for name, tensor in module.named_parameters():
        if not tensor.is_contiguous():
            place = f"self.get_parameter({name!r}).data"
            form = f"{tuple(tensor.shape)}, {tensor.stride()}, dtype={tensor.dtype}"
            yield f"{place} = torch.empty_strided({form}).copy_({place})"


def _freezing(module: nn.Module) -> Iterable[str]:
    """Statements that freeze and tie parameters of the captured model as they are in `module`."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    frozen = [name for name, each in parameters.items() if not each.requires_grad]
    if parameters and len(frozen) == len(parameters):
        yield "self.requires_grad_(False)"
    else:
        yield from (f"self.get_parameter({name!r}).requires_grad_(False)" for name in frozen)
    first: dict[int, str] = {}
    for name, each in parameters.items():
        known = first.setdefault(id(each), name)
        if known != name:
            path, _, last = name.rpartition(".")
            yield f"self.get_submodule({path!r}).{last} = self.get_parameter({known!r})"


HOLDER = '''class Holder(nn.Module):
    """Holds parameters under the names that they have in the original."""

    def __getitem__(self, name):
        return self._modules[str(name)]'''
"""The class of these modules in a captured file."""


def holders(names: Sequence[str]) -> Iterator[str]:
    """Statements that make the modules for these names of parameters and buffers."""
    paths: dict[str, None] = {}
    for name in names:
        parts = name.split(".")[:-1]
        paths |= {".".join(parts[: end + 1]): None for end in range(len(parts))}
    for path in paths:
        outer, _, last = path.rpartition(".")
        if last.isidentifier():
            yield f"{_module(outer)}.{last} = Holder()"
        else:
            yield f"{_module(outer)}.add_module({last!r}, Holder())"


def read(name: str) -> str:
    """The expression of a parameter or buffer."""
    path, _, last = name.rpartition(".")
    return (
        f"{_module(path)}.{last}" if last.isidentifier() else f"getattr({_module(path)}, {last!r})"
    )


def assigned(name: str, expression: str) -> str:
    """The statement that sets a parameter."""
    path, _, last = name.rpartition(".")
    if last.isidentifier():
        return f"{_module(path)}.{last} = {expression}"
    return f"{_module(path)}.register_parameter({last!r}, {expression})"


def registered(name: str, expression: str, persistent: bool) -> str:
    """The statement that registers a buffer."""
    path, _, last = name.rpartition(".")
    kept = "" if persistent else ", persistent=False"
    return f"{_module(path)}.register_buffer({last!r}, {expression}{kept})"


def _module(path: str) -> str:
    """The expression of a module."""
    text = "self"
    for depth, part in enumerate(path.split(".") if path else []):
        if part.isidentifier():
            text += f".{part}"
        elif depth:
            text += f"[{part if part.isdigit() else repr(part)}]"
        else:
            text += f".get_submodule({part!r})"  # Model itself is no Holder
    return text


def buffer_text(buffer: torch.Tensor | None, persistent: bool) -> str:
    """The expression of a buffer. Values of a large persistent one are drawn: they come with the state."""
    if buffer is None:
        return "None"
    try:
        return exact(buffer)
    except CannotCapture:
        if persistent and buffer.is_floating_point():
            return parameter(buffer)
        raise
