"""Executors for tests: one without a judge, and one that shares the judges of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.errors import CompilerRefused
from stark.core.evaluation import Correct, Effort, Evaluation
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.evaluator.executors.base import Executor, RequestingExecutor
from stark.evaluator.protocol import Answer, AnyRequest
from stark.testing.nodes import DEVICE, EAGER_MS, ROOFLINE, correct, failure, measurement

COMPILED = "class ModelNew: ...  # as the compiler has it\n"

FAILING = ("incorrect", "build_failed", "crashed", "timed_out", "out_of_memory", "rejected")


def invented(candidate: Candidate) -> Evaluation:
    """The same verdict for the same source: two in three work, between 0.3 and 1.2 of eager's time."""
    number = int(candidate.digest, 16)
    if number % 3 == 0:
        return failure(FAILING[number // 3 % len(FAILING)])
    return correct(EAGER_MS * (0.3 + 0.9 * (number % 1009) / 1009))


class FakeExecutor:
    """Answers at once, or after a delay; keeps what it was asked."""

    def __init__(
        self,
        evaluation: Callable[[Candidate], Evaluation] = invented,
        *,
        device: Device = DEVICE,
        delay_s: float = 0.0,
        warnings: tuple[str, ...] = (),
        compiled: str | CompilerRefused = COMPILED,
    ) -> None:
        """`evaluation` may raise to fail a request; `warnings` are the reference's; `compiled` is the compiler's."""
        self._evaluation, self._delay_s, self._warnings = evaluation, delay_s, warnings
        self._device, self._compiled = device, compiled
        self.evaluated: list[Candidate] = []
        self.promoted: list[Candidate] = []
        """Those of the final checks, which are not among `evaluated`."""

        self.compilations = 0
        """How often the compiler was asked."""

        self.closed = False

    async def describe(self, problem: Problem) -> Reference:
        """An invented device with an invented time."""
        await asyncio.sleep(self._delay_s)
        spec = TensorSpec(shape=(4096, 1000), dtype="float32")
        return Reference(
            device=self._device,
            versions={"python": "3.11.7", "torch": "2.13.0"},
            inputs=(spec,),
            outputs=(spec,),
            eager=measurement(EAGER_MS),
            roofline=ROOFLINE,
            warnings=self._warnings,
        )

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """What the function makes of the candidate, whatever the effort."""
        await asyncio.sleep(self._delay_s)
        (self.evaluated if effort == "search" else self.promoted).append(candidate)
        evaluation = self._evaluation(candidate)
        if isinstance(evaluation, Correct):
            return evaluation.model_copy(update={"effort": effort})
        return evaluation

    async def compiled(self, problem: Problem, language: str) -> Candidate:
        """A candidate of the source that was given, or the refusal."""
        await asyncio.sleep(self._delay_s)
        self.compilations += 1
        if isinstance(self._compiled, CompilerRefused):
            raise self._compiled
        return Candidate(language=language, source=self._compiled)

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


class SharingExecutor(RequestingExecutor):
    """Sends requests to the judges of another executor, with limits of its own.

    Closing it leaves the judges running, since starting one takes seconds.
    """

    def __init__(self, judges: RequestingExecutor, limits: Limits) -> None:
        super().__init__(limits, None)
        self._judges = judges

    async def close(self) -> None:
        """The owner of the judges closes them."""

    async def _ask(self, request: AnyRequest) -> Answer:
        return await self._judges._ask(request)


JudgeWithin = Callable[[Limits], Executor]
"""Opens an executor on the judges that a test session shares: the type of its fixture."""
