"""The generated part of a guard: Python source that compares quickly what was verified with what is there.

Each comparison is written out for one module and its signature, since loops would take most of the time of a call.
The comparisons are sufficient, not necessary: if one fails, `Bound.decide` decides and finds the reason.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import functools
import linecache
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from stark.capturing.forms import TensorForm, tensors_in
from stark.deploy.contract import ALIGNMENT, Contract, attribute, overlap
from stark.deploy.signature import Signature, constant_test

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

ENVIRONMENT = {
    "torch.jit traces": "stark_tracing() is None",
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
        environment="\n        and ".join(ENVIRONMENT.values()).format(device=device),
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
