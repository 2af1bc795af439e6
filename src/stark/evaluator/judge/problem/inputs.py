"""Runs a problem's program: imports it, draws inputs, and calls it, in its own precision or in float64.

The problem's file comes from the user and is trusted. Each problem has a judge's process of its own, in which the file runs.
"""

from __future__ import annotations

import copy
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stark.core.errors import ProblemError
from stark.core.problem import Problem
from stark.evaluator.candidate import flags
from stark.evaluator.candidate.arena import TensorAt
from stark.evaluator.candidate.backward import ForwardBackward, GradientFault, as_leaves, expanded
from stark.evaluator.candidate.program import (
    built,
    filled,
    import_file,
    parameters_named,
    seed_torch,
)
from stark.evaluator.candidate.state import Stateful
from stark.evaluator.judge.problem.arguments import (
    seed_all,
    serialized,
    unsupported,
    without_overlap,
)
from stark.evaluator.judge.problem.gradients import SOMETIMES, Differentiation
from stark.evaluator.judge.problem.values import (
    ChangesMore,
    Place,
    same_values,
    tensors_of,
    upcast,
    versions,
)
from stark.evaluator.judge.problem.weights import unreplaced, vary

CONSTRUCTION_SEED = 42
"""Seed for constructing `Model` and `ModelNew`, as in KernelBench, so both draw the same random numbers.

A candidate also gets a copy of the reference's weights, because the judge perturbs them (`weights.py`).
"""

HINTS = {
    "does not require grad": " (forward runs under torch.no_grad(); wrap code that needs gradients in "
    "`with torch.enable_grad():`)",
    "get_inputs() takes 0 positional arguments": " (with CASES, get_inputs takes the name of a case as its first argument)",
    "a leaf Variable that requires grad is being used in an in-place": " (forward must not change in place what requires "
    "gradients, as inputs do with BACKWARD = True; let it return the new values)",
}
"""What to change, by the text of an error that comes of how the problem's code is called."""

RUNNING: dict[int, tuple[str, float]] = {}
"""By thread, the problem and its function that runs there now, and since when by `time.monotonic`. A thread cannot be
ended, so whoever finds that a function takes too long must end the process."""


@dataclass(frozen=True)
class Drawn:
    """One set of inputs: tensors on the device, and arguments in which `TensorAt` marks the tensors' places."""

    tensors: list[torch.Tensor]
    arguments: list[Any]
    state: tuple[torch.Tensor, ...] = ()
    """What forward finds in the tensors of `Program.state`; empty if they are as the model has them."""


class Program:
    """A problem's module and reference model. Raises ProblemError, with the line at fault if known."""

    def __init__(self, problem: Problem, folder: Path, device: torch.device) -> None:
        self.problem = problem
        self.device = device
        self.name = f"problem_{problem.digest}"
        self.path = folder / "problem.py"
        self.path.write_text(problem.source)
        self.changes: tuple[int, ...] = ()
        """Indices of the inputs that forward changes in place, or may change; set by `run_first`."""

        self.state: tuple[str, ...] = ()
        """Names of the buffers and parameters that forward changes; set by `run_first`. Calls of this class leave them as
        they were, and return what they become."""

        self.differentiation: Differentiation | None = None
        """The gradients that are results too, if the problem asks for gradients; set by the first `draw`."""

        self._judges = self.flags = flags.current()
        """torch's settings: the judge's own, and those that hold for the problem, its reference and its candidates."""

        self._flags_known = False
        with self._user_code("the file"):
            self.module = import_file(self.name, self.path)
        with self._user_code("get_init_inputs"):
            self.init_arguments = self._call_for_list("get_init_inputs")
        self.arguments_need_module = self._needs_module("get_init_inputs", self.init_arguments)
        """Whether any argument uses classes or functions of the problem's own file."""

        with self._user_code("Model"):
            self.model = self._constructed()
        self._saved = frozenset(self.model.state_dict())
        """The names of the weights. Forward may add others, which candidates do not get."""

        vary(self.model, secrets.randbits(48))

    def draw(self, seed: int) -> Drawn:
        """Draw inputs from a seed, on the device, which can be a hundred times faster than the host. A tensor that occurs
        twice among the arguments occurs once in the result's `tensors`.
        """
        with self._user_code("get_inputs"), self.device:
            seed_all(seed)
            arguments = self._call_for_list("get_inputs")
        tensors: list[torch.Tensor] = []
        asked: list[bool] = []
        places: dict[int, TensorAt] = {}

        def place(tensor: torch.Tensor) -> TensorAt:
            if id(tensor) not in places:
                if (reason := unsupported(tensor)) is not None:
                    raise self.refusal("get_inputs", f"returns {reason}")
                tensors.append(without_overlap(tensor.detach().to(self.device)))
                asked.append(tensor.requires_grad)
                places[id(tensor)] = TensorAt(len(tensors) - 1)
            return places[id(tensor)]

        drawn = Drawn(tensors, pytree.tree_map_only(torch.Tensor, place, arguments))
        backward = self.problem.declared.backward
        return self._with_cotangents(drawn, asked, seed) if backward else drawn

    def _with_cotangents(self, drawn: Drawn, asked: list[bool], seed: int) -> Drawn:
        """The draw with a cotangent for each output that has a gradient."""
        if self.differentiation is None:
            with unreplaced(self.model), self._user_code("forward"):
                copies = [each.clone() for each in drawn.tensors]  # forward may change them
                self.differentiation = Differentiation.of(
                    self.problem.name, self.model, copies, drawn.arguments, asked
                )
        cotangents = self.differentiation.cotangents(seed, self.device)
        return Drawn([*drawn.tensors, *cotangents], self.differentiation.arguments(drawn.arguments))

    def with_expanded_cotangents(self, drawn: Drawn) -> Drawn:
        """The draw of a problem with gradients, with cotangents whose values are the same along one axis."""
        assert self.differentiation is not None
        begin = self.differentiation.inputs
        cotangents = [torch.empty_like(t).copy_(expanded(t)) for t in drawn.tensors[begin:]]
        return Drawn([*drawn.tensors[:begin], *cotangents], drawn.arguments)

    def run_first(self, drawn: Drawn) -> list[torch.Tensor]:
        """Run the reference, and detect what it changes and whether arguments need the problem's module."""
        self.arguments_need_module |= self._needs_module("get_inputs", drawn.arguments)
        given = [tensor.clone() for tensor in drawn.tensors]
        buffers = {name: each.detach().clone() for name, each in self._saved_buffers().items()}
        results, found = self._ran(drawn, given)
        pairs = enumerate(zip(given, drawn.tensors, strict=True))
        found |= {index for index, pair in pairs if not same_values(*pair)}
        now = self._saved_buffers()  # a normalization writes to its statistics unseen
        found |= {name for name, each in buffers.items() if not same_values(now[name], each)}
        self._flags_known = True
        known = self.changes, self.state
        self.learn(found)
        return results if known == (self.changes, self.state) else self.run(drawn)

    def found(self, drawn: Drawn) -> tuple[torch.Tensor, ...]:
        """What forward finds in the tensors of `state` with this draw."""
        if drawn.state or not self.state:
            return drawn.state
        own = self.model.state_dict()
        return tuple(own[name] for name in self.state)

    def with_state(self, drawn: Drawn) -> Drawn:
        """The draw with copies of what forward finds in the tensors of `state`."""
        return replace(drawn, state=tuple(each.clone() for each in self.found(drawn)))

    def learn(self, found: Collection[Place]) -> None:
        """Note what forward changes, besides what is known."""
        every = {*found, *self.changes, *self.state}
        self.changes = tuple(sorted(each for each in every if isinstance(each, int)))
        self.state = tuple(name for name in self.model.state_dict() if name in every)

    def run(
        self,
        drawn: Drawn,
        seed: int = 0,
        mode: str | None = None,
        watching: AbstractContextManager[object] | None = None,
    ) -> list[torch.Tensor]:
        """Run the reference in its own precision, in one of the modes of `candidate/backward.py` if `mode` names one.

        Returns its outputs, what it makes of `state`, then the inputs that it changed in place. `watching` is entered
        for the call alone. Raises ChangesMore, with the tensors changed, if forward writes to others.
        """
        results, found = self._ran(drawn, self._given(drawn), seed, mode, watching)
        if more := found.difference(self.changes, self.state):
            raise ChangesMore(self.problem.name, more)
        return results

    def _ran(
        self,
        drawn: Drawn,
        given: list[torch.Tensor],
        seed: int = 0,
        mode: str | None = None,
        watching: AbstractContextManager[object] | None = None,
    ) -> tuple[list[torch.Tensor], set[Place]]:
        """What the reference returns for these tensors, and to which of them and of its weights it writes."""
        seed_torch(seed)
        weights = buffers = self._saved_buffers()
        if self.differentiation is None:  # else each call renews the parameters' versions
            weights = buffers | dict(self.model.named_parameters())
        tensors, places = [*given, *weights.values()], (*range(len(given)), *weights)
        before = versions(tensors)
        with unreplaced(self.model):
            with self._user_code("forward"), torch.no_grad(), watching or nullcontext():
                results = self._results(self.model, drawn, given, mode)
            left = self._saved_buffers()
        replaced = {name for name, each in buffers.items() if not same_values(left.get(name), each)}
        counts = zip(places, before, versions(tensors), strict=True)
        return results, replaced | {place for place, former, now in counts if former != now}

    def _saved_buffers(self) -> dict[str, torch.Tensor]:
        return {name: each for name, each in self.model.named_buffers() if name in self._saved}

    def run_as_constructed(self, drawn: Drawn, stale: Collection[str]) -> list[torch.Tensor]:
        """Run a model of which the weights `stale` are as `__init__` made them, as in a candidate that packs them there."""
        with self._user_code("Model"), torch.no_grad():
            model = self._constructed()
            weights = self.model.state_dict().items()
            model.load_state_dict({k: w for k, w in weights if k not in stale}, strict=False)
            return self._results(model, drawn, self._given(drawn))

    def in_float64(self, constructed: bool) -> torch.nn.Module:
        """Return a copy of the model with its weights in float64.

        In a plain copy, functions that `__init__` made still refer to the submodules of the original. In a model that
        is constructed again they refer to its own.
        """
        with self._settings():
            if constructed:
                twin = self._constructed().train(self.model.training)
                twin.load_state_dict(self.model.state_dict())
            else:
                twin = copy.deepcopy(self.model)
            for state in (*twin.parameters(), *twin.buffers()):
                state.data = upcast(state.data)  # at first, or `double` would copy a shared buffer
            return twin.double()

    def run_float64(self, drawn: Drawn, twin: torch.nn.Module) -> list[torch.Tensor]:
        """Run `twin`, the model in float64, on inputs in float64. Raises whatever the reference raises in float64."""
        given = [upcast(tensor) for tensor in self._given(drawn)]
        with self._settings(), torch.no_grad():
            return self._results(twin, drawn, given)

    def _results(
        self,
        model: torch.nn.Module,
        drawn: Drawn,
        given: list[torch.Tensor],
        mode: str | None = None,
    ) -> list[torch.Tensor]:
        """Call a model, also backward if gradients are asked for. Returns results like `run`. The model keeps its values."""
        changed = [given[index] for index in self.changes]
        if not self.state:
            return [*tensors_of(self._called(model, model, drawn, given, mode)), *changed]
        stateful = Stateful(model, model, self.state, model.state_dict())
        stateful.find(drawn.state)
        call = partial(self._called, stateful.forward, model, drawn, given, mode)
        try:
            return [*stateful.apart(tensors_of(stateful.with_state(call))), *changed]
        finally:
            stateful.find(())
            stateful.restore()

    def _called(
        self,
        forward: Callable[..., object],
        model: torch.nn.Module,
        drawn: Drawn,
        given: list[torch.Tensor],
        mode: str | None,
    ) -> object:
        """What a call by `forward` returns, the gradients too."""
        if self.differentiation is None:
            return forward(*filled(drawn.arguments, given))
        wanted = self.differentiation.wanted
        parameters = parameters_named(model, model.state_dict(), wanted.parameters)
        arguments = filled(drawn.arguments, as_leaves(given, wanted))
        call = ForwardBackward(forward, parameters, wanted)
        returned = call(*arguments) if mode is None else call.in_mode(mode, *arguments)
        if returned and isinstance(returned[0], GradientFault):
            raise ProblemError(f"{self.problem.name}: forward {SOMETIMES}")
        return returned

    def refusal(self, function: str, reason: str) -> ProblemError:
        """Build an error that names one of the problem's functions and the function's line."""
        found = getattr(self.module, function, None)
        found = getattr(found, "func", found)  # `Problem.at` wraps get_inputs
        code = getattr(found, "__code__", None)
        where = f" line {code.co_firstlineno}:" if code is not None else ""
        return ProblemError(f"{self.problem.name}:{where} {function} {reason}")

    def close(self) -> None:
        """Remove the imported module from `sys.modules`."""
        sys.modules.pop(self.name, None)

    def _constructed(self) -> torch.nn.Module:
        model: torch.nn.Module = built(
            self.module.Model, self.init_arguments, self.device, CONSTRUCTION_SEED
        )
        return model

    def _given(self, drawn: Drawn) -> list[torch.Tensor]:
        """Return the drawn tensors, but copies of the tensors that forward changes."""
        return [
            tensor.clone() if index in self.changes else tensor
            for index, tensor in enumerate(drawn.tensors)
        ]

    def _call_for_list(self, function: str) -> list[Any]:
        """Call one of the problem's functions. Raises ProblemError unless it returns a list or tuple."""
        returned = getattr(self.module, function)()
        if not isinstance(returned, list | tuple):
            raise self.refusal(
                function, f"returns a {type(returned).__name__}; return a list of the arguments"
            )
        return list(returned)

    def _needs_module(self, function: str, value: list[Any]) -> bool:
        """Whether unpickling a value requires the problem's module. Raises ProblemError if it cannot be pickled."""
        try:
            return self.name.encode() in serialized(value)
        except ValueError as error:
            raise self.refusal(function, f"returns {error}") from error

    @contextmanager
    def _user_code(self, part: str) -> Iterator[None]:
        """Run code of the problem, with its own settings. Its exceptions become ProblemErrors that name the line.

        An asynchronous error of a GPU kernel, such as an index out of range, has no line.
        """
        thread = threading.get_ident()
        with self._settings():
            try:
                RUNNING[thread] = f"{self.problem.name}: {part}", time.monotonic()
                yield
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
            except ProblemError:
                raise
            except BaseException as error:
                # SystemExit and KeyboardInterrupt are the user's too: no signal reaches this thread.
                frames = traceback.extract_tb(error.__traceback__)
                lines = [frame.lineno for frame in frames if frame.filename == str(self.path)]
                if isinstance(error, SyntaxError):
                    lines.append(error.lineno)
                where = f" line {lines[-1]}:" if lines else ""
                advice = next((hint for text, hint in HINTS.items() if text in str(error)), "")
                raise ProblemError(
                    f"{self.problem.name}:{where} {part} raised {type(error).__name__}: {error}{advice}"
                ) from error
            finally:
                RUNNING.pop(thread, None)

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Let the problem's settings of torch hold: those that it sets up to the end of its first call. Then the judge's."""
        flags.apply(self.flags)
        try:
            yield
        finally:
            if not self._flags_known:
                self.flags = flags.current()
            flags.apply(self._judges)
