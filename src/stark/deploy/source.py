"""The generated part of a guard: Python source that compares quickly what was verified with what is there.

Each comparison is written out for one module and its signature, since loops would take most of the time of a call.
The comparisons are sufficient, not necessary: if one fails, `Bound.decide` decides and finds the reason.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import linecache
import math
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from stark.capturing.described import MISSING
from stark.capturing.forms import TensorForm, tensors_in
from stark.deploy.contract import Contract, attribute, overlap
from stark.deploy.signature import Signature, constant_test

PLAIN = (torch.Tensor, nn.Parameter)
"""The classes of tensors that kernels take; others may give operators another meaning."""


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of these classes, and its elements lie in memory by strides."""
    usual = type(tensor) in PLAIN and tensor.layout is torch.strided
    return usual and not tensor.is_nested and not tensor._is_zerotensor()


def only_device(kind: str) -> bool:
    """Whether a `torch.device` context of this kind is the only mode for functions, as by `set_default_device`."""
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    return all(type(each) is DeviceContext and each.device.type == kind for each in modes)


NAMES: dict[str, Any] = {
    "stark_Tensor": torch.Tensor,
    "stark_Parameter": nn.Parameter,
    "stark_any_autocast": torch._C._is_any_autocast_enabled,
    "stark_compiling": torch.compiler.is_compiling,
    "stark_dynamo": torch.compiler.is_dynamo_compiling,  # quicker, but not true for all exports
    "stark_deterministic": torch._C._get_deterministic_algorithms,
    "stark_dispatch_modes": torch._C._len_torch_dispatch_stack,
    "stark_forward_ad": forward_ad,
    "stark_function_modes": torch._C._len_torch_function_stack,
    "stark_grad_enabled": torch.is_grad_enabled,
    "stark_default_dtype": torch.get_default_dtype,
    "stark_float32": torch.float32,
    "stark_functional": torch._is_functional_tensor,
    "stark_id": id,
    "stark_Method": types.MethodType,
    "stark_overlap": overlap,
    "stark_only_device": only_device,
    "stark_tracing": torch._C._is_tracing,
    "stark_transforms": torch._C._functorch.peek_interpreter_stack,
}

ENVIRONMENT = {
    "torch.jit traces": "not stark_tracing()",
    "a transform of torch.func, such as vmap": "stark_transforms() is None",
    "forward-mode differentiation": "stark_forward_ad._current_level < 0",
    "autocast": "not stark_any_autocast()",
    "another default dtype": "stark_default_dtype() is stark_float32",
    "a mode, such as FakeTensorMode or FlopCounterMode": (
        "not stark_dispatch_modes() and (not stark_function_modes() or stark_only_device({device!r}))"
    ),
    "deterministic algorithms": "not stark_deterministic()",
}
"""What must be true of the state of PyTorch, by the reason why the original runs if it is not."""


@functools.cache
def environment_tests(device: str) -> dict[str, Callable[[], bool]]:
    """The tests of `ENVIRONMENT` as functions."""
    tests = {reason: test.format(device=device) for reason, test in ENVIRONMENT.items()}
    return {reason: eval(f"lambda: {test}", dict(NAMES)) for reason, test in tests.items()}


FORWARD = """
def forward({head}):
    if self is not stark_target:
        return stark_original(self, {passed})
    if (
        not stark_dynamo()
        and {environment}
    ):
{cases}    if not stark_compiling():
        stark_run = stark_bound.decide({values})
        if stark_run is not None:
            return stark_run({inputs})
        return type(self).forward(self, {passed})
    if not stark_usable_in_graphs():
        return type(self).forward(self, {passed})
    if stark_any_autocast():
        stark_seen_autocast()
        return stark_original(self, {passed})
{graph_cases}    stark_seen_form()
    return stark_original(self, {passed})
"""

CASE = """        if {condition}:
            if stark_grad_enabled() and ({gradients}):
                stark_bound.count(stark_GRADIENTS)
                return stark_original(self, {passed})
            stark_bound.calls += 1
            return stark_runs[{index}]({inputs})
"""
GRAPH_CASE = """    if {condition}:
        if stark_grad_enabled() and ({gradients}):
            stark_seen_gradients()
            return stark_original(self, {passed})
        stark_seen_kernel()
        stark_found = stark_operator({index}, [{tensors}], [{state}])
        return {outputs}
"""


@functools.lru_cache(maxsize=1024)
def _compiled(source: str, name: str) -> types.CodeType:
    filename = f"<stark guard: {name} {abs(hash(source)):x}>"
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    return compile(source, filename, "exec", dont_inherit=True)


def generated(name: str, source: str, names: dict[str, Any]) -> Any:
    """The function `name` of a source, which finds `names` as its globals."""
    # There must be no __name__: dynamo would look for the globals in the module of that name.
    exec(_compiled(source, name), names)
    made = names[name]
    # Dynamo keeps compiled frames by code object, and their code in the globals: no two functions may share one.
    made.__code__ = made.__code__.replace()
    return made


def all_of(
    name: str, tests: Iterable[str], names: dict[str, Any], arguments: Iterable[str] = ()
) -> Callable[..., bool]:
    """A function that is true if all tests are. `names` are its globals: default values would be copied in each call."""
    condition = "\n            and ".join(tests) or "True"
    source = (
        f"def {name}({', '.join(arguments)}):\n    try:\n        return (\n            {condition}\n        )\n"
        "    except (AttributeError, KeyError, RuntimeError):\n        return False\n"
    )
    made: Callable[..., bool] = generated(name, source, dict(names))
    return made


@dataclass(frozen=True)
class ForwardSource:
    """Writes the source of a guarded forward."""

    contract: Contract
    device: str
    signature: Signature
    state: list[str]
    """The original's parameters and buffers, which the operator takes."""

    attributes: list[str]
    """Tests of the module's parts and of globals. Graphs have them so that PyTorch traces again after a change."""

    names: dict[str, Any]
    """Gets what the tests use."""

    def text(self) -> str:
        """The function `forward`. Raises LookupError if the original's forward takes other arguments."""
        cases = range(len(self.contract.cases))
        return FORWARD.format(
            head=self.signature.head,
            passed=self.signature.passed,
            values=self.signature.values,
            inputs=", ".join(self._inputs),
            environment="\n        and ".join(ENVIRONMENT.values()).format(device=self.device),
            cases="".join(map(self._case, cases)),
            graph_cases="".join(map(self._graph_case, cases)),
        )

    @property
    def _inputs(self) -> list[str]:
        return [self.signature.expression(name) for name in self.contract.arguments]

    def _tensors(self, index: int) -> list[str]:
        """The expressions of a case's tensors."""
        pairs = zip(self._inputs, self.contract.cases[index].inputs, strict=True)
        return [each + place for each, pattern in pairs for place, _ in tensors_in(pattern)]

    def _structure(self, index: int) -> Iterator[str]:
        """Tests that a call's arguments are those of a case, except for the forms of tensors."""
        yield from self.signature.others(self.contract)
        for each, pattern in zip(self._inputs, self.contract.cases[index].inputs, strict=True):
            yield from structure_tests(each, pattern, self.names)

    def _case(self, index: int) -> str:
        tests, tensors = list(self._structure(index)), self._tensors(index)
        tests.append(f"stark_bound.holds[{index}]({', '.join(tensors)})")
        if self.contract.changes_tensors and len(tensors) > 1:
            tests.append(f"not stark_overlap({', '.join(tensors)})")
        places = [place for place, _ in tensors_in(self.contract.cases[index].inputs)]
        verified = self.contract.differentiable(index)
        unverified = [t for t, place in zip(tensors, places, strict=True) if place not in verified]
        return CASE.format(
            index=index,
            inputs=", ".join(self._inputs),
            passed=self.signature.passed,
            condition=" and ".join(tests),
            gradients=_any_needs(unverified, "stark_bound.needs_gradients()"),
        )

    def _graph_case(self, index: int) -> str:
        tensors, forms = self._tensors(index), tensors_in(self.contract.cases[index].inputs)
        tests = list(self._structure(index))
        for each, (_, form) in zip(tensors, forms, strict=True):
            here = f"{each}.is_{self.device}"
            tests += form_tests(each, form, here, self.names, in_graph=True)
        tests += self.attributes
        weights = list(map(_from_self, self.state))
        outputs = self.contract.cases[index].outputs
        return GRAPH_CASE.format(
            index=index,
            passed=self.signature.passed,
            condition=" and ".join(tests) or "True",
            gradients=_any_needs([*tensors, *weights]),
            tensors=", ".join(tensors),
            state=", ".join(weights),
            outputs=_built(outputs, itertools.count()),
        )


def graph_tests(module: nn.Module, contract: Contract, names: dict[str, Any]) -> Iterator[str]:
    """Tests that the module's parts and the globals of its code are as they are now. PyTorch guards what they read."""
    for index, kind in enumerate({type(part): None for part in module.modules()}):
        names[f"stark_kind{index}"] = kind
        yield from _same_in_graphs(f"stark_kind{index}.forward", kind.forward, names)
    for path, part in module.named_modules():
        here = _from_self(path)
        if contract.training is not None:
            yield f"{here}.training is {contract.training}"
        called = [leaf for leaf, _ in contract.methods(part) if leaf != "forward"]
        if path and type(part).forward is not nn.Module.forward:
            called.append("forward")
        for leaf in called:
            if callable(inspect.getattr_static(type(part), leaf, None)):
                yield from _same_in_graphs(f"{here}.{leaf}", getattr(part, leaf), names)
        for name, expected in contract.attributes.get(path, {}).items():
            if expected == MISSING:
                owner, _, leaf = f"{path}.{name}".lstrip(".").rpartition(".")
                yield f"not hasattr({_from_self(owner)}, {leaf!r})"
                continue
            first, space = name.partition(".")[0], vars(part)
            static = inspect.getattr_static(type(part), first, property())
            if first in space or not hasattr(type(static), "__get__"):
                source = _from_self(f"{path}.{name}".lstrip("."))
                yield from _same_in_graphs(source, attribute(part, name), names)
    for index, full in enumerate(contract.code):
        home, _, path = full.partition(":")
        names[f"stark_space{index}"] = sys.modules.get(home)
        with suppress(AttributeError):  # the code differs, or is of a property
            value = attribute(sys.modules.get(home), path)
            yield from _same_in_graphs(f"stark_space{index}.{path}", value, names)


def _same_in_graphs(source: str, value: Any, names: dict[str, Any]) -> Iterator[str]:
    """A test that an expression has a value, in a form that dynamo guards. Tensors must be the same objects."""
    held = f"stark_held{len(names)}"
    if value is None or type(value) is bool:
        yield f"{source} is {value}"
    elif _is_literal(value):
        yield f"{source} == {value!r}"
    elif isinstance(value, types.MethodType):
        names[held] = value.__func__
        yield f"type({source}) is stark_Method and {source}.__func__ is {held}"
    elif isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        names[held] = value
        yield f"{source} is {held}"
    elif isinstance(value, torch.Tensor):
        names[held] = value  # so that no other tensor gets its id
        yield f"stark_id({source}) == {id(value)}"


def _is_literal(value: Any) -> bool:
    """Whether a value is equal to what its `repr` evaluates to."""
    if type(value) in (list, tuple):
        return all(map(_is_literal, value))
    if type(value) is dict:
        return all(map(_is_literal, (*value, *value.values())))
    return type(value) in (int, str, bool, type(None)) or (
        type(value) is float and math.isfinite(value)
    )


def _any_needs(tensors: list[str], *more: str) -> str:
    return " or ".join([*(f"{each}.requires_grad" for each in tensors), *more]) or "False"


def _from_self(name: str) -> str:
    """The source of a parameter, such as `getattr(self.layers, '0').weight`."""
    source = "self"
    for part in filter(None, name.split(".")):
        source = f"{source}.{part}" if part.isidentifier() else f"getattr({source}, {part!r})"
    return source


def _built(pattern: Any, numbers: Iterator[int]) -> str:
    """The source that builds outputs from the operator's list of tensors."""
    if isinstance(pattern, TensorForm):
        return f"stark_found[{next(numbers)}]"
    if isinstance(pattern, dict):
        return f"{{{', '.join(f'{k!r}: {_built(v, numbers)}' for k, v in pattern.items())}}}"
    if isinstance(pattern, tuple | list):
        parts = "".join(f"{_built(part, numbers)}, " for part in pattern)
        return f"({parts})" if isinstance(pattern, tuple) else f"[{parts}]"
    return repr(pattern)


def structure_tests(expression: str, pattern: Any, names: dict[str, Any]) -> Iterator[str]:
    """Tests that a value has the containers and constants of a pattern."""
    if isinstance(pattern, tuple | list | dict):
        kind = f"stark_type_{type(pattern).__name__}"
        names[kind] = type(pattern)
        yield f"type({expression}) is {kind} and len({expression}) == {len(pattern)}"
        keys = list(pattern) if isinstance(pattern, dict) else range(len(pattern))
        if isinstance(pattern, dict):
            yield f"list({expression}) == {keys!r}"
        for key in keys:
            yield from structure_tests(f"{expression}[{key!r}]", pattern[key], names)
    elif not isinstance(pattern, TensorForm):
        yield constant_test(expression, repr(pattern))


def form_tests(
    expression: str, form: TensorForm, here: str, names: dict[str, Any], in_graph: bool = False
) -> Iterator[str]:
    """Tests that a value is a tensor of a form. `here` tests its device.

    `in_graph`: while a graph is traced, tensors are of other classes.
    """
    if in_graph:
        yield f"isinstance({expression}, stark_Tensor)"
        yield from same_form(expression, form, names)
    else:
        yield from plain_tests(expression, form, names)
    yield here


def plain_tests(expression: str, form: TensorForm, names: dict[str, Any]) -> Iterator[str]:
    """Tests that a value is a plain tensor of a form on any device, whose memory is as its operators read it."""
    yield f"(type({expression}) is stark_Tensor or type({expression}) is stark_Parameter)"
    yield from same_form(expression, form, names)
    yield f"not {expression}.is_neg() and not {expression}._is_zerotensor()"
    yield f"not stark_functional({expression})"
    if form.dtype.is_complex:
        yield f"not {expression}.is_conj()"


def same_form(expression: str, form: TensorForm, names: dict[str, Any]) -> Iterator[str]:
    """Tests of a tensor's dtype, shape and strides."""
    dtype, shape = f"dtype_{str(form.dtype)[6:]}", f"shape_{'x'.join(map(str, form.shape))}"
    names |= {dtype: form.dtype, shape: torch.Size(form.shape)}
    strides = "is_contiguous()" if form.contiguous else f"stride() == {form.stride!r}"
    yield f"{expression}.dtype is {dtype} and {expression}.shape == {shape} and {expression}.{strides}"
