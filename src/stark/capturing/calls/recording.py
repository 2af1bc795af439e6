"""Records with which arguments the modules of a model are called, and how often."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from stark.capturing.calls.values import copied, form_of, tensors_of
from stark.capturing.described import kind_of
from stark.capturing.structure import structure_of
from stark.core.errors import UsageError

Example = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""

LEAST_MB = 1024.0
"""Memory for example arguments, in MB, where a tenth of the free memory is less."""


@dataclass
class Form:
    """One form of call: types, shapes, strides and devices of tensors, constants, and the modes of torch.

    Equal modules share a form.
    """

    kind: str
    """The class of the modules as `package.module:QualifiedName`."""

    structure: int
    """The same for equal modules (`structure_of`)."""

    described: Any
    """A hashable description of all arguments."""

    training: bool
    grad: bool
    """Whether gradients were recorded by torch."""

    autocast: str | None
    """The device type and dtype of autocast, such as `cuda torch.bfloat16`; None without autocast."""

    counts: dict[str, int] = field(default_factory=dict)
    """The number of calls by module path; the model itself is ""."""

    example: Example | None = None
    """Arguments of the first call, copied before forward can change them."""

    note: str | None = None
    """Why there is no example, as a sentence."""

    @property
    def calls(self) -> int:
        """How often modules were called in this form."""
        return sum(self.counts.values())

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the modules that were called in this form."""
        return tuple(self.counts)


class Calls:
    """All forms in which the modules of a model were called while `stark.recording` was active."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.forms: list[Form] = []
        self._paths = {id(module): path for path, module in model.named_modules()}

    def path_of(self, module: nn.Module) -> str | None:
        """The path of a module in the recorded model, or None."""
        return self._paths.get(id(module))

    def of(self, module: nn.Module) -> list[Form]:
        """The forms in which this module was called, most calls first.

        If it was not called itself, the forms of equal modules.
        """
        path = self.path_of(module)
        found = [form for form in self.forms if path in form.counts]
        if not found:
            structure = structure_of(module)
            found = [form for form in self.forms if form.structure == structure]
        return sorted(found, key=lambda form: -form.counts.get(path or "", form.calls))

    def __len__(self) -> int:
        return len(self.forms)

    def __iter__(self) -> Iterator[Form]:
        return iter(self.forms)

    def __repr__(self) -> str:
        calls = sum(form.calls for form in self.forms)
        return f"Calls({calls} calls in {len(self.forms)} forms of {kind_of(self.model)})"


@contextmanager
def recording(model: nn.Module, limit_mb: float | None = None) -> Iterator[Calls]:
    """Record how the modules of `model` are called inside the `with` block.

    ```python
    with stark.recording(model) as calls, torch.no_grad():
        model(batch)
    problem = stark.capture(model.layers[0], calls)
    ```

    Compiled modules run eagerly meanwhile. Hooks are removed at the end, whatever happens.

    Args:
        model: Any module; its submodules are recorded too.
        limit_mb: How many MB of example arguments are kept; by default a tenth of the free memory of the model's device,
            and at least 1024. Forms beyond it are counted, but cannot be captured.

    Raises UsageError if `model` is not an nn.Module, or is TorchScript. Parts in TorchScript are not recorded.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"recording needs an nn.Module, not a {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError("TorchScript takes no hooks; record the model before scripting")
    calls = Calls(model)
    note = _Notebook(calls, _tenth_of_memory_mb(model) if limit_mb is None else limit_mb)
    with ExitStack() as hooks:
        hooks.enter_context(eagerly())
        for path, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no hooks
            hook = module.register_forward_pre_hook(
                note.hook(path, module), with_kwargs=True, prepend=True
            )
            hooks.callback(hook.remove)
        yield calls


def _tenth_of_memory_mb(model: nn.Module) -> float:
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(free / 1e7, LEAST_MB)


@contextmanager
def eagerly() -> Iterator[None]:
    """Run compiled modules without compiling, so that hooks see every call.

    Without its compiler, torch has compiled nothing; importing it takes seconds.
    """
    loaded = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if loaded else nullcontext():
        yield


class _Notebook:
    """Notes calls as forms."""

    def __init__(self, calls: Calls, limit_mb: float) -> None:
        self._calls, self._limit_mb = calls, limit_mb
        self._left = limit_mb * 1e6
        self._forms: dict[Any, Form] = {}

    def hook(self, path: str, module: nn.Module) -> Callable[..., None]:
        """A pre-hook of one module."""
        identity = kind_of(module), structure_of(module)

        def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            training, grad, autocast = module.training, torch.is_grad_enabled(), autocast_now()
            described = (form_of(args), form_of(kwargs))
            key = (*identity, described, training, grad, autocast)
            form = self._forms.get(key)
            if form is None:
                form = self._forms[key] = Form(*identity, described, training, grad, autocast)
                self._calls.forms.append(form)
                self._keep(form, (args, kwargs))
            form.counts[path] = form.counts.get(path, 0) + 1

        return note

    def _keep(self, form: Form, example: Example) -> None:
        if (size := sum(t.numel() * t.element_size() for t in tensors_of(example))) > self._left:
            form.note = (
                f"the arguments take {size / 1e6:.0f} MB, and the limit of {self._limit_mb:.0f} MB for examples is "
                "reached; record with a higher limit_mb, or only the module that you want to capture"
            )
            return
        self._left -= size
        form.example = copied(example)


def autocast_now() -> str | None:
    """The device type and dtype of autocast; None if it is off."""
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return f"{device} {torch.get_autocast_dtype(device)}"
    return None


@contextmanager
def in_modes(grad: bool, autocast: str | None, inference: bool = False) -> Iterator[None]:
    """The modes of a recorded call; `autocast` is a value of `autocast_now`."""
    with ExitStack() as modes:
        modes.enter_context(torch.set_grad_enabled(grad))
        if inference:
            modes.enter_context(torch.inference_mode())
        if autocast is not None:
            kind, _, dtype = autocast.partition(" torch.")
            modes.enter_context(torch.autocast(kind, getattr(torch, dtype)))
        yield
