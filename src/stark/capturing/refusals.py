"""Refuses modules and calls that cannot be captured exactly, with the reason and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

from stark.capturing.calls import recording
from stark.capturing.calls.recording import Calls, Form
from stark.capturing.calls.repeating import Outcome
from stark.capturing.calls.values import tensors_of
from stark.capturing.expressions.literals import is_plain
from stark.core.errors import ProblemError

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
INSTEAD = {
    "torch.nn.utils.weight_norm": "use torch.nn.utils.parametrizations.weight_norm",
    "torch.nn.utils.spectral_norm": "use torch.nn.utils.parametrizations.spectral_norm",
    "torch.nn.utils.prune": "call torch.nn.utils.prune.remove",
    recording.__name__: "capture after the `with stark.recording` block",
}
"""What to do about a hook, by the Python module that defines it."""

WRAPPERS = {"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel"}


def unwrapped(module: nn.Module) -> nn.Module:
    """The module itself; for a compiled one, the module that was compiled. Raises ProblemError for others."""
    if not isinstance(module, nn.Module):
        raise ProblemError(
            f"A {type(module).__name__} is not an nn.Module; capture an instance of nn.Module."
        )
    original = getattr(module, "_orig_mod", None)
    return original if isinstance(original, nn.Module) else module


def refuse_calls(calls: object) -> None:
    """Raise ProblemError for anything but recorded calls, such as a list of arguments."""
    if not isinstance(calls, Calls):
        raise ProblemError(
            f"The calls are a {type(calls).__name__}; give what `with stark.recording(model) as calls:` recorded."
        )


def refuse_module(module: nn.Module) -> None:
    """Raise ProblemError for a module that no way of capturing can copy exactly."""
    for path, each in module.named_modules():
        _refuse_kind(path, each)
        _refuse_hidden(path, each)
    state = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in state:
        _refuse_tensor(name, tensor)
    for path, each in module.named_modules():
        _refuse_hooks(f"{_named(path, each)} has", [getattr(each, name) for name in HOOKS])
    _refuse_hooks("All modules have", [getattr(torch_module, f"_global{name}") for name in HOOKS])
    if torch.get_default_dtype() != torch.float32:
        raise ProblemError(
            f"torch's default dtype is {torch.get_default_dtype()}; captured files are for float32, so set it back."
        )
    devices = {str(tensor.device) for _, tensor in state}
    if len(devices) > 1:
        raise ProblemError(
            f"The module is on several devices ({', '.join(sorted(devices))}); move it to one, or capture its parts."
        )


def _named(path: str, module: nn.Module) -> str:
    return f"{path or 'The module'} ({type(module).__name__})"


def _refuse_hooks(whose: str, kinds: Sequence[Mapping[int, Any]]) -> None:
    """Raise ProblemError for hooks: a kernel would skip those inside, and a graph has the module's own once more."""
    for hook in (hook for hooks in kinds for hook in hooks.values()):
        defined = getattr(hook, "__module__", "")
        instead = INSTEAD.get(defined, "remove them, or capture a part without them")
        raise ProblemError(f"{whose} hooks, which a kernel cannot contain; {instead}.")


def _refuse_hidden(path: str, module: nn.Module) -> None:
    """Raise ProblemError for weights that the module's state does not have: a kernel would have them as constants."""
    for name, value in vars(module).items():
        if name.startswith("_") and name in vars(nn.Module()):
            continue
        leaves = [value, *pytree.tree_leaves(value)]
        for each in leaves:
            weights = isinstance(each, nn.Module) and any(True for _ in each.parameters())
            if weights or isinstance(each, nn.Parameter):
                raise ProblemError(
                    f"{f'{path}.{name}'.lstrip('.')} holds weights that are not in the module's state; make it a "
                    "submodule (nn.ModuleList, nn.ParameterList), or capture a part without it."
                )


def _refuse_kind(path: str, module: nn.Module) -> None:
    name = _named(path, module)
    if isinstance(module, torch.jit.ScriptModule):
        raise ProblemError(
            f"{name} is TorchScript, whose code is not Python; capture the module before scripting."
        )
    if hasattr(module, "_orig_mod"):
        raise ProblemError(f"{name} is compiled inside the module; capture before torch.compile.")
    if type(module).__name__ in WRAPPERS:
        raise ProblemError(
            f"{name} distributes a module; capture the module inside, before it is wrapped."
        )
    if "quantized" in type(module).__module__ or hasattr(module, "_packed_params"):
        raise ProblemError(f"{name} is quantized; capture the module before quantization.")


def _refuse_tensor(name: str, tensor: torch.Tensor) -> None:
    kind = type(tensor)
    if tensor.is_quantized:
        raise ProblemError(f"{name} is quantized; capture the module before quantization.")
    if kind.__name__ == "DTensor":
        raise ProblemError(f"{name} is a sharded DTensor; capture the module before sharding it.")
    if kind.__name__ in ("UninitializedParameter", "UninitializedBuffer"):
        raise ProblemError(f"{name} has no shape yet; call the module once before capturing it.")
    if kind not in (torch.Tensor, nn.Parameter, nn.Buffer):
        raise ProblemError(
            f"{name} is a {kind.__name__}, a subclass of Tensor; capture the module with plain tensors as weights."
        )
    if tensor.layout != torch.strided:
        raise ProblemError(f"{name} is a sparse tensor; capture a module with dense weights.")
    if tensor.is_meta:
        raise ProblemError(
            f"{name} is on the meta device and has no values; load the weights first."
        )


def refuse_form(module: nn.Module, form: Form) -> None:
    """Raise ProblemError for a call that cannot be repeated exactly."""
    kind = type(module).__name__
    if form.example is None:
        raise ProblemError(f"No arguments of {kind} were kept: {form.note}.")
    if form.autocast is not None:
        raise ProblemError(
            f"{kind} was called under autocast ({form.autocast}), which is not captured; convert the module, for "
            "example by .to(torch.bfloat16), and record it without autocast."
        )
    devices = {str(t.device) for t in [*tensors_of(form.example), *module.parameters()]}
    for tensor in tensors_of(form.example):
        if type(tensor) not in (torch.Tensor, nn.Parameter):
            raise ProblemError(
                f"{kind} is called with a {type(tensor).__name__}, a subclass of Tensor; call it with plain tensors."
            )
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise ProblemError(
                f"{kind} is called with a sparse or quantized tensor; call it with dense tensors."
            )
    if len(devices - {"cpu"}) > 1 or (
        len(devices) > 1 and any(p.device.type == "cpu" for p in module.parameters())
    ):
        raise ProblemError(
            f"{kind} is called with tensors on several devices ({', '.join(sorted(devices))}); move them to one."
        )


def refuse_outcome(module: nn.Module, outcome: Outcome) -> None:
    """Raise ProblemError for a call whose results cannot be compared, or that leaves more than a kernel would."""
    kind = type(module).__name__
    _refuse_outputs(module, outcome.outputs)
    if outcome.random:
        raise ProblemError(
            f"{kind} draws random numbers, so its outputs cannot be compared; "
            f"{'call .eval(), or set its dropout to 0' if module.training else 'pass them as arguments'}."
        )
    if outcome.changed is not None:
        raise ProblemError(
            f"Each call of {kind} changes its attribute {outcome.changed}, which a kernel would not do; remove that, "
            "or keep such state in a buffer."
        )


def _refuse_outputs(module: nn.Module, outputs: Any) -> None:
    """Raise ProblemError for results that are objects of a class which a problem file cannot import."""
    kind = type(outputs)
    if isinstance(outputs, torch.Tensor) or is_plain(outputs):
        return
    if kind.__module__ not in ("builtins", "collections", "torch.return_types"):
        raise ProblemError(
            f"{type(module).__name__}.forward returns a {kind.__name__}, which a problem file cannot contain; return a "
            "tuple, a list or a dict (in transformers: return_dict=False), or capture a submodule that does."
        )
    for inner in outputs.values() if isinstance(outputs, dict) else outputs:
        _refuse_outputs(module, inner)


def refuse_operators(module: nn.Module, operators: Sequence[str]) -> None:
    """Raise ProblemError for operators that only the user's extension defines."""
    if operators:
        raise ProblemError(
            f"{type(module).__name__} calls the custom operator {operators[0]}, which a problem file cannot contain; "
            "capture a module around which it is not used, or use a PyTorch implementation while capturing."
        )
