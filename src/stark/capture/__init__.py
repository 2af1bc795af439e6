"""The way in: records how a model's modules are called, and captures one of them as a problem.

`stark.capture(module, calls)` works although this package has the same name: the module object is callable.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from stark.capture.capturing import capture as capture
from stark.capture.recording import Calls as Calls
from stark.capture.recording import Form as Form
from stark.capture.recording import recording as recording

__all__ = ["Calls", "Form", "capture", "recording"]


class _Callable(ModuleType):
    """Importing this package binds `stark.capture` to it, so the package is called like the function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return capture(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
__doc__ = capture.__doc__ or ""
__signature__ = inspect.signature(capture)
