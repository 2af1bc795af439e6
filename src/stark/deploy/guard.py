"""Puts a kernel into live modules: it runs for the calls that it was verified for, the original for all others.

A bound module keeps its class, parameters, buffers and submodules; only `forward` is replaced, on the instance. The new
forward is generated for the module's signature. It compares everything that can change between calls with what was
verified. If anything differs, `Bound.decide` finds the reason, counts it, and the original's forward runs.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import copy
import functools
import linecache
import platform
import types
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from stark.capturing.described import kind_of
from stark.deploy.bound import OWN, Bound, forget
from stark.deploy.contract import Contract, Misfit, as_verified, read_contract
from stark.deploy.shell import define_operator


class NothingBound(ValueError):
    """No module of the model could be bound. The message has the reason for each module."""


@dataclass(frozen=True)
class Report:
    """What became of a model's modules and of their calls. Counts are approximate if threads share a module."""

    bound: dict[str, str]
    """The class of each bound module by its path. The path of the model itself is empty."""

    skipped: dict[str, str]
    """Why a module was not bound, by path."""

    idle: dict[str, str]
    """Why no call of a bound module can run the kernel as the module is now, by path."""

    kernel_calls: int
    """Calls that ran the kernel. Tracing a call into a graph counts once; calls of the graph do not count."""

    original_calls: dict[str, int]
    """Calls that ran the original, by reason."""

    examples: dict[str, str]
    """Details of the latest call with this reason."""

    def __str__(self) -> str:
        lines = [f"bound: {_shown(path)} ({name})" for path, name in self.bound.items()]
        lines += [f"skipped: {_shown(path)}: {why}" for path, why in self.skipped.items()]
        lines += [f"no call can run the kernel: {_shown(p)}: {why}" for p, why in self.idle.items()]
        lines.append(f"ran the kernel: {self.kernel_calls}")
        for reason, count in self.original_calls.items():
            details = self.examples.get(reason)
            lines.append(f"ran the original: {count}, {reason}{f' ({details})' if details else ''}")
        return "\n".join(lines)


def _shown(path: str) -> str:
    return path or "the model"


class Kernel:
    """A kernel with the reference that it was verified against."""

    def __init__(
        self, new: type[nn.Module], reference: str, *, name: str, device: str, architecture: str
    ) -> None:
        """`new` is the class `ModelNew`, `reference` the problem's source, `device` is `cpu` or `cuda`.

        `name` is an identifier that no other kernel has; the kernel's operator is `torch.ops.stark.<name>`.
        """
        self.new, self.name, self.device, self.architecture = new, name, device, architecture
        self.source = reference
        self.reference = types.ModuleType(f"reference_of_{name}")
        file = f"<reference of {name}>"
        linecache.cache[file] = len(reference), None, reference.splitlines(True), file
        exec(compile(reference, file, "exec", dont_inherit=True), self.reference.__dict__)

    @functools.cached_property
    def contract(self) -> Contract:
        """What the kernel may replace. Its first use runs the problem's `get_inputs` and forward."""
        return read_contract(self.reference, self.source, self.device)

    def contract_for(self, module: nn.Module) -> Contract:
        """The contract with the original, or with the reference's own `Model`."""
        is_own = type(module) is self.reference.Model
        return self.contract.with_reference if is_own else self.contract

    @functools.cached_property
    def operator(self) -> Any:
        """The kernel as an operator, which torch.compile and torch.export take as it is."""
        return define_operator(self.name, self.device, self.make, self.contract)

    def make(self, device: str) -> nn.Module:
        """A ModelNew on a device, in the verified training mode."""
        return self._made(self.new, device)

    def make_reference(self, device: str) -> nn.Module:
        """The reference's Model on a device, in the verified training mode."""
        return self._made(self.reference.Model, device)

    def _made(self, kind: type[nn.Module], device: str) -> nn.Module:
        with as_verified(), torch.device(device):
            made = kind(*copy.deepcopy(self.reference.get_init_inputs()))
        training = self.contract.training
        return made if training is None else made.train(training)

    def check_machine(self) -> None:
        """Raise Misfit if no device of this machine can run the kernel."""
        if self.device == "cpu" and platform.machine() != self.architecture:
            raise Misfit(f"the kernel is for {self.architecture}, not {platform.machine()}")

    def guarded(self) -> nn.Module:
        """A new instance of the reference's `Model` with this kernel, on the CPU. Raises NothingBound."""
        model: nn.Module = self.reference.Model(*self.reference.get_init_inputs())
        try:
            bind(model, self, Applied())
        except Misfit as why:
            raise NothingBound(str(why)) from None
        return model


class Applied:
    """A kernel in a model. As a context manager, it removes the kernel at the end."""

    def __init__(self) -> None:
        self.bound: dict[str, Bound] = {}
        self.skipped: dict[str, str] = {}
        self.copies: weakref.WeakSet[Bound] = weakref.WeakSet()
        """Modules in copies of the model (`copy.deepcopy`)."""

    @property
    def everyone(self) -> list[Bound]:
        """All bound modules."""
        return [*self.bound.values(), *self.copies]

    def report(self) -> Report:
        """Which modules were bound or skipped, and how many calls ran the kernel or the original."""
        counts: dict[str, int] = {}
        examples: dict[str, str] = {}
        for each in self.everyone:
            for reason, count in list(each.counts.items()):
                counts[reason] = counts.get(reason, 0) + count
            examples |= each.examples
        return Report(
            bound={path: each.name for path, each in self.bound.items()},
            skipped=dict(self.skipped),
            idle={path: why for path, each in self.bound.items() if (why := each.other_dtype())},
            kernel_calls=sum(each.calls for each in self.everyone),
            original_calls=counts,
            examples=examples,
        )

    def remove(self) -> None:
        """Give every module, and its copies, the original's forward back."""
        for each in self.everyone:
            each.unbind()

    def __enter__(self) -> Applied:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return str(self.report())


def apply(model: nn.Module, kernel: Kernel, names: Sequence[str] | None = None) -> Applied:
    """Bind a kernel to the original's instances in a model, or to the modules whose paths match `names`.

    Names may be patterns, such as `layers.*.mlp`; `""` is the model itself. Raises NothingBound.
    """
    try:
        wanted = kernel.contract.original
    except Misfit as why:
        raise NothingBound(str(why)) from why
    if names is None and wanted is None:
        raise NothingBound("the problem does not name a module's class; give the modules' names")
    applied = Applied()
    for path, module in model.named_modules():
        if names is None and kind_of(module) != wanted:
            if type(module).__qualname__ == str(wanted).partition(":")[2]:
                applied.skipped[path] = f"it is a {kind_of(module)}, not a {wanted}"
        elif names is None or any(fnmatchcase(path, name) for name in names):
            try:
                kernel.check_machine()
                applied.bound[path] = bind(module, kernel, applied)
            except Misfit as why:
                applied.skipped[path] = str(why)
    if not applied.bound:
        none = f"the model has no module named {', '.join(names or ())}"
        if names is None:
            none = f"the model has no {wanted}; it has {_classes(model)}"
        reasons = [f"{_shown(path)}: {why}" for path, why in applied.skipped.items()]
        raise NothingBound("; ".join(reasons) or none)
    return applied


def _classes(model: nn.Module) -> str:
    names = list(dict.fromkeys(kind_of(module) for module in model.modules()))
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def bind(module: nn.Module, kernel: Kernel, applied: Applied) -> Bound:
    """Replace a module's forward. Raises Misfit with the reason if the kernel cannot take the module's place."""
    if "_stark" in module.__dict__:
        raise Misfit("it has a kernel already")
    if module.__dict__.get("forward") is not None:
        raise Misfit("its forward was replaced on the instance")
    bound = fitted(module, kernel, applied)
    own = module.__dict__
    own["_stark"] = bound
    for name, function in INSTEAD.items():
        own[name] = types.MethodType(function, module)
    own["forward"] = types.MethodType(bound.forward, module)
    return bound


def fitted(module: nn.Module, kernel: Kernel, applied: Applied) -> Bound:
    """The module with the kernel, before anything of it is replaced. Raises Misfit."""
    check_structure(module, kernel)
    bound = Bound(module, kernel, applied)
    check_state(bound)
    return bound


def check_structure(module: nn.Module, kernel: Kernel) -> None:
    """Raise Misfit unless the class, the submodules and the names of the state are those that were captured."""
    contract = kernel.contract_for(module)
    if contract.original not in (None, kind_of(module)):
        raise Misfit(f"it is a {kind_of(module)}, not a {contract.original}")
    if any(len(case.inputs) != len(contract.arguments) for case in contract.cases):
        raise Misfit("the problem does not name the arguments that get_inputs gives")
    own = dict(module.named_modules())
    for path, expected in contract.classes.items():
        from_torch = expected.__module__.startswith("torch.") and expected is not nn.Module
        if path and from_torch and path not in own:
            raise Misfit(f"it has no submodule {path}")
        if path and from_torch and type(own[path]) is not expected:
            found = kind_of(own[path])
            raise Misfit(
                f"{path} is a {found}, not a {expected.__module__}:{expected.__qualname__}"
            )
    if differing := contract.saved ^ module.state_dict(keep_vars=True).keys():
        raise Misfit(f"its state_dict differs in {', '.join(sorted(differing)[:4])}")


def check_state(bound: Bound) -> None:
    """Raise Misfit for a parameter of another shape or an attribute of another value; both rarely change."""
    parts = bound.parts
    for name in parts.state:
        found, expected = tuple(parts.tensors[name]().shape), bound.contract.state[name].shape
        if found != expected:
            raise Misfit(f"{name} has the shape {list(found)}, not {list(expected)}")
    if fault := parts.overridden() or parts.attributes() or parts.code() or parts.untied():
        raise Misfit(": ".join(fault))


def _getstate(self: nn.Module) -> Any:
    """A module is pickled as what it was."""
    theirs = getattr(type(self), "__getstate__", None)
    state = self.__dict__ if theirs is None else theirs(self)
    if isinstance(state, dict):
        theirs_too = {"forward"} if self.__dict__["_stark"].was_replaced else set()
        return {n: value for n, value in state.items() if n not in OWN or n in theirs_too}
    return state


def _deepcopy(self: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A copy has the kernel, too."""
    bound: Bound = self.__dict__["_stark"]
    if hasattr(type(self), "__deepcopy__"):
        copied: nn.Module = type(self).__deepcopy__(self, memo)  # type: ignore[attr-defined]
        forget(copied)
    else:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(_getstate(self), memo))
    with suppress(Misfit):  # the module has changed since it was bound
        bound.applied.copies.add(bind(copied, bound.kernel, bound.applied))
    return copied


def _replica(self: nn.Module) -> Any:
    """DataParallel's replicas run the original: their weights are no parameters."""
    replica = type(self)._replicate_for_data_parallel(self)
    forget(replica)
    return replica


INSTEAD: dict[str, Callable[..., Any]] = {
    "__getstate__": _getstate,
    "__deepcopy__": _deepcopy,
    "_replicate_for_data_parallel": _replica,
}


def forward_for(module: nn.Module, kernel: Kernel) -> Callable[..., Any]:
    """The guarded forward for a module whose forward was replaced by another library, which calls this function.

    A module that the kernel does not fit runs its own forward.
    """
    own = module.__dict__
    late = own.setdefault("_stark_late", _Late())
    if late.forward is None:
        replaced = own.pop("forward", None)
        try:
            bound = fitted(module, kernel, Applied())
            late.forward = types.MethodType(bound.forward, module)
        except Misfit:
            late.forward = types.MethodType(type(module).forward, module)
        if replaced is not None:
            own["forward"] = replaced
    forward: Callable[..., Any] = late.forward
    return forward


class _Late:
    """A guarded forward that is made at the first call. Copies of a module make their own."""

    def __init__(self) -> None:
        self.forward: Callable[..., Any] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Late:
        return _Late()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Late, ()
