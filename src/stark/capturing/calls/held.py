"""What modules hold in their attributes: whether a call changed it, and how to put it back."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from stark.capturing.expressions.literals import is_constant

INSIDE = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""Containers of a module's state in its `__dict__`. They are put back; the check compares what they hold."""

OF_TORCH = vars(nn.Module()).keys() - {"training"}
MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
SEQUENCES = (list, deque)
CODE = (type, ModuleType, FunctionType)
DEEPEST = 6
ABSENT = object()


@dataclass(frozen=True)
class _Container:
    path: str
    live: Any
    before: Any
    """A copy with the same entries."""

    named: bool = False
    """Whether its keys are names of attributes."""

    def put_back(self) -> None:
        live, before = self.live, self.before
        if isinstance(live, dict):
            if live.keys() != before.keys() or any(live[key] is not before[key] for key in before):
                live.clear()
                for key, value in before.items():
                    live[key] = value
        elif isinstance(live, set):
            live.clear()
            live.update(before)
        elif len(live) != len(before) or any(a is not b for a, b in zip(live, before, strict=True)):
            live.clear()
            live.extend(before)

    def changed(self) -> Iterator[str]:
        if not self.named:
            yield from () if _same(self.before, self.live) else (self.path,)
            return
        for name in self.before.keys() | self.live.keys():
            if name not in OF_TORCH and not _same(
                self.before.get(name, ABSENT), self.live.get(name, ABSENT)
            ):
                yield f"{self.path}.{name}".lstrip(".")


class Held:
    """The attributes of a module and its submodules as they are now, and the entries of containers and objects there.

    Values of parameters and buffers are no part of it.
    """

    def __init__(self, module: nn.Module) -> None:
        self.tensors: list[torch.Tensor] = []
        """Those outside of the state."""

        self._paths: list[tuple[str, int]] = []
        """Of each tensor: its path and its version, which rises when it is changed in place."""

        known = [*module.parameters(), *module.buffers(), *module.modules()]
        self._known = {id(each) for each in known}
        self._state: list[_Container] = []
        self._containers: list[_Container] = []
        for path, each in module.named_modules():
            own = vars(each)
            self._state += [_Container(name, own[name], own[name].copy()) for name in INSIDE]
            self._attributes(path, own, 0)

    def put_back(self) -> None:
        """Rebind all attributes, and restore the entries of containers; tensors keep their values."""
        for each in [*self._containers, *self._state]:
            each.put_back()

    def changed(self) -> str | None:
        """The path of the first attribute that holds something else now, such as another tensor with equal values."""
        found = [name for each in self._containers for name in each.changed()]
        found += [
            path
            for tensor, (path, version) in zip(self.tensors, self._paths, strict=True)
            if _version(tensor) != version
        ]
        return min(found, default=None)

    def _attributes(self, path: str, own: dict[str, Any], depth: int) -> None:
        self._containers.append(_Container(path, own, dict(own), named=True))
        for name, value in own.items():
            if name not in OF_TORCH:
                self._enter(f"{path}.{name}".lstrip("."), value, depth + 1)

    def _enter(self, path: str, value: Any, depth: int) -> None:
        if id(value) in self._known or depth > DEEPEST or isinstance(value, CODE):
            return
        self._known.add(id(value))
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            self._paths.append((path, _version(value)))
        elif type(value) in (*MAPPINGS, *SEQUENCES, set):
            self._containers.append(_Container(path, value, value.copy()))
            inner = value.values() if isinstance(value, dict) else value
            for each in inner:
                self._enter(path, each, depth + 1)
        elif isinstance(value, tuple):
            for each in value:
                self._enter(path, each, depth + 1)
        elif not is_constant(value) and type(own := getattr(value, "__dict__", None)) is dict:
            self._attributes(path, own, depth)


def _same(before: Any, now: Any) -> bool:
    """Whether two values are one object, or equal containers of such objects and constants."""
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, dict):
        return before.keys() == now.keys() and all(_same(before[key], now[key]) for key in before)
    if isinstance(before, (tuple, *SEQUENCES)):
        return len(before) == len(now) and all(map(_same, before, now))
    if isinstance(before, set):
        return bool(before == now)
    return is_constant(before) and repr(before) == repr(now)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
