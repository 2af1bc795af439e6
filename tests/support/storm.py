"""Stresses an executor with random faulty candidates, many at once, while judges are killed.

Each candidate must get its own status, none may be lost, and the memory in use may not grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from stark.core.judging import Limits
from stark.evaluator.executors.judges import CommandsExecutor
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.processes import family

LIMITS = Limits(
    build_s=3.0, load_s=20.0, verify_s=6.0, time_s=20.0, timing_budget_s=0.1, memory_gb=1.0
)
"""Short deadlines, so that candidates that never end take little time."""

HONEST_SHARE = 0.4


@dataclass
class Storm:
    """The outcome of a storm."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Counts by kind of candidate and status."""

    wrong: list[str] = field(default_factory=list)
    """One line for each candidate with an unexpected status."""

    kills: int = 0
    processes: list[int] = field(default_factory=list)
    """Number of the executor's processes after the first candidate and after each quarter of the storm."""

    resident_mb: list[float] = field(default_factory=list)
    """Memory of these processes at the same times."""


async def storm(
    executor: CommandsExecutor,
    language: str,
    candidates: int,
    kills: int,
    in_flight: int,
    chance: random.Random,
) -> Storm:
    """Evaluate `candidates`, `in_flight` at once, and kill a judge at `kills` random times."""
    found = Storm()
    await _one(executor, language, "honest", 0, found)
    _measure(executor, found)
    deadly = set(chance.sample(range(candidates), kills))
    for quarter in range(4):
        slots = asyncio.Semaphore(in_flight)
        numbers = range(candidates * quarter // 4, candidates * (quarter + 1) // 4)

        async def send(number: int, slots: asyncio.Semaphore = slots) -> None:
            async with slots:
                if number in deadly:
                    found.kills += _kill_a_judge(executor, chance)
                await _one(executor, language, _kind(chance), number, found)

        await asyncio.gather(*map(send, numbers))
        await _one(executor, language, "honest", -quarter, found)  # ensures that a judge is running
        _measure(executor, found)
    return found


async def _one(
    executor: CommandsExecutor, language: str, kind: str, number: int, found: Storm
) -> None:
    source, wanted = FAULTS[kind]
    candidate = as_candidate(language, f"{source}\n# {number}\n")
    evaluation = await executor.evaluate(PROBLEM, candidate)
    found.verdicts[kind, evaluation.status] += 1
    if evaluation.status != wanted:
        found.wrong.append(f"{number}: {kind} is {evaluation.status}, not {wanted}: {evaluation}")


def _kind(chance: random.Random) -> str:
    return "honest" if chance.random() < HONEST_SHARE else chance.choice(list(FAULTS))


def _kill_a_judge(executor: CommandsExecutor, chance: random.Random) -> bool:
    """Kill a running judge. Returns whether there was one."""
    running = [judge.process for judge in executor._judges if judge.process is not None]
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.killpg(chance.choice(running).pid, signal.SIGKILL)
        return True
    return False


def _measure(executor: CommandsExecutor, found: Storm) -> None:
    """Record the number and memory of the executor's processes."""
    roots = [judge.process.pid for judge in executor._judges if judge.process is not None]
    running = family(roots)
    found.processes.append(len(running))
    found.resident_mb.append(round(sum(map(_resident_mb, running)), 1))


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * resource.getpagesize() / 1e6
