"""The candidates through this judge: one after the other, and all at once.

Each pass has a judge of its own, which has started before the clock does, and finds nothing built.
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
from stark.testing.candidates import PROBLEM
from versus.cases import Case
from versus.results import FAILED, Finding, Results

LONG_BUILD = "load_inline"
"""The route whose builds take half a minute: they are asked for before everything else."""


async def together(
    device: str,
    results: Results,
    cases: Sequence[Case],
    problems: Mapping[str, Problem],
    effort: Effort,
) -> None:
    """Ask for all at once, unless an earlier run did; the time of the whole is what counts."""
    if not results.missing("together", cases):
        return

    async def judged(case: Case) -> None:
        finding = await _one(executor, case, problems[case.spec], effort, first=False)
        results.add("together", case, finding)

    ahead, batches = schedule(cases)
    async with _FreshJudge(device, results) as executor:
        begin = time.monotonic()
        building = [asyncio.create_task(judged(case)) for case in ahead]
        for batch in batches:
            await asyncio.gather(*map(judged, batch))
        await asyncio.gather(*building)
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
    """Ask for those that have no verdict yet, one after the other, a problem's together, until the time is up."""
    left = results.missing("alone", cases)
    if not left:
        return
    async with _FreshJudge(device, results) as executor:
        before = None
        for case in sorted(left, key=lambda case: case.spec):
            if time.monotonic() > deadline:
                print("the time was up before ours had judged all one by one", flush=True)
                return
            first = case.spec != before
            finding = await _one(executor, case, problems[case.spec], effort, first)
            results.add("alone", case, finding)
            before = case.spec


class _FreshJudge:
    """A judge that has started, with an empty folder for builds."""

    def __init__(self, device: str, results: Results) -> None:
        self._device, self._results = device, results
        self._cache = tempfile.TemporaryDirectory(
            prefix="stark-versus-", ignore_cleanup_errors=True
        )

    async def __aenter__(self) -> Executor:
        begin = time.monotonic()
        # A command instead of `local`, because the folder for builds is no part of its notation.
        line = f"env STARK_CACHE={self._cache.name} {shlex.quote(sys.executable)} -m stark.evaluator.judge --device {self._device}"
        self._executor = open_executor(f"command:{line}")
        try:
            await self._executor.describe(PROBLEM)
        except BaseException:
            await self.__aexit__()
            raise
        self._results.note(
            f"ours: the judge's own start, once, took {time.monotonic() - begin:.1f} s"
        )
        return self._executor

    async def __aexit__(self, *_: object) -> None:
        await self._executor.close()
        self._cache.cleanup()


def schedule(cases: Sequence[Case]) -> tuple[list[Case], list[list[Case]]]:
    """Long builds, to be asked for first, and the others by problem, those with long builds last.

    The judge keeps one problem ready at a time, so a problem's candidates come together.
    """
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
    """An evaluation as a row has it."""
    beyond_s = seconds - sum(found.seconds.values())
    said = evidence(found)[-1000:]
    return Finding(found.status, seconds, said, beyond_s=beyond_s, first=first)
