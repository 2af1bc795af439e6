"""Writes the last statements of a captured `__init__`: how the module's weights lie in memory, are frozen and tied."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def finishing(module: nn.Module) -> Iterable[str]:
    """Statements that give a captured model the strides, frozen and tied parameters and the mode of `module`."""
    yield from _strides(module)
    yield from _freezing(module)
    yield f"self.train({module.training})"


def _strides(module: nn.Module) -> Iterable[str]:
    """New weights are contiguous. `module` may have others, such as channels last."""
    with torch.no_grad():
        odd = {n: t for n, t in module.named_parameters() if not t.is_contiguous()}
        last = {
            n: t.contiguous(memory_format=torch.channels_last)
            for n, t in odd.items()
            if t.dim() == 4
        }
    if (
        odd
        and odd.keys() == last.keys()
        and all(t.stride() == last[n].stride() for n, t in odd.items())
    ):
        yield "self.to(memory_format=torch.channels_last)"
        return
    for name, tensor in odd.items():
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
