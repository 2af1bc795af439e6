"""Runs a kernel's `ModelNew` with the parameters and buffers of another module, directly or as an operator.

A shell is an instance of ModelNew that shares the other module's dictionaries of parameters and buffers, so it sees what
`.to()`, `load_state_dict` or an optimizer does. Where the structures differ, its slots are filled instead.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from stark.capturing.forms import TensorForm, formed, tensors_in, with_tensors
from stark.deploy.contract import ALIGNMENT, Case, Contract, Misfit, own_random_numbers

Getters = Mapping[str, Callable[[], torch.Tensor]]
"""How to get each parameter and buffer, by name."""


def getters(module: nn.Module) -> dict[str, Callable[[], torch.Tensor]]:
    """How to get the parameters and buffers that a module has now."""
    found: dict[str, Callable[[], torch.Tensor]] = {}
    for path, each in module.named_modules(remove_duplicate=False):
        for dictionary in (each._parameters, each._buffers):
            for leaf, tensor in dictionary.items():
                if tensor is not None:
                    name = f"{path}.{leaf}" if path else leaf
                    found[name] = functools.partial(_item, dictionary, leaf)
    return found


def _item(dictionary: dict[str, Any], leaf: str) -> Any:
    return dictionary.get(leaf)


class Shell:
    """A ModelNew that uses the tensors of another module."""

    def __init__(self, module: nn.Module, slots: list[tuple[Any, str, Callable[[], Any]]]) -> None:
        self.module = module
        self.run: Callable[..., Any] = module.forward
        self.slots = slots
        """Dictionaries and keys to fill, with the tensors to fill them with."""

    def fill(self) -> None:
        """Take the tensors that are not shared."""
        for dictionary, leaf, tensor in self.slots:
            dictionary[leaf] = tensor()

    def own_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors that ModelNew made itself: buffers that the other module has not, and plain attributes."""
        filled = {(id(dictionary), leaf) for dictionary, leaf, _ in self.slots}
        for path, each in self.module.named_modules():
            if id(each._buffers) not in self.shared:
                for leaf, tensor in each._buffers.items():
                    if tensor is not None and (id(each._buffers), leaf) not in filled:
                        yield f"{path}.{leaf}".lstrip("."), tensor
            for leaf, value in each.__dict__.items():
                if leaf not in ("_parameters", "_buffers", "_modules"):
                    for place, tensor in tensors_in(value):
                        yield f"{path}.{leaf}{place}".lstrip("."), tensor

    shared: frozenset[int] = frozenset()
    """Identities of the other module's dictionaries."""


def make_shell(
    make: Callable[[str], nn.Module], device: str, tensors: Getters, theirs: nn.Module | None
) -> Shell:
    """A shell with the tensors of a module; without the module, all tensors are filled in. Raises Misfit.

    `make` makes a ModelNew on a device. It is made without memory (on `meta`) if it needs no tensors of its own.
    """
    with suppress(Exception):  # __init__ may need values
        without_memory = make("meta")
        shell = _connected(without_memory, tensors, theirs)
        if not any(tensor.is_meta for _, tensor in shell.own_tensors()):
            return shell
    made = [_seeded(make, device, tensors, theirs, seed) for seed in (0, 0, 1, 1)]
    shell = made[0]
    parts = zip(*(each.own_tensors() for each in made), strict=True)
    for (name, one), (_, same), (_, another), (_, similar) in parts:
        # Memory that is not initialized differs with the same seed, too.
        if _alike(one, same) and _alike(another, similar) and not _alike(one, another):
            raise Misfit(f"ModelNew makes {name} from random numbers, which the module has not")
    return shell


def _seeded(
    make: Callable[[str], nn.Module],
    device: str,
    tensors: Getters,
    theirs: nn.Module | None,
    seed: int,
) -> Shell:
    with own_random_numbers():
        torch.manual_seed(seed)
        try:
            made = make(device)
        except Exception as error:  # the kernel's code may raise anything
            raise Misfit(f"ModelNew cannot be made: {type(error).__name__}: {error}") from error
        return _connected(made, tensors, theirs)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _connected(module: nn.Module, tensors: Getters, theirs: nn.Module | None) -> Shell:
    """Share dictionaries whose keys agree; note slots for other tensors. Raises Misfit."""
    own = getters(module)
    names = {name: name for name in own if name in tensors}
    if own and not names and _shapes(own) == _shapes(tensors):
        names = dict(zip(own, tensors, strict=True))  # the judge, too, then goes by order
    for name, _ in module.named_parameters(remove_duplicate=False):
        if name not in names:
            raise Misfit(f"ModelNew has a parameter {name}, which the module has not")
    for name, given in names.items():
        stride = own[name]().stride()
        if not own[name]().is_contiguous() and stride != tensors[given]().stride():
            raise Misfit(f"ModelNew was verified with {name} in the strides {stride}")
    others = {} if theirs is None else dict(theirs.named_modules())
    slots, shared = [], set()
    for path, each in module.named_modules():
        for kind in ("_parameters", "_buffers"):
            mine, other = getattr(each, kind), getattr(others.get(path), kind, None)
            if other is not None and mine.keys() == other.keys():
                object.__setattr__(each, kind, other)
                shared.add(id(other))
                continue
            for leaf in mine:
                name = f"{path}.{leaf}" if path else leaf
                if name in names:
                    slots.append((mine, leaf, tensors[names[name]]))
    shell = Shell(module, slots)
    shell.shared = frozenset(shared)
    return shell


def _shapes(tensors: Getters) -> list[torch.Size]:
    return [tensor().shape for tensor in tensors.values()]


# Outputs


def fits(found: Any, pattern: Any) -> bool:
    """Whether outputs have the structure, shapes, dtypes and strides of a pattern."""
    tensors, forms = list(tensors_in(found)), list(tensors_in(pattern))
    if [place for place, _ in tensors] != [place for place, _ in forms]:
        return False
    if any(form.fault(t) for (_, t), (_, form) in zip(tensors, forms, strict=True)):
        return False
    alike: bool = formed(found) == with_tensors(pattern, (TensorForm.of(t) for _, t in tensors))
    return alike and type(found) is (torch.Tensor if _is_form(pattern) else type(pattern))


def _is_form(pattern: Any) -> bool:
    return isinstance(pattern, TensorForm)


def in_form(found: Any, pattern: Any) -> Any:
    """Outputs in the structure and with the strides of the original's. The judge compares tensors only."""
    tensors = [tensor for _, tensor in tensors_in(found)]
    forms = [form for _, form in tensors_in(pattern)]
    if len(tensors) != len(forms):
        raise RuntimeError(f"the kernel returns {len(tensors)} tensors, the original {len(forms)}")
    return with_tensors(pattern, map(_restrided, tensors, forms))


def _restrided(tensor: torch.Tensor, form: TensorForm) -> torch.Tensor:
    if form.same_strides(tensor.stride()):
        return tensor
    room = torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device=tensor.device)
    return room.copy_(tensor)


# The operator

LIBRARY = torch.library.Library("stark", "FRAGMENT")
_THREAD = threading.local()


def define_operator(
    name: str, device: str, make: Callable[[str], nn.Module], contract: Contract
) -> Any:
    """The kernel as `torch.ops.stark.<name>(case, inputs, state)`, which graphs contain as it is.

    `state` has the parameters and buffers in the contract's order. The operator's fake knows the forms of the outputs.
    """
    if not hasattr(torch.ops.stark, name):
        LIBRARY.define(f"{name}(int case, Tensor[] inputs, Tensor[] state) -> Tensor[]")
        LIBRARY.impl(name, _implementation(name, device, make, contract), device.upper())
        torch.library.register_fake(f"stark::{name}", _fake(contract), lib=LIBRARY)
    return getattr(torch.ops.stark, name).default


def _implementation(
    name: str, device: str, make: Callable[[str], nn.Module], contract: Contract
) -> Callable[..., list[torch.Tensor]]:
    def run(case: int, inputs: list[torch.Tensor], state: list[torch.Tensor]) -> list[torch.Tensor]:
        shells: dict[str, tuple[Shell, dict[str, torch.Tensor]]]
        shells = _THREAD.__dict__.setdefault("shells", {})
        if name not in shells:
            given = dict(zip(contract.state, state, strict=True))
            tensors = {key: functools.partial(given.__getitem__, key) for key in given}
            shells[name] = make_shell(make, device, tensors, None), given
        shell, given = shells[name]
        given.update(zip(contract.state, state, strict=True))
        shell.fill()
        form: Case = contract.cases[case]
        given_inputs = with_tensors(form.inputs, map(_aligned, inputs))
        outputs = in_form(shell.run(*given_inputs), form.outputs)
        taken = {tensor.untyped_storage()._cdata for tensor in (*inputs, *state)}
        return [_unshared(tensor, taken) for _, tensor in tensors_in(outputs)]

    return run


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A graph may pass views that start anywhere."""
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def _unshared(tensor: torch.Tensor, taken: set[int]) -> torch.Tensor:
    """An operator's output may share no memory with its inputs or other outputs."""
    if tensor.untyped_storage()._cdata in taken:
        tensor = tensor.clone(memory_format=torch.preserve_format)
    taken.add(tensor.untyped_storage()._cdata)
    return tensor


def _fake(contract: Contract) -> Callable[..., list[torch.Tensor]]:
    def fake(
        case: int, inputs: list[torch.Tensor], state: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        device = next(tensor.device for tensor in (*inputs, *state))
        forms = [form for _, form in tensors_in(contract.cases[case].outputs)]
        return [
            torch.empty_strided(each.shape, each.stride, dtype=each.dtype, device=device)
            for each in forms
        ]

    return fake
