"""Every kind of candidate at random, several in flight, and judges killed; `benchmarks/fault_storm.py` does it at size."""

from __future__ import annotations

import random

import pytest

from stark.evaluator.executors import open_executor
from stark.evaluator.executors.judges import CommandsExecutor
from support.storm import LIMITS, storm

pytest.importorskip("torch")


@pytest.mark.long
@pytest.mark.judge
async def test_every_candidate_gets_its_own_status_and_nothing_grows() -> None:
    executor = open_executor("local:cpu", LIMITS)
    assert isinstance(executor, CommandsExecutor)

    found = await storm(executor, "cpp", 8, kills=2, in_flight=4, chance=random.Random(5))
    await executor.close()

    assert [] == found.wrong
    assert 8 + 5 == sum(found.verdicts.values())
    assert 2 == found.kills
    assert len(set(found.processes)) == 1
    assert found.resident_mb[-1] < found.resident_mb[0] + 100
