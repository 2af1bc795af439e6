"""Watches every call of a model's modules without a hook on any of them.

Hooks would change what is measured: `TransformerEncoderLayer`, for example, leaves its fast path if a submodule has
one. So `torch.nn.Module.__call__` is replaced while the model runs, for this model's modules in this thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from torch import nn


class Watcher(Protocol):
    """Gets each call of a module as it begins and ends; calls are nested."""

    def enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A call begins."""

    def leave(self, result: Any) -> None:
        """The innermost call ends. `result` is None if it raised an exception."""


def paths_of(model: nn.Module) -> dict[int, str]:
    """For the id of each module, its first path in the model. The shells of compiled modules are left out."""
    return {
        id(module): path
        for path, module in model.named_modules()
        if type(module).__name__ != "OptimizedModule"
    }


@contextmanager
def watched(paths: Mapping[int, str], watcher: Watcher) -> Iterator[None]:
    """Report each call of the modules in `paths` to the watcher."""
    original, thread = nn.Module.__call__, threading.get_ident()
    enter, leave = watcher.enter, watcher.leave

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(self))
        if path is None or threading.get_ident() != thread:
            return original(self, *args, **kwargs)
        result = None
        enter(path, self, args, kwargs)
        try:
            result = original(self, *args, **kwargs)
        finally:
            leave(result)
        return result

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]
