"""The parts of a module with a kernel: whether they are as verified, and a quick test whether they are the same objects.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import copy
import enum
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from stark.capturing.described import MISSING, NAMED, described, found, is_as, matches, name_of
from stark.deploy.contract import Contract, attribute
from stark.deploy.shell import getters
from stark.deploy.source import is_plain, plain_tests

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(getattr(torch_module, f"_global{name}") for name in HOOKS)

Reason = tuple[str, str]
"""Why the original runs: what is counted, and the details of this call."""


class Parts:
    """The submodules, code, attributes and state that a module had when its kernel was bound."""

    def __init__(self, module: nn.Module, contract: Contract) -> None:
        self.module, self.contract = module, contract
        self.original = type(module).forward
        self.classes = {path: type(part) for path, part in module.named_modules()}
        self.forwards = {kind: kind.forward for kind in self.classes.values()}
        self.tensors = getters(module)
        self.state = [name for name in contract.state if name in self.tensors]
        """The contract's state without constants of the reference, which the module has not."""

    def changed(self, misplaced: Callable[[torch.Tensor], Reason | None]) -> Reason | None:
        """What differs from what was verified; `misplaced` says what is wrong with a tensor's memory."""
        return (
            self._submodules()
            or self.overridden()
            or self.attributes()
            or self.code()
            or self._tensors(misplaced)
            or self.untied()
            or self._mode()
        )

    def _submodules(self) -> Reason | None:
        parts = dict(self.module.named_modules())
        for path in {**self.classes, **parts}:
            part = parts.get(path)
            if part is None or type(part) is not self.classes.get(path):
                return "a submodule was added, replaced or removed", path
            if type(part).forward is not self.forwards[type(part)]:
                return "the class has another forward than when it was bound", path
            if path and any(getattr(part, hooks) for hooks in HOOKS):
                return "a submodule has hooks", path
        return ("all modules have hooks", "") if any(GLOBAL_HOOKS) else None

    def overridden(self) -> Reason | None:
        """A submodule whose forward another library has replaced on the instance, as accelerate does."""
        for path, part in self.module.named_modules():
            bound = part.__dict__.get("_stark")
            if path and "forward" in part.__dict__ and (bound is None or bound.was_replaced):
                return "a submodule's forward was replaced", path
        return None

    def attributes(self) -> Reason | None:
        """An attribute with another value than verified."""
        for path, attributes in self.contract.attributes.items():
            for name, expected in attributes.items():
                where = f"{path}.{name}".lstrip(".")
                try:
                    part = self.module.get_submodule(path)
                    value = attribute(part, name)
                except AttributeError:
                    if expected == MISSING:
                        continue
                    return "an attribute is missing", where
                if isinstance(value, torch.Tensor) and (value.is_meta or is_traced(value)):
                    continue  # it has no values now
                if self.contract.changes_tensors and name in part._buffers:
                    continue  # no kernel can take it for a constant
                if not matches(value, expected):
                    values = f"{described(value)}, not {expected}"
                    secret = expected.startswith("digest ")
                    return "an attribute differs", where if secret else f"{where} is {values}"
        return None

    def code(self) -> Reason | None:
        """A function, method, class or global constant of the original that is not as captured."""
        differs = "the original's code differs from what was captured"
        for name, expected in self.contract.code.items():
            try:
                if not is_as(name, expected):
                    return differs, name
            except LookupError:
                return differs, name
        for path, part in self.module.named_modules() if self.contract.original else ():
            for kind in type(part).__mro__:
                if _defined_again(kind):
                    return differs, f"{name_of(kind)} was defined again"
            for leaf, home in self.contract.methods(part):
                if leaf in part.__dict__ and leaf != "forward" and not _is_cached(home, leaf):
                    return differs, f"{path}.{leaf}".lstrip(".")
                if f"{name_of(home)}.{leaf}" not in self.contract.code:
                    return differs, f"{name_of(home)}.{leaf}"
        return None

    def _tensors(self, misplaced: Callable[[torch.Tensor], Reason | None]) -> Reason | None:
        if getters(self.module).keys() != self.tensors.keys():
            return "parameters or buffers were added or removed", ""
        for name in self.state:
            tensor = self.tensors[name]()
            if not (is_traced(tensor) or is_plain(tensor)):
                return "a parameter or buffer is not a plain tensor", f"{name}: {type(tensor)}"
            if fault := self.contract.state[name].fault(tensor) or misplaced(tensor):
                return f"a parameter or buffer has {fault[0]}", f"{name}: {fault[1]}"
        return None

    def untied(self) -> Reason | None:
        """Whether names that are one tensor in the reference are several here."""
        for names in self.contract.tied:
            found = [self.tensors[name]() for name in names if name in self.tensors]
            if any(each is not found[0] for each in found):
                return "parameters are no longer tied", ", ".join(names)
        return None

    def _mode(self) -> Reason | None:
        """Whether a part is in another training mode than verified."""
        expected = self.contract.training
        for path, part in self.module.named_modules():
            if expected is not None and part.training is not expected:
                return f"verified for {'train' if expected else 'eval'}() only", path
        return None

    def same(self, gpu: int | None, names: dict[str, Any]) -> Iterator[str]:
        """Tests that the module has the parts that it has now, and that `.to()` did not change them in place.

        `gpu` is the index of the tensors' device, None for a CPU. `names` gets what the tests use.
        """
        module, contract = self.module, self.contract
        hooks = [getattr(m, name) for path, m in module.named_modules() if path for name in HOOKS]
        named = {f"hooks{index}": each for index, each in enumerate([*hooks, *GLOBAL_HOOKS])}
        names |= named | {"described": described}
        yield f"not ({' or '.join(named)})"
        if gpu is not None:
            names["current"] = torch.cuda.current_device
            yield f"current() == {gpu}"
        for index, (kind, forward) in enumerate(self.forwards.items()):
            names |= {f"kind{index}": kind, f"own{index}": forward}
            yield f"kind{index}.forward is own{index}"
        tests = (_same_global(full, str(i), names) for i, full in enumerate(contract.code))
        yield from dict.fromkeys(test for each in tests for test in each)
        for index, (path, part) in enumerate(module.named_modules()):
            yield from self._same_part(path, part, str(index), names)
        for index, name in enumerate(self.state):
            yield from self._same_tensor(name, str(index), names)

    def forms(self, names: dict[str, Any]) -> dict[str, list[str]]:
        """Tests that a weight was not changed in place to another form, by its name in the tests of `same`."""
        forms = map(self.contract.state.__getitem__, self.state)
        return {f"p{i}": [*plain_tests(f"p{i}", form, names)] for i, form in enumerate(forms)}

    def _same_part(
        self, path: str, part: nn.Module, index: str, names: dict[str, Any]
    ) -> Iterator[str]:
        names[f"g{index}"] = part.__dict__
        if self.contract.training is not None:
            yield f"g{index}['training'] is {self.contract.training}"
        if path and "forward" in part.__dict__:
            names[f"f{index}"] = part.__dict__["forward"]
            yield f"g{index}.get('forward') is f{index}"
        elif path:
            yield f"'forward' not in g{index}"
        for leaf, home in self.contract.methods(part):
            if leaf != "forward" and not _is_cached(home, leaf):
                yield from _not_nearer(part, leaf, index, names)
        for kind, tensors in (("u", part._parameters), ("v", part._buffers)):
            names[f"{kind}{index}"] = tensors
            for leaf, tensor in tensors.items():
                if tensor is None:
                    yield f"{kind}{index}[{leaf!r}] is None"
        if part._modules:
            names |= {f"m{index}": part._modules, f"c{index}": dict(part._modules)}
            yield f"m{index} == c{index}"
        for place, name in enumerate(self.contract.attributes.get(path, ())):
            if not self.contract.changes_tensors:
                yield from _same_buffer(part, name, index, str(place), names)
            yield from _same_attribute(part, name, index, str(place), names)

    def _same_tensor(self, name: str, index: str, names: dict[str, Any]) -> Iterator[str]:
        getter = self.tensors[name]
        tensor = getter()
        names[f"p{index}"] = tensor
        names[f"d{index}"] = getter.args[0]  # type: ignore[attr-defined]
        yield f"d{index}[{name.rpartition('.')[2]!r}] is p{index}"
        # Other memory, as after `.to()` or `.data = `, may be elsewhere or not aligned.
        names[f"q{index}"] = tensor.data_ptr  # quicker than looked up
        yield f"q{index}() == {tensor.data_ptr()}"


def _defined_again(kind: type) -> bool:
    """Whether a class's name stands for another class now. Classes of functions have no such name."""
    try:
        now = found(name_of(kind))
    except LookupError:
        return False
    return isinstance(now, type) and now is not kind


def _is_cached(home: type, leaf: str) -> bool:
    """Whether instances keep the value of a property, which is then compared as an attribute."""
    return isinstance(vars(home).get(leaf), functools.cached_property)


def _not_nearer(part: nn.Module, name: str, index: str, names: dict[str, Any]) -> Iterator[str]:
    """Tests that neither the instance nor a nearer class has an attribute that a class has."""
    yield f"{name!r} not in g{index}"
    for depth, kind in enumerate(type(part).__mro__):
        if name in vars(kind):
            return
        names[f"k{index}_{depth}"] = vars(kind)
        yield f"{name!r} not in k{index}_{depth}"


def _same_global(full: str, index: str, names: dict[str, Any]) -> Iterator[str]:
    """Tests that a global of the original's code, and what it is an attribute of, are the objects that they were."""
    home, _, path = full.partition(":")
    value: Any = sys.modules.get(home)
    for leaf in path.split("."):
        owner, space = f"h{id(value)}", getattr(value, "__dict__", {})
        value = space.get(leaf)
        name = f"v{id(value)}"
        names |= {owner: space, name: value}
        yield f"{owner}.get({leaf!r}) is {name}"
    if not _is_fixed(value):
        yield _equal(name, value, f"w{index}", names)


def _same_buffer(
    part: nn.Module, name: str, index: str, place: str, names: dict[str, Any]
) -> Iterator[str]:
    """Tests that a buffer is the one that it was and was not changed in place."""
    buffer = part._buffers.get(name)
    if buffer is not None:
        names[f"b{index}_{place}"] = buffer
        yield f"g{index}['_buffers'].get({name!r}) is b{index}_{place}"
        if not buffer.is_inference():
            yield f"b{index}_{place}._version == {buffer._version}"


def _same_attribute(
    part: nn.Module, name: str, index: str, place: str, names: dict[str, Any]
) -> Iterator[str]:
    """Tests that an attribute is the object that it was, or equal to it if it can change in place."""
    first, *rest = name.split(".")
    space: Mapping[str, Any] = part.__dict__
    own, local = f"g{index}", f"a{index}_{place}"
    try:
        attribute(part, name)
    except AttributeError:
        yield from _still_missing(part, name, own, local, names)
        return
    if first not in space:
        home = next((each for each in type(part).__mro__ if first in vars(each)), None)
        if home is None:
            return  # a buffer
        yield from _not_nearer(part, first, index, names)
        space, own = vars(home), f"s{index}_{place}"
        names[own] = space
    if hasattr(type(space[first]), "__get__"):  # the code of a property is compared as such
        names[local] = space[first]
        yield f"{own}[{first!r}] is {local}"
    else:
        value = functools.reduce(getattr, rest, space[first])
        yield _equal(".".join([f"{own}[{first!r}]", *rest]), value, local, names)


FIXED = (
    int, float, complex, str, bytes, type(None), enum.Enum, *NAMED, staticmethod, classmethod, property,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
"""Classes of values that cannot change in place."""


def _is_fixed(value: Any) -> bool:
    """Whether a value cannot change in place, so that it is as it was if it is the same object."""
    if type(value) in (tuple, frozenset, torch.Size):
        return all(map(_is_fixed, value))
    return isinstance(value, FIXED) or (
        callable(value) and not isinstance(value, functools.partial)
    )


def _is_data(value: Any) -> bool:
    """Whether `==` compares a value by its parts."""
    if type(value) is dict:
        return all(map(_is_data, value.values()))
    return all(map(_is_data, value)) if type(value) in (list, tuple, set) else _is_fixed(value)


def _equal(source: str, value: Any, name: str, names: dict[str, Any]) -> str:
    """A test that an expression has a value."""
    if _is_fixed(value):
        names[name] = value
        return f"{source} is {name}"
    if _is_data(value):
        names[name] = copy.deepcopy(value)
        return f"{source} == {name}"
    names[name] = described(value)
    return f"described({source}) == {name}"


def _still_missing(
    part: nn.Module, name: str, own: str, local: str, names: dict[str, Any]
) -> Iterator[str]:
    """Tests that there is no attribute of this name."""
    first, *rest = name.split(".")
    if rest:
        holder = functools.reduce(
            lambda value, leaf: getattr(value, leaf, None), rest[:-1], part.__dict__.get(first)
        )
        names |= {local: holder, f"d{local}": getattr(holder, "__dict__", {})}
        yield f"{'.'.join([f'{own}.get({first!r})', *rest[:-1]])} is {local}"
        yield f"{rest[-1]!r} not in d{local}"
        return
    yield f"{first!r} not in {own}"
    if not type(part).__module__.startswith("torch."):
        for kind in ("_parameters", "_buffers", "_modules"):
            yield f"{first!r} not in {own}['{kind}']"


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether a tensor stands for another while torch.export traces a graph."""
    return torch.compiler.is_compiling() and type(tensor).__name__ == "FakeTensor"
