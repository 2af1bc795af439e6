"""What a kernel was verified for: the module that it replaces and the forms of its calls.

Standalone: needs torch and the standard library only, since it is copied into kernel files and packages.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from types import ModuleType
from typing import Any

import torch
from torch import nn

from stark.capturing.described import name_of
from stark.capturing.forms import TensorForm, formed, tensors_in, with_tensors

TRAINING = (
    r"training|[Dd]ropout|BatchNorm|InstanceNorm|RReLU|RNN|LSTM|GRU|Transformer|MultiheadAttention"
)
"""What in a hand-written reference may behave differently in training."""


class Misfit(Exception):
    """Why a kernel cannot work for a module."""


ALIGNMENT = 64
"""Tensors of verification start at multiples of this many bytes, which kernels may rely on (for vector instructions). Views
may start elsewhere."""


@dataclass(frozen=True)
class Case:
    """One verified form of a call. In `inputs` and `outputs`, a `TensorForm` stands for each tensor."""

    name: str
    inputs: tuple[Any, ...]
    """One entry per argument of the reference's forward."""

    outputs: Any
    without_gradient: frozenset[str] = frozenset()
    """Places of the tensors in `inputs` whose gradients were not verified, although the problem declares BACKWARD."""


@dataclass(frozen=True)
class Contract:
    """What a module and its calls must be like for the kernel to take its place."""

    original: str | None
    """The class as `package.module:QualifiedName`; None if the problem was not captured from a module."""

    arguments: tuple[str, ...]
    """Parameters of the original's forward that the kernel takes, in its order."""

    constants: dict[str, str]
    """The other arguments of forward, as `repr` shows them."""

    attributes: dict[str, dict[str, str]]
    code: dict[str, str]
    """Functions, methods and constants of the original by `package.module:name`, as `code` or `hidden` shows them."""

    training: bool | None
    """The training flag; None if it does not matter."""

    backward: bool
    """Whether gradients were verified."""

    cases: tuple[Case, ...]
    state: dict[str, TensorForm]
    """Parameters and buffers of the reference by name."""

    saved: frozenset[str]
    """The names in its state_dict."""

    classes: dict[str, type]
    """Its submodules' classes by path."""

    changes_tensors: bool
    """Whether forward changes an input, a parameter or a buffer in place, or replaces a buffer."""

    tied: tuple[tuple[str, ...], ...]
    """Names in `state` that are one tensor."""

    differentiated: frozenset[str]
    """The parameters whose gradients were verified."""

    parameters: tuple[str, ...]
    """What the reference's own forward takes, and the defaults of the rest, as `repr` shows them. Empty if it takes
    `*arguments`, which have no names."""

    defaults: dict[str, str]

    def differentiable(self, case: int) -> frozenset[str]:
        """Places of the inputs of a case whose gradients were verified."""
        one = self.cases[case]
        places = {place for place, _ in tensors_in(one.inputs)} if self.backward else set()
        return frozenset(places - one.without_gradient)

    def methods(self, part: nn.Module) -> Iterator[tuple[str, type]]:
        """Captured methods and properties of a submodule, each with the class where it is found now."""
        kinds = type(part).__mro__
        homes = set(map(name_of, kinds))
        for home, _, leaf in (name.rpartition(".") for name in self.code):
            if home in homes:
                yield leaf, next((kind for kind in kinds if leaf in vars(kind)), object)

    @property
    def with_reference(self) -> Contract:
        """The contract for instances of the reference's `Model` itself."""
        return replace(
            self,
            arguments=self.parameters,
            constants=self.defaults,
            attributes={},
            code={},
            original=None,
        )


def overlap(*tensors: torch.Tensor) -> bool:
    """Whether two tensors may share memory, judged by the range from their first to their last element."""
    ranges = []
    for each in tensors:
        last = sum((n - 1) * step for n, step in zip(each.shape, each.stride(), strict=True))
        if each.numel():
            start = each.data_ptr()
            ranges.append((start, start + (last + 1) * each.element_size()))
    ranges.sort()
    return any(end > start for (_, end), (start, _) in itertools.pairwise(ranges))


def read_contract(reference: ModuleType, source: str, device: str) -> Contract:
    """Read what a kernel was verified for, by running its problem.

    The problem runs without memory (under `torch.device("meta")`) or, if it cannot, for real on `device`. Raises Misfit
    if neither works.
    """
    with own_random_numbers(), as_verified(), torch.no_grad():
        try:
            model, cases, changes = _run(reference, "meta")
        except Exception:  # whatever the problem's code cannot do without values
            try:
                model, cases, changes = _run(reference, device)
            except Exception as error:
                raise Misfit(
                    f"the problem's inputs cannot be made on {device}, so their forms are unknown: {error}"
                ) from error
    original = getattr(reference, "ORIGINAL", None)
    training = model.training if re.search(TRAINING, source) else None
    parameters, defaults = _arguments(model, len(cases[0].inputs))
    arguments, constants = parameters, defaults
    if original is not None:
        training = original.get("training", False)
        arguments, constants = tuple(original["arguments"]), dict(original.get("constants", {}))
    weights = model.named_parameters(remove_duplicate=False)
    state = [*weights, *model.named_buffers(remove_duplicate=False)]
    names: dict[int, list[str]] = {}
    for name, tensor in state:
        names.setdefault(id(tensor), []).append(name)
    backward = getattr(reference, "BACKWARD", False) is True
    return Contract(
        original=original and original["name"],
        arguments=arguments,
        constants=constants,
        attributes=original.get("attributes", {}) if original else {},
        code=original.get("code", {}) if original else {},
        training=training,
        backward=backward,
        cases=cases,
        state={name: TensorForm.of(tensor) for name, tensor in state},
        saved=frozenset(model.state_dict()),
        classes={path: type(module) for path, module in model.named_modules()},
        changes_tensors=changes,
        tied=tuple(tuple(each) for each in names.values() if len(each) > 1),
        differentiated=frozenset(name for name, each in state if backward and each.requires_grad),
        parameters=parameters,
        defaults=defaults,
    )


def _run(reference: ModuleType, device: str) -> tuple[nn.Module, tuple[Case, ...], bool]:
    """The model, its cases, and whether a call changed or replaced a tensor."""
    with torch.device(device):
        model = reference.Model(*reference.get_init_inputs()).to(device)
        cases, changes = [], False
        for name in getattr(reference, "CASES", ("",)):
            inputs = reference.get_inputs(name) if name else reference.get_inputs()
            asked = [place for place, each in tensors_in(inputs) if each.requires_grad]
            fixed = {place for place, _ in tensors_in(inputs) if asked and place not in asked}
            inputs = with_tensors(inputs, (t.to(device) for _, t in tensors_in(inputs)))
            form = formed(tuple(inputs))
            given = [tensor for _, tensor in tensors_in(inputs)]
            watched = [*given, *model.parameters(), *model.buffers()]
            versions = [(id(tensor), tensor._version) for tensor in watched]
            outputs = formed(model(*inputs))
            now = [*given, *model.parameters(), *model.buffers()]
            changes |= versions != [(id(tensor), tensor._version) for tensor in now]
            cases.append(Case(name, form, outputs, frozenset(fixed)))
    return model, tuple(cases), changes


def _arguments(model: nn.Module, given: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Forward's parameters that `get_inputs` gives, and the defaults of the others; none if it takes `*arguments`."""
    parameters = list(signature(model.forward).parameters.values())
    if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        return (), {}
    rest = [each for each in parameters[given:] if each.default is not Parameter.empty]
    names = tuple(each.name for each in parameters[:given])
    return names, {each.name: repr(each.default) for each in rest}


def attribute(module: Any, name: str) -> Any:
    """An attribute, such as `config.hidden_size`."""
    return functools.reduce(getattr, name.split("."), module)


@contextmanager
def as_verified() -> Iterator[None]:
    """The modes of PyTorch in which kernels are verified, whatever the user's are while a kernel is applied."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False):
            yield
    finally:
        torch.set_default_dtype(default)


def own_random_numbers() -> AbstractContextManager[None]:
    """A context that leaves the generators of random numbers as they were."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    return torch.random.fork_rng(devices=list(devices))
