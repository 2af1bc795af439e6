"""Writes the classes of a module and its submodules: the methods that forward needs, and an `__init__` without arguments.

Arguments of the original constructors cannot be recovered from an instance, so `__init__` is written from its state.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from stark.capturing.cannot import CannotCapture
from stark.capturing.code.attributes import OF_NN_MODULE, Values, constant_buffers
from stark.capturing.code.building import (
    attributes,
    constructor,
    constructor_arguments,
    made,
    state,
)
from stark.capturing.code.copying import Copier
from stark.capturing.code.methods import Methods, methods_of
from stark.capturing.code.state import buffer_text
from stark.capturing.described import MISSING, described
from stark.capturing.expressions.drawing import parameter
from stark.capturing.expressions.literals import is_constant

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
OF_PARAMETERS = (nn.ParameterList, nn.ParameterDict)
LISTING = {"_modules", "children", "named_children", "modules", "named_modules"}
"""Attributes through which code reaches submodules without their names."""

IN_TRAINING_ONLY = {
    "Dropout": {"p", "inplace"},
    "Dropout1d": {"p", "inplace"},
    "Dropout2d": {"p", "inplace"},
    "DropPath": {"drop_prob", "scale_by_keep"},
    "StochasticDepth": {"p", "mode"},
}


@dataclass
class Parts:
    """One class of the captured file."""

    base: str
    constants: list[str] = field(default_factory=list)
    """Assignments in the class's body."""

    init: list[str] = field(default_factory=list)
    """The statements of `__init__`."""

    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """The class's source."""
        init = "\n".join(["def __init__(self):", *(f"    {line}" for line in self.init)])
        functions = [ast.unparse(ast.fix_missing_locations(tree)) for tree in self.methods.values()]
        constants = ["\n".join(self.constants)] if self.constants else []
        body = "\n\n".join([*constants, init, *functions])
        return f"class {name}({self.base}):\n{textwrap.indent(body, '    ')}"


class Synthesis:
    """The classes of one module, from its live instance."""

    def __init__(
        self, module: nn.Module, copier: Copier, constants: Mapping[int, Mapping[str, Any]]
    ) -> None:
        self._module, self._copier, self._constants = module, copier, constants
        self._values = Values(copier)
        self._methods: dict[int, Methods] = {}
        self._constructors: dict[int, str | None] = {}
        self._classes: dict[str, Parts] = {}
        self._collect(module)

    def write(self) -> tuple[Parts, dict[str, Parts]]:
        """The class of the module itself, and those of its submodules by name, in the order of their use.

        Attributes are written only if code reads them, and what they need may read more; so this repeats until the
        set of attributes that are read no longer grows.
        """
        while True:
            known = len(self._copier.reads)
            self._classes = {}
            root = self._root()
            if len(self._copier.reads) == known:
                return root, self._classes

    def attributes(self) -> dict[str, dict[str, str]]:
        """For each submodule, the plain attributes on which its code depends, as `repr` shows them."""
        found = {}
        for path, each in self._module.named_modules():
            known = self._methods.get(id(each))
            tested = vars(each).keys() & self._copier.tested - OF_NN_MODULE
            read = [] if known is None else [*self._read(each), *known.read]
            names = {*tested, *(attributes(each) if known is None else read)}
            idle = {"training"} | _without_effect(each)
            values = {name: _nested_attribute(each, name) for name in names if name not in idle}
            plain = constant_buffers(each) | self._values.missing(each)
            for name, value in values.items():
                if value is MISSING:
                    plain[name] = MISSING
                elif not callable(value) or name.partition(".")[0] in vars(each):
                    plain |= self._values.facts(value, name)  # methods are in `code`
            if path and known is not None and not _without_effect(each):
                plain["__class__"] = described(type(each))
            if plain:
                found[path] = dict(sorted(plain.items()))
        return found

    def kinds(self) -> list[type[nn.Module]]:
        """The classes whose code was copied."""
        return [type(each) for each in self._module.modules() if id(each) in self._methods]

    def _collect(self, module: nn.Module) -> None:
        """Copy the methods of all submodules that torch.nn does not build."""
        for each in module.modules():
            if id(each) in self._constructors or type(each) in (*CONTAINERS, *OF_PARAMETERS):
                continue
            self._constructors[id(each)] = constructor(each)
            if self._constructors[id(each)] is None and not self._inside_built(each):
                given = self._constants.get(id(each), {})
                self._methods[id(each)] = methods_of(each, self._copier, given)

    def _inside_built(self, module: nn.Module) -> bool:
        """Whether a module is made by the constructor of one that contains it."""
        built = (m for m in self._module.modules() if self._constructors.get(id(m)))
        return any(module is inner for each in built for inner in each.modules())

    def _root(self) -> Parts:
        module = self._module
        text = self._constructors.get(id(module))
        if text is not None:
            kind, _, arguments = text.partition("(")
            return Parts(kind, init=[f"super().__init__({arguments}"])
        if type(module) in CONTAINERS:
            _, _, arguments = self._container(type(module), module).partition("(")
            return Parts(f"nn.{type(module).__name__}", init=[f"super().__init__({arguments}"])
        return self._parts(module)

    def _expression(self, module: nn.Module | None) -> str:
        """The expression that makes a submodule."""
        if module is None:
            return "None"
        if type(module) in CONTAINERS:
            return self._container(type(module), module)
        if type(module) in OF_PARAMETERS:
            return _parameters(module)
        text = self._constructors[id(module)]
        if text is not None:
            return text
        parts = self._parts(module)
        return f"{self._named(type(module).__name__, parts)}()"

    def _named(self, wanted: str, parts: Parts) -> str:
        """The name of a class with this text, which equal modules share."""
        plain = wanted.lstrip("_")
        for name, known in self._classes.items():
            if name.rstrip("0123456789") == plain.rstrip("0123456789") and known.text(
                "_"
            ) == parts.text("_"):
                return name
        name, count = plain, 1
        while name in self._classes or name in self._copier.definitions.names:
            count += 1
            name = f"{plain}{count}"
        self._classes[name] = parts
        return name

    def _container(self, kind: type[nn.Module], module: nn.Module) -> str:
        names = list(module._modules)
        parts = [self._expression(each) for each in module._modules.values()]
        if kind is nn.ModuleDict:
            return f"nn.ModuleDict({{{', '.join(f'{n!r}: {p}' for n, p in zip(names, parts, strict=True))}}})"
        if names == [str(i) for i in range(len(names))]:
            inner = ", ".join(parts)
            if len(parts) > 2 and len(set(parts)) == 1:
                inner = f"{'*' if kind is nn.Sequential else ''}[{parts[0]} for _ in range({len(parts)})]"
                return f"nn.{kind.__name__}({inner})"
            return (
                f"nn.Sequential({inner})" if kind is nn.Sequential else f"nn.ModuleList([{inner}])"
            )
        if kind is nn.ModuleList:
            raise CannotCapture("a ModuleList has names that are not numbers")
        self._copier.definitions.imports["OrderedDict"] = "from collections import OrderedDict"
        pairs = (f"({n!r}, {p})" for n, p in zip(names, parts, strict=True))
        return f"nn.Sequential(OrderedDict([{', '.join(pairs)}]))"

    def _parts(self, module: nn.Module) -> Parts:
        methods = self._methods[id(module)]
        start, present = self._start(module, methods.base)
        init = [start, *self._attribute_lines(module, present), *_tensor_lines(module, present)]
        everything = self._lists_children(methods)
        for name, child in module._modules.items():
            if name in present:
                continue
            if (
                everything
                or name in self._copier.reads
                or (child is not None and child.state_dict())
            ):
                init.append(_assigned(name, self._expression(child), "add_module"))
        constants = [
            f"{n} = {self._value(module, n)}" for n in self._class_attributes(module, methods)
        ]
        return Parts(f"nn.{methods.base.__name__}", constants, init, dict(methods.trees))

    def _start(self, module: nn.Module, base: type[nn.Module]) -> tuple[str, set[str]]:
        """The call of the base's `__init__`, and the names that it defines."""
        if base is nn.Module:
            return "super().__init__()", set()
        if base in CONTAINERS:
            _, _, arguments = self._container(base, module).partition("(")
            return f"super().__init__({arguments}", set(module._modules)
        for arguments in constructor_arguments(module, base):
            twin = made(f"nn.{base.__name__}({arguments})")
            if twin is not None and _is_part_of(twin, module):
                present = {*attributes(twin), *twin._parameters, *twin._buffers, *twin._modules}
                return f"super().__init__({arguments})", present
        return "nn.Module.__init__(self)", set()

    def _attribute_lines(self, module: nn.Module, present: set[str]) -> Iterator[str]:
        for name in self._read(module):
            if name not in present and name in vars(module):
                yield f"self.{name} = {self._value(module, name)}"

    def _read(self, module: nn.Module) -> list[str]:
        """The attributes that code reads; all plain ones if torch's own code may read them."""
        of_torch = self._methods[id(module)].base not in (nn.Module, *CONTAINERS)
        own = [name for name in vars(module) if name not in OF_NN_MODULE]
        wanted = attributes(module) if of_torch else {}
        read = [name for name in own if name in self._copier.reads or name in wanted]
        return [*read, *self._class_attributes(module, self._methods[id(module)])]

    def _class_attributes(self, module: nn.Module, methods: Methods) -> list[str]:
        """Attributes of the class, rather than of the instance, that its methods read."""
        kind = type(module)
        own = kind.__mro__[: kind.__mro__.index(methods.base)]
        read = {
            n.attr
            for tree in methods.trees.values()
            for n in ast.walk(tree)
            if isinstance(n, ast.Attribute)
        }
        found: dict[str, None] = {}
        for each in own:
            for name, value in vars(each).items():
                wanted = name in read and not name.startswith("__") and name not in methods.trees
                if wanted and is_constant(value) and name not in vars(module):
                    found[name] = None
        return list(found)

    def _value(self, module: nn.Module, name: str) -> str:
        try:
            return self._values.expression(getattr(module, name), name)
        except CannotCapture as error:
            raise CannotCapture(f"{type(module).__name__}.{name}: {error}") from None

    def _lists_children(self, methods: Methods) -> bool:
        """Whether code may reach children without naming them."""
        nodes = [node for tree in methods.trees.values() for node in ast.walk(tree)]
        by_name = any(isinstance(node, ast.Name) and node.id == "getattr" for node in nodes)
        return by_name or methods.base in CONTAINERS or bool(self._copier.reads & LISTING)


def _without_effect(module: nn.Module) -> set[str]:
    """Attributes of dropout and of similar layers that matter in training only, and may differ between layers."""
    known = type(module).__module__.partition(".")[0] in ("torch", "torchvision", "timm")
    return (
        IN_TRAINING_ONLY.get(type(module).__name__, set())
        if known and not module.training
        else set()
    )


def _nested_attribute(module: nn.Module, path: str) -> Any:
    """An attribute such as `config.hidden_size`; MISSING if there is none; NotImplemented, which is no constant, for state."""
    value: Any = NotImplemented
    with suppress(Exception):  # properties of the user may raise anything
        try:
            value = functools.reduce(getattr, path.split("."), module)
        except AttributeError:
            return MISSING
    first = path.partition(".")[0]
    of_state = first in module._parameters or first in module._buffers or first in module._modules
    return NotImplemented if of_state else value


def _is_part_of(twin: nn.Module, module: nn.Module) -> bool:
    """Whether everything that the base's constructor defines is also in the module."""
    ours = attributes(module)
    plain = all(name in ours and ours[name] == value for name, value in attributes(twin).items())
    children = all(type(module._modules.get(n)) is type(c) for n, c in twin._modules.items())
    return plain and children and all(each in state(module) for each in state(twin))


def _tensor_lines(module: nn.Module, present: set[str]) -> Iterator[str]:
    """Parameters and buffers of the module itself."""
    for name, value in module._parameters.items():
        if name not in present:
            text = None if value is None else f"nn.Parameter({parameter(value)})"
            yield _assigned(name, text, "register_parameter")
    for name, buffer in module._buffers.items():
        if name not in present:
            kept = "" if name not in module._non_persistent_buffers_set else ", persistent=False"
            yield f"self.register_buffer({name!r}, {buffer_text(buffer, not kept)}{kept})"


def _parameters(module: nn.Module) -> str:
    """A list or dict of parameters."""
    texts = {
        n: f"nn.Parameter({parameter(p)})" for n, p in module._parameters.items() if p is not None
    }
    if isinstance(module, nn.ParameterList):
        return f"nn.ParameterList([{', '.join(texts.values())}])"
    return f"nn.ParameterDict({{{', '.join(f'{n!r}: {t}' for n, t in texts.items())}}})"


def _assigned(name: str, expression: str | None, otherwise: str) -> str:
    if name.isidentifier() and expression is not None:
        return f"self.{name} = {expression}"
    return f"self.{otherwise}({name!r}, {expression})"
