from __future__ import annotations

import asyncio
import os
import signal

import pytest

from stark.cli import interrupt
from stark.cli.interrupt import Interrupted, run_interruptibly
from stark.correspondence import DRAIN_S


def test_work_that_is_left_alone_returns() -> None:
    async def work() -> int:
        return 7

    assert 7 == run_interruptibly(work())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_work_clean_up(number: signal.Signals) -> None:
    cleaned = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(True)

    with pytest.raises(Interrupted):
        run_interruptibly(work())

    assert [True] == cleaned


def test_replies_in_flight_are_waited_for_before_a_second_cancellation() -> None:
    assert DRAIN_S < interrupt.GRACE_S


def test_a_cancellation_that_got_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "GRACE_S", 0.05)

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(30)

    with pytest.raises(Interrupted):
        run_interruptibly(work())
