"""A problem with cases, its evaluations, and an executor that judges each case by a made-up function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stark.core.candidate import Candidate
from stark.core.cases import Weighing
from stark.core.combined import correct_over, reference_over
from stark.core.declared import Objective
from stark.core.evaluation import Correct, Evaluation, Untimed
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Describe,
    Described,
    Evaluated,
    ProblemRefused,
)
from support.nodes import DEVICE, ROOFLINE, correct, measurement

SOURCE = """
import torch
import torch.nn as nn

CASES = {"decode": 3.0, "prefill": 1.0}
ROWS = {"decode": 8, "prefill": 1024}

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x) * self.scale

def get_inputs(case="decode"):
    return [torch.randn(ROWS[case], 256)]

def get_init_inputs():
    return [256]
"""

PROBLEM = Problem(name="scaled_relu", source=SOURCE)

EAGER_MS = {"decode": 1.0, "prefill": 16.0}

IN_TURN = "decode, prefill"
"""The name under which an executor asks for both cases in one call."""


def weighing(objective: Objective = "geomean") -> Weighing:
    """Decode counts three times."""
    return Weighing(weights={"decode": 3.0, "prefill": 1.0}, objective=objective)


def correct_in(latencies_ms: Mapping[str, float], objective: Objective = "geomean") -> Correct:
    """A candidate that is correct in both cases, with these times."""
    cases = {case: correct(ms, EAGER_MS[case]) for case, ms in latencies_ms.items()}
    return correct_over(weighing(objective), cases)


def reference_of(case: str) -> Reference:
    """The made-up reference of a case."""
    rows = {"decode": 8, "prefill": 1024}[case]
    spec = TensorSpec(shape=(rows, 256), dtype="float32")
    return Reference(
        device=DEVICE,
        versions={},
        inputs=(spec,),
        outputs=(spec,),
        eager=measurement(EAGER_MS[case]),
        roofline=ROOFLINE,
        arguments="[<tensor 0>]",
    )


def reference(objective: Objective = "geomean") -> Reference:
    """The made-up reference over both cases."""
    return reference_over(weighing(objective), {case: reference_of(case) for case in EAGER_MS})


class FakeCases(RequestingExecutor):
    """Answers each request by its case, and notes the cases in the order in which they were asked for."""

    def __init__(
        self,
        evaluation: Callable[[str, Candidate], Evaluation] = lambda case, _: correct(
            0.5, EAGER_MS.get(case, 17.0)
        ),
        reference: Callable[[str], Reference | str] = reference_of,
    ) -> None:
        """`reference` returns the reason for which a case is refused, or its reference."""
        super().__init__(None, None)
        self._evaluation, self._reference = evaluation, reference
        self.asked: list[tuple[str, str]] = []
        self.classes: list[str | None] = []

    async def answer(self, request: AnyRequest) -> Answer:
        """The case's reference or evaluation."""
        case = request.problem.name.partition("[")[2].removesuffix("]")
        self.asked.append((request.kind, case))
        self.classes.append(request.device_class)
        if not isinstance(request, Describe):
            evaluation: Evaluation | Untimed = self._evaluation(case, request.candidate)
            if isinstance(evaluation, Correct) and not request.timed:
                evaluation = Untimed(accuracy=evaluation.accuracy)
            return Evaluated(id="", evaluation=evaluation, device_class="invented")
        found = self._reference(case)
        if isinstance(found, str):
            return ProblemRefused(id="", error=found)
        return Described(id="", reference=found, device_class="invented")

    async def close(self) -> None:
        """Nothing was started."""
