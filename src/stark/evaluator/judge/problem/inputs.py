"""The problem's own program in the judge: its module, its inputs drawn from a seed, its float64 twin.

The reference file is the user's own and is trusted; it runs here. Knows no candidate.
"""

from __future__ import annotations

import copy
import importlib.util
import secrets
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.evaluator.candidate.arena import TensorAt
from stark.evaluator.candidate.nested import leaves_of
from stark.evaluator.judge.problem.arguments import of_its_own, packed, seeded, unfit

CONSTRUCTION_SEED = 42
"""KernelBench builds both models under this seed, so what is drawn while they are built is the same in both.
The weights are given to a candidate anyway: they were perturbed (`PERTURBATION`)."""

PERTURBATION = 0.1
"""Largest relative change that a parameter gets after construction."""

COMPARED = 1 << 25
"""Elements of two tensors that are compared at a time."""

NO_GRADIENTS = (
    " (forward is called without gradients: put what needs them under `with torch.enable_grad():`)"
)


@dataclass(frozen=True)
class Drawn:
    """One set of inputs: tensors on the device, and the argument list with their places marked."""

    tensors: list[torch.Tensor]
    arguments: list[Any]

    def filled(self, tensors: list[torch.Tensor]) -> list[Any]:
        """The argument list with other tensors in the marked places."""
        filled: list[Any] = pytree.tree_map_only(
            TensorAt, lambda place: tensors[place.index], self.arguments
        )
        return filled


class Program:
    """A problem's module, imported from a file of its own. Raises ProblemError with the line at fault."""

    def __init__(self, problem: Problem, folder: Path, device: torch.device) -> None:
        self.problem = problem
        self.device = device
        self.name = f"problem_{problem.digest}"
        self.path = folder / "problem.py"
        self.path.write_text(problem.source)
        self.changes: tuple[int, ...] = ()
        """Which inputs forward changes in place, as `run_first` found."""

        self.module = self._import()
        with self._blaming("get_init_inputs"):
            self.init_arguments = self._listed("get_init_inputs")
        self.travels_with_module = self._travels_with_module("get_init_inputs", self.init_arguments)
        """Whether what the module is built from or called with needs the problem's own classes or functions."""

        with self._blaming("Model"), device:
            torch.manual_seed(CONSTRUCTION_SEED)
            self.model: torch.nn.Module = self.module.Model(*self.init_arguments).to(device)
        self._perturb_weights()

    def draw(self, seed: int) -> Drawn:
        """Fresh inputs, made on the device: drawing there is up to a hundred times faster than on the host.

        The same tensor given twice is one tensor of the result.
        """
        with seeded(seed), self._blaming("get_inputs"), self.device:
            arguments = self._listed("get_inputs")
        tensors: list[torch.Tensor] = []
        places: dict[int, TensorAt] = {}

        def place(tensor: torch.Tensor) -> TensorAt:
            if id(tensor) not in places:
                if (reason := unfit(tensor)) is not None:
                    raise self.refusal("get_inputs", f"returns {reason}")
                tensors.append(of_its_own(tensor.detach().to(self.device)))
                places[id(tensor)] = TensorAt(len(tensors) - 1)
            return places[id(tensor)]

        return Drawn(tensors, pytree.tree_map_only(torch.Tensor, place, arguments))

    def run_first(self, drawn: Drawn) -> list[torch.Tensor]:
        """`run`, which also finds out which inputs forward changes and whether the arguments can travel."""
        self.travels_with_module |= self._travels_with_module("get_inputs", drawn.arguments)
        trial = Drawn([tensor.clone() for tensor in drawn.tensors], drawn.arguments)
        returned = self.run(trial)
        pairs = enumerate(zip(trial.tensors, drawn.tensors, strict=True))
        self.changes = tuple(index for index, pair in pairs if not same(*pair))
        return [*returned, *(trial.tensors[index] for index in self.changes)]

    def run(self, drawn: Drawn, seed: int = 0) -> list[torch.Tensor]:
        """What the reference computes in its own precision: its outputs, then what it leaves in inputs that it changes."""
        torch.manual_seed(seed)
        given = self._given(drawn)
        with self._blaming("forward"), torch.no_grad():
            returned = tensors_of(self.model(*drawn.filled(given)))
        return [*returned, *(given[index] for index in self.changes)]

    def in_float64(self) -> torch.nn.Module:
        """The module with its weights upcast."""
        twin = copy.deepcopy(self.model).double()
        for state in (*twin.parameters(), *twin.buffers()):
            state.data = _upcast(state.data)
        return twin

    def run_float64(self, drawn: Drawn, twin: torch.nn.Module) -> list[torch.Tensor]:
        """The oracle: `twin` on inputs upcast. Raises whatever the reference cannot do in float64."""
        upcast = [_upcast(tensor) for tensor in self._given(drawn)]
        with torch.no_grad():
            returned = tensors_of(twin(*drawn.filled(upcast)))
        return [*returned, *(upcast[index] for index in self.changes)]

    def refusal(self, function: str, reason: str) -> ProblemError:
        """The error that blames one of the problem's functions, with its line."""
        code = getattr(getattr(self.module, function, None), "__code__", None)
        where = f" line {code.co_firstlineno}:" if code is not None else ""
        return ProblemError(f"{self.problem.name}:{where} {function} {reason}")

    def close(self) -> None:
        """Forget the imported module."""
        sys.modules.pop(self.name, None)

    def _given(self, drawn: Drawn) -> list[torch.Tensor]:
        """The drawn tensors, with copies of those that forward changes."""
        return [
            tensor.clone() if index in self.changes else tensor
            for index, tensor in enumerate(drawn.tensors)
        ]

    def _listed(self, function: str) -> list[Any]:
        """What one of the problem's functions returns. Raises ProblemError if that is no list."""
        returned = getattr(self.module, function)()
        if not isinstance(returned, list | tuple):
            raise self.refusal(
                function, f"returns a {type(returned).__name__}; return a list of the arguments"
            )
        return list(returned)

    def _travels_with_module(self, function: str, value: list[Any]) -> bool:
        """Whether a value in another process needs this problem's module. Raises ProblemError if it cannot get there."""
        try:
            return self.name.encode() in packed(value)
        except ValueError as error:
            raise self.refusal(function, f"returns {error}") from error

    def _perturb_weights(self) -> None:
        """Change every parameter a little and for good, so that nothing computed from the initial ones is right.

        By a factor, so that what must be positive stays so, and an initial 0 by an addition. Buffers
        stay, since their values may mean something to forward, but for the statistics of a normalization: at the 0
        and 1 that they begin with, whoever leaves them out is right.
        """
        torch.manual_seed(secrets.randbits(48))
        statistics = (
            statistic
            for module in self.model.modules()
            if isinstance(module, torch.nn.modules.batchnorm._NormBase)
            for statistic in (module.running_mean, module.running_var)
        )
        for weight in (*self.model.parameters(), *statistics):
            if weight is not None and (weight.is_floating_point() or weight.is_complex()):
                factors = torch.rand(weight.shape, device=weight.device)
                noise = PERTURBATION * (2 * factors - 1).to(weight.dtype)
                weight.data.copy_(torch.where(weight == 0, noise, weight * (1 + noise)))

    def _import(self) -> ModuleType:
        specification = importlib.util.spec_from_file_location(self.name, self.path)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[self.name] = module
        with self._blaming("the file"):
            specification.loader.exec_module(module)
        return module

    def _blaming(self, part: str) -> _Blaming:
        return _Blaming(self.problem.name, str(self.path), part, self.device)


class _Blaming:
    """Turns what the user's own code raises into one sentence with its line; what a kernel of it met, without one."""

    def __init__(self, name: str, path: str, part: str, device: torch.device) -> None:
        self._name, self._path, self._part, self._device = name, path, part, device

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        # SystemExit and KeyboardInterrupt are the user's code too: this is no thread that signals reach.
        error = error or self._late()
        if error is None or isinstance(error, ProblemError):
            return
        lines = [f.lineno for f in traceback.extract_tb(trace) if f.filename == self._path]
        if isinstance(error, SyntaxError):
            lines.append(error.lineno)
        where = f" line {lines[-1]}:" if lines else ""
        hint = NO_GRADIENTS if "does not require grad" in str(error) else ""
        raise ProblemError(
            f"{self._name}:{where} {self._part} raised {type(error).__name__}: {error}{hint}"
        ) from error

    def _late(self) -> RuntimeError | None:
        """What a kernel met, an index out of range for one, which shows only when the device is waited for."""
        try:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            return error
        return None


def tensors_of(value: object) -> list[torch.Tensor]:
    """The tensors in what a forward returned. Raises ProblemError if something else is among them."""
    leaves = []
    for leaf in leaves_of(value):
        if not isinstance(leaf, torch.Tensor):
            raise ProblemError(
                f"forward returns a {type(leaf).__name__}; return a tensor, or a tuple, list or dict of tensors"
            )
        if (reason := unfit(leaf)) is not None:
            raise ProblemError(f"forward returns {reason}")
        leaves.append(leaf.detach())
    if not leaves:
        raise ProblemError("forward returns nothing; return a tensor")
    return leaves


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, NaN being equal to itself. Looks at a piece at a time."""
    pairs = zip(one.reshape(-1).split(COMPARED), other.reshape(-1).split(COMPARED), strict=True)
    return all(
        torch.equal(*pair) or torch.allclose(*pair, rtol=0, atol=0, equal_nan=True)
        for pair in pairs
    )


def _upcast(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
