"""The generated part of a guard: Python source that compares quickly what was verified with what is there.

Each comparison is written out for one module and its signature, since loops would take most of the time of a call.
The comparisons are sufficient, not necessary: if one fails, `Bound.decide` decides and finds the reason.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
import math
import sys
import types
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from stark.capturing.described import described
from stark.capturing.forms import TensorForm, tensors_in
from stark.deploy.contract import ALIGNMENT, Contract, attribute, overlap

PLAIN = (torch.Tensor, nn.Parameter)
"""The classes of tensors that kernels take; others may give operators another meaning."""


def only_device(kind: str) -> bool:
    """Whether a `torch.device` context of this kind is the only mode for functions, as by `set_default_device`."""
    modes = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    return all(type(each) is DeviceContext and each.device.type == kind for each in modes)


NAMES: dict[str, Any] = {
    "stark_Tensor": torch.Tensor,
    "stark_Parameter": nn.Parameter,
    "stark_any_autocast": torch._C._is_any_autocast_enabled,
    "stark_compiling": torch.compiler.is_compiling,
    "stark_deterministic": torch._C._get_deterministic_algorithms,
    "stark_dispatch_modes": torch._C._len_torch_dispatch_stack,
    "stark_forward_ad": forward_ad,
    "stark_function_modes": torch._C._len_torch_function_stack,
    "stark_grad_enabled": torch.is_grad_enabled,
    "stark_default_dtype": torch.get_default_dtype,
    "stark_float32": torch.float32,
    "stark_overlap": overlap,
    "stark_only_device": only_device,
    "stark_tracing": torch._C._get_tracing_state,
    "stark_transforms": torch._C._functorch.peek_interpreter_stack,
}

ENVIRONMENT = """stark_tracing() is None and stark_transforms() is None and stark_forward_ad._current_level < 0
        and not stark_any_autocast() and not stark_dispatch_modes() and not stark_deterministic()
        and stark_default_dtype() is stark_float32
        and (not stark_function_modes() or stark_only_device({device!r}))"""
"""What `Bound.environment` gives reasons for."""

FORWARD = """
def forward({head}):
    if self is not stark_target:
        return stark_original(self, {passed})
    if stark_compiling():
        if not stark_usable_in_graphs():
            return type(self).forward(self, {passed})
        if stark_any_autocast():
            stark_seen_autocast()
            return stark_original(self, {passed})
{graph_cases}        stark_seen_form()
        return stark_original(self, {passed})
    if (
        {environment}
    ):
{cases}    stark_run = stark_bound.decide({values})
    if stark_run is not None:
        return stark_run({inputs})
    return type(self).forward(self, {passed})
"""

CASE = """        if {condition} and stark_bound.holds():
            if stark_grad_enabled() and ({gradients}):
                stark_bound.count(stark_GRADIENTS)
                return stark_original(self, {passed})
            stark_bound.calls += 1
            return stark_runs[{index}]({inputs})
"""
GRAPH_CASE = """        if {condition}:
            if stark_grad_enabled() and ({gradients}):
                stark_seen_gradients()
                return stark_original(self, {passed})
            stark_seen_kernel()
            stark_found = stark_operator({index}, [{tensors}], [{state}])
            return {outputs}
"""


USED = frozenset({"type", "len", "list", "repr", "isinstance", "getattr", "self"})
"""Builtins that generated source uses."""


@functools.lru_cache(maxsize=1024)
def _compiled(source: str, name: str) -> types.CodeType:
    filename = f"<stark guard: {name} {abs(hash(source)):x}>"
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    return compile(source, filename, "exec", dont_inherit=True)


def generated(name: str, source: str, names: dict[str, Any]) -> Any:
    """The function `name` of a source, which finds `names` as its globals."""
    # There must be no __name__: dynamo would look for the globals in the module of that name.
    exec(_compiled(source, name), names)
    return names[name]


def all_of(name: str, tests: list[str], names: dict[str, Any]) -> Callable[[], bool]:
    """A function that is true if all tests are. `names` are its local variables, which are quicker than globals."""
    parameters = ", ".join(f"{each}={each}" for each in names)
    condition = "\n            and ".join(tests) or "True"
    source = (
        f"def {name}({parameters}):\n    try:\n        return (\n            {condition}\n        )\n"
        "    except (AttributeError, KeyError):\n        return False\n"
    )
    made: Callable[[], bool] = generated(name, source, dict(names))
    return made


class Signature:
    """The parameters of an original's forward as source."""

    def __init__(self, function: Callable[..., Any], names: dict[str, Any]) -> None:
        """Defaults become globals in `names`."""
        self.signature = inspect.signature(function)
        parameters = list(self.signature.parameters.values())
        self.defaults = {each.name: _default(each) for each in parameters[1:]}
        self.keywords = next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), None)
        self.own = [each.name for each in parameters[1:] if each.kind is not Parameter.VAR_KEYWORD]
        if hidden := USED.intersection(self.own):
            raise LookupError(f"its forward calls an argument {min(hidden)}, which hides a builtin")
        written = [each.replace(annotation=Parameter.empty) for each in parameters]
        for place, each in enumerate(written):
            if each.default is not Parameter.empty:
                names[f"stark_default_{each.name}"] = each.default
                written[place] = each.replace(default=_Source(f"stark_default_{each.name}"))
        written[0] = written[0].replace(name="self")
        self.head = str(inspect.Signature(written))[1:-1]
        self.passed = ", ".join(map(_passed, parameters[1:]))
        pairs = [f"{name!r}: {name}" for name in self.own]
        self.values = f"{{{', '.join(pairs + ([f'**{self.keywords}'] if self.keywords else []))}}}"

    def expression(self, name: str) -> str:
        """The source of an argument's value. Raises LookupError if forward does not take it."""
        if name in self.own:
            return name
        if self.keywords is None:
            raise LookupError(f"its forward takes no {name}")
        return f"{self.keywords}[{name!r}]"

    def others(self, contract: Contract) -> Iterator[str]:
        """Tests of the arguments that are no inputs of the kernel."""
        named = {*contract.arguments, *contract.constants}
        if self.keywords is not None:
            keywords = sorted(named.difference(self.own))
            yield (
                f"{self.keywords}.keys() == {set(keywords)!r}"
                if keywords
                else f"not {self.keywords}"
            )
        for name in self.own:
            if name not in named:
                given = self.signature.parameters[name]
                star = given.kind is Parameter.VAR_POSITIONAL
                if given.default is Parameter.empty and not star:
                    raise LookupError(f"its forward needs {name}, which the kernel does not take")
                yield f"not {name}" if star else f"{name} is stark_default_{name}"
        for name, expected in contract.constants.items():
            yield constant_test(self.expression(name), expected)


class _Source:
    """A default that is written as this source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __repr__(self) -> str:
        return self._source


def _default(parameter: Parameter) -> Any:
    return () if parameter.kind is Parameter.VAR_POSITIONAL else parameter.default


def _passed(parameter: Parameter) -> str:
    name = parameter.name
    match parameter.kind:
        case Parameter.VAR_POSITIONAL:
            return f"*{name}"
        case Parameter.VAR_KEYWORD:
            return f"**{name}"
        case Parameter.KEYWORD_ONLY:
            return f"{name}={name}"
    return name


def forward_source(
    contract: Contract,
    device: str,
    signature: Signature,
    state: list[str],
    names: dict[str, Any],
    attributes: list[str],
) -> str:
    """The source of a guarded forward. `state` names the original's parameters and buffers, which the operator takes.

    `attributes` are tests of the module's attributes. Graphs have them so that PyTorch traces again after a change.
    """
    inputs = [signature.expression(name) for name in contract.arguments]
    others = list(signature.others(contract))
    form = functools.partial(form_tests, device=device, names=names)
    weights = list(map(_from_self, state))
    eager, graphs = "", ""
    for index, case in enumerate(contract.cases):
        pairs = list(zip(inputs, case.inputs, strict=True))
        tensors = [each + place for each, pattern in pairs for place, _ in tensors_in(pattern)]
        values = {"index": index, "inputs": ", ".join(inputs), "passed": signature.passed}
        tests = [*others, *(test for pair in pairs for test in form(*pair))]
        if contract.changes_tensors and len(tensors) > 1:
            tests.append(f"not stark_overlap({', '.join(tensors)})")
        places = [place for place, _ in tensors_in(case.inputs)]
        verified = contract.differentiable(index)
        unverified = [t for t, place in zip(tensors, places, strict=True) if place not in verified]
        eager += CASE.format(
            condition=" and ".join(tests) or "True",
            gradients=_any_needs(unverified, "stark_bound.needs_gradients()"),
            **values,
        )
        in_graph = [
            *others,
            *attributes,
            *(test for pair in pairs for test in form(*pair, in_graph=True)),
        ]
        graphs += GRAPH_CASE.format(
            **values,
            gradients=_any_needs([*tensors, *weights]),
            condition=" and ".join(in_graph) or "True",
            tensors=", ".join(tensors),
            state=", ".join(weights),
            outputs=_built(case.outputs, iter(range(len(list(tensors_in(case.outputs)))))),
        )
    return FORWARD.format(
        head=signature.head,
        passed=signature.passed,
        values=signature.values,
        inputs=", ".join(inputs),
        environment=ENVIRONMENT.format(device=device),
        cases=eager,
        graph_cases=graphs,
    )


def attribute_tests(module: nn.Module, contract: Contract) -> Iterator[str]:
    """Tests that numbers, texts and the training flag are as verified."""
    if contract.training is not None:
        yield f"self.training is {contract.training}"
    for path, attributes in contract.attributes.items():
        for name in attributes:
            value = attribute(module.get_submodule(path), name)
            if name.partition(".")[0] in vars(module.get_submodule(path)):
                source = _from_self(f"{path}.{name}".lstrip("."))
                if value is None or type(value) is bool:
                    yield f"{source} is {value}"
                elif type(value) in (int, str) or (type(value) is float and math.isfinite(value)):
                    yield f"{source} == {value!r}"


def _any_needs(tensors: list[str], *more: str) -> str:
    return " or ".join([*(f"{each}.requires_grad" for each in tensors), *more]) or "False"


def _from_self(name: str) -> str:
    """The source of a parameter, such as `getattr(self.layers, '0').weight`."""
    source = "self"
    for part in name.split("."):
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


def form_tests(
    expression: str, pattern: Any, device: str, names: dict[str, Any], in_graph: bool = False
) -> Iterator[str]:
    """Tests that a value has the form of a pattern. `in_graph`: while a graph is traced, tensors are of other classes."""
    if isinstance(pattern, TensorForm):
        dtype, shape = (
            f"dtype_{str(pattern.dtype)[6:]}",
            f"shape_{'x'.join(map(str, pattern.shape))}",
        )
        names |= {dtype: pattern.dtype, shape: torch.Size(pattern.shape)}
        plain = f"(type({expression}) is stark_Tensor or type({expression}) is stark_Parameter)"
        yield f"isinstance({expression}, stark_Tensor)" if in_graph else plain
        here = f"{expression}.is_{device}"
        if device == "cuda" and not in_graph:
            here = f"{expression}.get_device() == stark_bound.gpu"
        yield f"{expression}.dtype is {dtype} and {here}"
        yield f"{expression}.shape == {shape} and {strided(expression, pattern)}"
        if not in_graph:
            yield f"not {expression}.data_ptr() % {ALIGNMENT}"
    elif isinstance(pattern, tuple | list | dict):
        kind = f"stark_type_{type(pattern).__name__}"
        names[kind] = type(pattern)
        yield f"type({expression}) is {kind} and len({expression}) == {len(pattern)}"
        keys = list(pattern) if isinstance(pattern, dict) else range(len(pattern))
        if isinstance(pattern, dict):
            yield f"list({expression}) == {keys!r}"
        for key in keys:
            yield from form_tests(f"{expression}[{key!r}]", pattern[key], device, names, in_graph)
    else:
        yield constant_test(expression, repr(pattern))


def strided(expression: str, form: TensorForm) -> str:
    """A test of a tensor's strides."""
    if form.contiguous:
        return f"{expression}.is_contiguous()"
    return f"{expression}.stride() == {form.stride!r}"


def constant_test(expression: str, expected: str) -> str:
    """A test that a value's repr is as expected, without making the repr if that is possible."""
    if expected in ("None", "True", "False"):
        return f"{expression} is {expected}"
    try:
        value = ast.literal_eval(expected)
    except (ValueError, SyntaxError):
        return f"repr({expression}) == {expected!r}"
    if type(value) in (int, str):
        return f"type({expression}) is {type(value).__name__} and {expression} == {expected}"
    return f"repr({expression}) == {expected!r}"


def identity_tests(
    module: nn.Module,
    contract: Contract,
    tensors: dict[str, Callable[[], Any]],
    gpu: int | None,
    names: dict[str, Any],
) -> Iterator[str]:
    """Tests that a module has the parts that it has now, and that `.to()` did not change them in place.

    `gpu` is the index of the tensors' device, None for a CPU.
    """
    if gpu is not None:
        names["current"] = torch.cuda.current_device
        yield f"current() == {gpu}"
    names |= {"kind": type(module), "own": type(module).forward}
    yield "kind.forward is own"
    for index, full in enumerate(contract.code):
        home, _, path_in = full.partition(":")
        owner, _, leaf = path_in.rpartition(".")
        space = vars(sys.modules[home]) if home in sys.modules else {}
        space = vars(space[owner]) if owner in space else {} if owner else space
        if leaf in space:
            names |= {f"h{index}": space, f"v{index}": space[leaf]}
            yield f"h{index}.get({leaf!r}) is v{index}"
            if isinstance(space[leaf], list | dict | set):
                names |= {f"w{index}": described(space[leaf]), "described": described}
                yield f"described(v{index}) == w{index}"
    for index, (path, each) in enumerate(module.named_modules()):
        names[f"g{index}"] = each.__dict__
        if contract.training is not None:
            yield f"g{index}['training'] is {contract.training}"
        if path:
            names[f"f{index}"] = each.__dict__.get("forward")
            yield f"g{index}.get('forward') is f{index}"
        for place, (leaf, child) in enumerate(each._modules.items()):
            names |= {f"m{index}": each._modules, f"c{index}_{place}": child}
            yield f"m{index}.get({leaf!r}) is c{index}_{place}"
        for place, name in enumerate(contract.attributes.get(path, ())):
            yield from _attribute_test(
                f"g{index}", f"a{index}_{place}", each, name, names, contract
            )
    for index, name in enumerate(name for name in contract.state if name in tensors):
        form, tensor = contract.state[name], f"p{index}"
        names |= {tensor: tensors[name](), f"t{index}": form.dtype}
        names[f"d{index}"] = tensors[name].args[0]  # type: ignore[attr-defined]
        leaf = name.rpartition(".")[2]
        yield f"d{index}.get({leaf!r}) is {tensor} and {tensor}.dtype is t{index}"
        # Other memory, as after `.to()` or `.data = `, may be elsewhere or not aligned.
        now: torch.Tensor = names[tensor]
        bound = {f"q{index}": now.data_ptr, f"n{index}": now.numel, f"c{index}": now.is_contiguous}
        names |= bound  # quicker than looking the methods up
        yield f"q{index}() == {now.data_ptr()} and n{index}() == {now.numel()}"
        if len(form.shape) > 1:
            yield f"c{index}()" if form.contiguous else strided(tensor, form)


def _attribute_test(
    own: str, local: str, module: nn.Module, name: str, names: dict[str, Any], contract: Contract
) -> Iterator[str]:
    """A test that an attribute is the object that it was, or equal to it if it can change in place."""
    first, *rest = name.split(".")
    buffer = module._buffers.get(name)
    if buffer is not None and not contract.changes_tensors and not buffer.is_inference():
        yield f"{own}['_buffers'][{name!r}]._version == {buffer._version}"
    if first not in module.__dict__:
        home = next((each for each in type(module).__mro__ if first in vars(each)), None)
        if home is not None:
            names |= {f"k{local}": vars(home), local: vars(home)[first]}
            yield f"k{local}.get({first!r}) is {local}"
        return  # of the class, or computed: compared when the module is bound
    value = attribute(module, name)
    found = ".".join([f"{own}[{first!r}]", *rest])
    if isinstance(value, torch.Tensor) or (
        isinstance(value, list | tuple | dict) and any(True for _ in tensors_in(value))
    ):
        names |= {local: described(value), "described": described}
        yield f"described({found}) == {local}"
        return
    mutable = isinstance(value, list | dict | set)
    names[local] = copy.deepcopy(value) if mutable else value
    yield f"{found} {'==' if mutable else 'is'} {local}"
