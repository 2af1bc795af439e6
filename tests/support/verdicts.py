"""Honest and wrong kernels, and what the judge's verification makes of them, all in this process.

Each file of `kernels/` is a problem in KernelBench's form, followed by kernels for it. A kernel is a class that imitates
a real kernel's order of operations in plain PyTorch. The first word of its docstring says what it is:

    Honest: how it computes the function in another way
    Wrong: the fault

and lines such as `Names: missing scale` say the rest:

    Names: words that the diagnosis of a wrong kernel must contain; `|` separates alternatives, `&` parts
    Meets: the class that a kernel of too little precision must be put into, if it is accepted
    Today: why the judge accepts this wrong kernel, or refuses this honest one, although it should not
    Unnamed: why the diagnosis does not contain the words yet

No kernel is compiled, loaded into a process of its own or timed. What only those steps can find is not tested here.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from stark.core.evaluation import Effort, Incorrect
from stark.core.precision import CLASSES, looser
from stark.core.problem import Problem
from stark.evaluator.candidate.program import filled, give_weights
from stark.evaluator.candidate.state import Stateful
from stark.evaluator.judge.attempt import Verdict
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import CONSTRUCTION_SEED, Drawn, Program
from stark.evaluator.judge.problem.variants import variants
from stark.evaluator.judge.problem.weights import other_weights
from stark.evaluator.judge.trial import Called, Trial
from stark.evaluator.judge.verify.oracle import ExpectedTensor, compare
from stark.evaluator.judge.verifying import verify_on
from support.nodes import CPU

SHEET = CPU.model_copy(update={"peak_tflop_s": {"fp32": 0.4, "bf16": 0.4, "fp16": 0.4}})

KERNELS = Path(__file__).resolve().parents[1] / "verdicts" / "kernels"
ON_DEVICE = """

import functools


def _on_device(forward):
    @functools.wraps(forward)
    def call(*arguments):
        with torch.device("{device}"):
            return forward(*arguments)

    return call


for _class in [each for each in globals().values() if isinstance(each, type) and "forward" in vars(each)]:
    _class.forward = _on_device(_class.forward)
"""
"""What makes the kernels of a file, which name no device, put their own tensors on another device than the CPU."""

SHAPES = 2
"""Number of other shapes that a correct kernel is tried at, as in a final check."""


@dataclass(frozen=True)
class Kernel:
    """One kernel, as its docstring describes it."""

    problem: str
    name: str
    honest: bool
    what: str
    names: str = ""
    meets: str = ""
    today: str = ""
    unnamed: str = ""

    @property
    def id(self) -> str:
        return f"{self.problem}-{self.name}"

    def named_in(self, diagnosis: str) -> bool:
        """Whether a diagnosis contains the words that it must."""
        text = diagnosis.lower()
        return all(
            any(words.strip().lower() in text for words in part.split("|"))
            for part in self.names.split("&")
        )


@dataclass(frozen=True)
class Result:
    """What verification makes of a kernel, with the largest error relative to its budget and where it is."""

    status: str
    """`correct`, `incorrect`, `crashed`, or `shape-specialized` if it is correct only at the problem's own shape."""

    over_budget: float
    """Largest relative RMS error divided by the budget, over all trials up to the first refused one."""

    over_cap: float
    """The same of the largest error of a single element and its limit."""

    where: str
    """The regime of the refusing trial, or of the largest error."""

    diagnosis: str = ""
    meets: str = ""
    """The strictest precision class that an accepted kernel meets."""

    @property
    def accepted(self) -> bool:
        return self.status == "correct"


def kernels() -> list[Kernel]:
    """Every kernel, in the order of the files."""
    return [kernel for path in sorted(KERNELS.glob("*.py")) for kernel in _kernels(path)]


def _kernels(path: Path) -> Iterator[Kernel]:
    for match in re.finditer(
        r'^class (\w+)\([^)]*\):\n    """(Honest|Wrong): (.*?)"""', path.read_text(), re.M | re.S
    ):
        name, kind, text = match.groups()
        what, *fields = re.split(r"\n\s*(Names|Meets|Today|Unnamed): ", text)
        found = {
            key.lower(): " ".join(value.split())
            for key, value in zip(fields[::2], fields[1::2], strict=True)
        }
        yield Kernel(path.stem, name, kind == "Honest", " ".join(what.split()), **found)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let the judge draw its secrets from a seed, so that a verdict can be repeated."""
    numbers = random.Random(seed)
    with (
        patch("secrets.randbits", numbers.getrandbits),
        patch("secrets.randbelow", numbers.randrange),
    ):
        yield


class Bench:
    """A problem ready for judging, and the same problem at other shapes."""

    def __init__(self, name: str, seed: int = 0, device: str = "cpu") -> None:
        more = "" if device == "cpu" else ON_DEVICE.format(device=device)
        problem = Problem(name=name, source=(KERNELS / f"{name}.py").read_text() + more)
        self.seed, self._device = seed, torch.device(device)
        self._folder = tempfile.TemporaryDirectory()
        with seeded(seed):
            self.prepared = self._ready(problem)
        self._variants = variants(problem)
        self._others: list[tuple[str, PreparedReference]] | None = None

    def judge(self, kernel: Kernel) -> Result:
        """Verify a kernel as a final check does, and at other shapes if it is correct."""
        with seeded(self.seed + 1):
            found = verified(self.prepared, kernel.name, "promote")
            if not found.accepted:
                return found
            for change, prepared in self.others:
                other = verified(prepared, kernel.name, "search")
                if not other.accepted:
                    return Result(
                        "shape-specialized",
                        other.over_budget,
                        other.over_cap,
                        change,
                        f"shape-specialized: {other.status} with {change}\n{other.diagnosis}",
                    )
            return found

    @property
    def others(self) -> list[tuple[str, PreparedReference]]:
        if self._others is None:
            self._others = []
            for problem, change in self._variants:
                if len(self._others) == SHAPES:
                    break
                try:
                    self._others.append((change, self._ready(problem)))
                except Exception:  # the constant may not be changed by itself
                    continue
        return self._others

    def close(self) -> None:
        for _, prepared in self._others or ():
            prepared.close()
        self.prepared.close()
        self._folder.cleanup()

    def _ready(self, problem: Problem) -> PreparedReference:
        forkserver: Any = SimpleNamespace(folder=self._folder.name)
        return PreparedReference(problem, self._device, SHEET, forkserver)


def verified(prepared: PreparedReference, name: str, effort: Effort) -> Result:
    """Verify a kernel on every trial of an effort."""
    model = _constructed(prepared.program, name)
    worst, worst_where, latest, meets = (0.0, 0.0), "own", (0.0, 0.0), CLASSES[0]
    for trial in _trials(prepared, effort, model):
        where = "other weights" if trial.replaced else trial.regime or "own"
        failed: list[tuple[float, float]] = []

        def call(
            drawn: Drawn, trial: Trial = trial, failed: list[tuple[float, float]] = failed
        ) -> Called:
            called = _call(prepared, model, drawn)
            if called.odd is None:
                failed.append(_ratios(called, prepared.trials.expected(trial, drawn)))
            return called

        try:
            for comparison in verify_on(trial, prepared, call):
                meets = looser(meets, comparison.meets or CLASSES[-1])
        except Verdict as verdict:
            assert isinstance(verdict.evaluation, Incorrect)
            return Result(
                "incorrect", *max(failed, default=latest), where, verdict.evaluation.error
            )
        except Exception as error:
            return Result("crashed", 0.0, 0.0, where, f"{type(error).__name__}: {error}")
        latest = max(failed)
        if max(latest) > max(worst):
            worst, worst_where = latest, where
    return Result("correct", *worst, worst_where, meets=meets)


def _trials(prepared: PreparedReference, effort: Effort, model: torch.nn.Module) -> Iterator[Trial]:
    """The trials of an effort. Before the last one, reference and kernel get other weights."""
    yield from prepared.trials.for_effort(effort)
    trial = prepared.trials.replaced
    if trial is not None:
        with other_weights(prepared.program.model, trial.seed):
            give_weights(model, prepared.program.model.state_dict())
            yield trial


def _constructed(program: Program, name: str) -> torch.nn.Module:
    torch.manual_seed(CONSTRUCTION_SEED)
    with program.device:
        model: torch.nn.Module = getattr(program.module, name)(*program.init_arguments)
    give_weights(model, program.model.state_dict())
    return model


def _call(prepared: PreparedReference, model: torch.nn.Module, drawn: Drawn) -> Called:
    """Call a kernel on copies of the inputs. Raises whatever the kernel raises."""
    given = [tensor.clone() for tensor in drawn.tensors]
    torch.manual_seed(0)
    with torch.no_grad():
        weights, state = prepared.program.model.state_dict(), prepared.program.state
        call = Stateful(model, model, state, weights)
        returned: list[Any] = call(*filled(drawn.arguments, given))
        call.restore()
    forms, wanted = (
        [f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in results]
        for results in (returned, prepared.signature.returned)
    )
    changes = prepared.program.changes
    changed = prepared.shared.changed_input(drawn.tensors, given)
    results = [*returned, *(given[index] for index in changes)]
    return Called(results, changed, forms if forms != wanted else None)


def _ratios(called: Called, expected: Sequence[ExpectedTensor]) -> tuple[float, float]:
    """The largest error of the results, and of an element, each as a multiple of what is allowed."""
    found = list(map(compare, called.results, expected))
    budgets = [each.errors.relative_rms / (each.budget or 1.0) for each in found]
    caps = [
        each.errors.largest / (right.cap_in(right.terms.precision) or 1.0)
        for each, right in zip(found, expected, strict=True)
    ]
    return max(budgets), max(caps)
