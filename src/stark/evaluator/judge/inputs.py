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

CONSTRUCTION_SEED = 42
"""KernelBench builds both models under this seed; candidates that rely on it get the same weights."""


PERTURBATION = 0.1
"""Largest relative change that a parameter gets after construction."""


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
        self.path = folder / "problem.py"
        self.path.write_text(problem.source)
        self.module = self._import()
        with self._blaming("get_init_inputs"):
            self.init_arguments: list[Any] = list(self.module.get_init_inputs())
        with self._blaming("Model"), device:
            torch.manual_seed(CONSTRUCTION_SEED)
            self.model: torch.nn.Module = self.module.Model(*self.init_arguments).to(device)
        self._perturb_weights()

    def draw(self, seed: int) -> Drawn:
        """Fresh inputs, made on the device: drawing there is up to a hundred times faster than on the host."""
        torch.manual_seed(seed)
        with self._blaming("get_inputs"), self.device:
            arguments = list(self.module.get_inputs())
        tensors: list[torch.Tensor] = []

        def place(tensor: torch.Tensor) -> TensorAt:
            tensors.append(tensor.detach().to(self.device))
            return TensorAt(len(tensors) - 1)

        placed = pytree.tree_map_only(torch.Tensor, place, arguments)
        return Drawn(tensors, placed)

    def run(self, drawn: Drawn, seed: int = 0) -> list[torch.Tensor]:
        """The reference's own outputs in its own precision, as a flat list of tensors."""
        torch.manual_seed(seed)
        with self._blaming("forward"), torch.no_grad():
            return tensors_of(self.model(*drawn.filled(drawn.tensors)))

    def run_float64(self, drawn: Drawn) -> list[torch.Tensor]:
        """The oracle: weights and inputs upcast. Raises whatever the reference cannot do in float64."""
        twin = copy.deepcopy(self.model).double()
        upcast = [t.double() if t.is_floating_point() else t for t in drawn.tensors]
        with torch.no_grad():
            return tensors_of(twin(*drawn.filled(upcast)))

    def _perturb_weights(self) -> None:
        """Change every parameter a little and for good, so that nothing computed from the initial ones is right.

        By a factor, so that what must be positive stays so, and an initial 0 by an addition. Buffers
        stay: they hold masks and statistics, whose values may mean something to forward.
        """
        torch.manual_seed(secrets.randbits(48))
        for weight in self.model.parameters():
            if weight.is_floating_point():
                noise = torch.empty_like(weight).uniform_(-PERTURBATION, PERTURBATION)
                weight.data.copy_(torch.where(weight == 0, noise, weight * (1 + noise)))

    def _import(self) -> ModuleType:
        name = f"problem_{self.problem.digest}"
        specification = importlib.util.spec_from_file_location(name, self.path)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[name] = module
        with self._blaming("the file"):
            specification.loader.exec_module(module)
        return module

    def _blaming(self, part: str) -> _Blaming:
        return _Blaming(self.problem.name, str(self.path), part)


class _Blaming:
    """Turns what the user's own code raises into one sentence with its line."""

    def __init__(self, name: str, path: str, part: str) -> None:
        self._name, self._path, self._part = name, path, part

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, (ProblemError, KeyboardInterrupt)):
            return
        lines = [f.lineno for f in traceback.extract_tb(trace) if f.filename == self._path]
        if isinstance(error, SyntaxError):
            lines.append(error.lineno)
        where = f" line {lines[-1]}:" if lines else ""
        raise ProblemError(
            f"{self._name}:{where} {self._part} raised {type(error).__name__}: {error}"
        ) from error


def tensors_of(value: object) -> list[torch.Tensor]:
    """The tensors in what a forward returned. Raises ProblemError if something else is among them."""
    leaves = [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise ProblemError(
                f"forward returns a {type(leaf).__name__}; return a tensor, or a tuple, list or dict of tensors"
            )
    if not leaves:
        raise ProblemError("forward returns nothing; return a tensor")
    return leaves
