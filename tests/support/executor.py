"""Provides a fake executor that derives evaluations from the candidate's source, without a judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stark.core.candidate import Candidate
from stark.core.device import Device, device_class
from stark.core.errors import JudgeUnavailable
from stark.core.evaluation import Check, Correct, Effort, Evaluation, Untimed
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.evaluator.executors.base import Executor
from support.nodes import DEVICE, EAGER_MS, ROOFLINE, correct, failure, measurement

FAILING = ("incorrect", "build_failed", "crashed", "timed_out", "out_of_memory", "rejected")


def invented(candidate: Candidate) -> Evaluation:
    """The same evaluation for the same source. Two in three are correct, at 0.3 to 1.2 of eager's time."""
    number = int(candidate.digest, 16)
    if number % 3 == 0:
        return failure(FAILING[number // 3 % len(FAILING)])
    return correct(EAGER_MS * (0.3 + 0.9 * (number % 1009) / 1009))


VERSIONS = {"python": "3.11.7", "torch": "2.13.0"}


def kind_of(device: Device, versions: dict[str, str] = VERSIONS) -> str:
    """The kind of a fake executor's machine."""
    return device_class(device, versions)


class FakeExecutor:
    """Answers at once or after a delay, and records its requests."""

    def __init__(
        self,
        evaluation: Callable[[Candidate], Evaluation] = invented,
        *,
        device: Device = DEVICE,
        delay_s: float = 0.0,
        warnings: tuple[str, ...] = (),
        others: tuple[FakeExecutor, ...] = (),
        versions: dict[str, str] = VERSIONS,
    ) -> None:
        """`evaluation` may raise to fail a request. `warnings` go into the reference. `others` are of other kinds."""
        self._evaluation, self._delay_s, self._warnings = evaluation, delay_s, warnings
        self._device, self.others, self._versions = device, others, versions
        self.evaluated: list[Candidate] = []
        self.promoted: list[Candidate] = []
        """Candidates of final checks; they are not in `evaluated`."""

        self.raced: list[Candidate] = []
        self.checked: list[Candidate] = []
        self.closed = False

    async def describe(self, problem: Problem) -> Reference:
        """A made-up device and reference."""
        await asyncio.sleep(self._delay_s)
        spec = TensorSpec(shape=(4096, 1000), dtype="float32")
        return Reference(
            device=self._device,
            versions=self._versions,
            inputs=(spec,),
            outputs=(spec,),
            eager=measurement(EAGER_MS),
            roofline=ROOFLINE,
            warnings=self._warnings,
        )

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        """The function's evaluation of the candidate, for every effort."""
        await asyncio.sleep(self._delay_s)
        asked = {"race": self.raced, "search": self.evaluated, "promote": self.promoted}
        asked[effort].append(candidate)
        evaluation = self._evaluation(candidate)
        if isinstance(evaluation, Correct):
            return evaluation.model_copy(update={"effort": effort})
        return evaluation

    async def check(self, problem: Problem, candidate: Candidate) -> Check:
        """The function's evaluation of the candidate, without its times."""
        self.checked.append(candidate)
        evaluation = self._evaluation(candidate)
        return (
            Untimed(accuracy=evaluation.accuracy) if isinstance(evaluation, Correct) else evaluation
        )

    def on(self, device_class: str) -> Executor:
        """The first of this and the others whose kind has this text in it."""
        for each in (self, *self.others):
            if device_class in kind_of(each._device, each._versions):
                return each
        raise JudgeUnavailable(f"no judge is a machine of kind {device_class!r}")

    async def close(self) -> None:
        """Record the call."""
        self.closed = True
