"""Evaluates the candidates with STARK's judge, one after the other and all at once.

Each pass has a new judge with an empty build cache, started before the clock.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import groupby

from stark.core.errors import StarkError
from stark.core.evaluation import Effort, Evaluation
from stark.core.problem import Problem
from stark.evaluator.executors import Executor, open_executor
from stark.explain.evaluation import evidence
from support.candidates import PROBLEM
from versus.cases import Case
from versus.results import FAILED, Finding, Results

LONG_BUILD = "load_inline"
"""The route whose builds take half a minute; these are requested first."""

PROBLEMS = 3
"""So many problems' candidates are requested at a time, so that some are built while others are judged. Of more, a GPU's
memory does not hold the largest together."""


async def together(
    device: str,
    results: Results,
    cases: Sequence[Case],
    problems: Mapping[str, Problem],
    effort: Effort,
) -> None:
    """Evaluate all at once and measure the total time, unless an earlier run has done so."""
    if not results.missing("together", cases):
        return

    async def judged(case: Case) -> None:
        finding = await _one(executor, case, problems[case.spec], effort, first=False)
        results.add("together", case, finding)

    async with _FreshJudge(device, results) as executor:
        few = asyncio.Semaphore(PROBLEMS)

        async def batch(several: Sequence[Case]) -> None:
            async with few:
                await asyncio.gather(*map(judged, several))

        ahead, batches = schedule(cases)
        begin = time.monotonic()
        await asyncio.gather(*map(judged, ahead), *map(batch, batches))
        results.together_s = time.monotonic() - begin
    results.save()


async def alone(
    device: str,
    results: Results,
    cases: Sequence[Case],
    problems: Mapping[str, Problem],
    effort: Effort,
    deadline: float,
) -> None:
    """Evaluate candidates without a verdict one after the other, grouped by problem, until the deadline."""
    left = results.missing("alone", cases)
    if not left:
        return
    async with _FreshJudge(device, results) as executor:
        before = None
        for case in sorted(left, key=lambda case: case.spec):
            if time.monotonic() > deadline:
                print("time is up before the judge has evaluated all candidates", flush=True)
                return
            first = case.spec != before
            finding = await _one(executor, case, problems[case.spec], effort, first)
            results.add("alone", case, finding)
            before = case.spec


class _FreshJudge:
    """A started judge with an empty build cache."""

    def __init__(self, device: str, results: Results) -> None:
        self._device, self._results = device, results
        self._cache = tempfile.TemporaryDirectory(
            prefix="stark-versus-", ignore_cleanup_errors=True
        )

    async def __aenter__(self) -> Executor:
        begin = time.monotonic()
        # A command instead of `local`, because only a command can set the build folder.
        line = f"env STARK_CACHE={self._cache.name} {shlex.quote(sys.executable)} -m stark.evaluator.judge --device {self._device}"
        self._executor = open_executor(f"command:{line}")
        try:
            await self._executor.describe(PROBLEM)
        except BaseException:
            await self.__aexit__()
            raise
        self._results.start_s = time.monotonic() - begin
        return self._executor

    async def __aexit__(self, *_: object) -> None:
        await self._executor.close()
        self._cache.cleanup()


def schedule(cases: Sequence[Case]) -> tuple[list[Case], list[list[Case]]]:
    """The candidates with long builds, and batches of the others by problem. Problems with long builds come last."""
    ahead = [case for case in cases if case.route == LONG_BUILD]
    late = {case.spec for case in ahead}
    rest = [case for case in cases if case.route != LONG_BUILD]
    rest.sort(key=lambda case: (case.spec in late, case.spec))
    return ahead, [list(batch) for _, batch in groupby(rest, key=lambda case: case.spec)]


async def _one(
    executor: Executor, case: Case, problem: Problem, effort: Effort, first: bool
) -> Finding:
    begin = time.monotonic()
    try:
        found = await executor.evaluate(problem, case.candidate, effort)
    except StarkError as error:
        return Finding(FAILED, time.monotonic() - begin, str(error)[-1000:])
    return finding_of(found, time.monotonic() - begin, first)


def finding_of(found: Evaluation, seconds: float, first: bool) -> Finding:
    """The finding for an evaluation."""
    beyond_s = seconds - sum(found.seconds.values())
    said = evidence(found)[-1000:]
    return Finding(found.status, seconds, said, beyond_s=beyond_s, first=first)
