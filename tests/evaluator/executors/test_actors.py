"""Drivers and the actors of judges in one process: only what carries their messages is made up."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

ray = pytest.importorskip("ray")

from stark import __version__
from stark.core.errors import JudgeUnavailable
from stark.core.evaluation import Correct
from stark.evaluator.executors import cluster, engine
from stark.evaluator.executors.actor import ActorJudge, Greeting, Host, Load
from stark.evaluator.executors.cluster import RayExecutor
from stark.evaluator.protocol import Evaluated, Hello, refusal, request_adapter
from support import FAKE_JUDGE
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.nodes import DEVICE, correct

HONEST = as_candidate("cpp", FAULTS["honest"][0])


class Remote:
    """A method of an actor. As in Ray, what it raises arrives as a RayError."""

    def __init__(self, method: Callable[..., Awaitable[Any]]) -> None:
        self._method = method

    async def remote(self, *given: Any) -> Any:
        try:
            return await self._method(*given)
        except Exception as error:
            raise ray.exceptions.RayError(str(error)) from error


class Handle:
    """An actor, as a driver sees it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Remote:
        return Remote(getattr(self._actor, name))


class Answering:
    """An actor without a judge: a machine of one kind that becomes ready, is lost, and answers as a test says."""

    def __init__(self, kind: str = "H100", others: int = 0) -> None:
        device = DEVICE.model_copy(update={"name": kind})
        self.hello = Hello(device=device, versions={})
        self.greetings, self.asked, self.others = 0, 0, others
        self.has_place = asyncio.Event()
        self.has_place.set()
        self.answering = asyncio.Event()
        self.answering.set()
        self.losses: list[float] = []
        """How many seconds each of the first requests lives before the actor is lost."""

    async def greet(self, _: object) -> Greeting:
        self.greetings += 1
        await self.has_place.wait()
        return Greeting(__version__, "a node", self.hello.model_dump_json(), "")

    async def ask(self, driver: str, line: str, alone: bool) -> tuple[str, Load]:
        request = request_adapter.validate_json(line)
        self.asked += 1
        if self.losses:
            await asyncio.sleep(self.losses.pop(0))
            raise ConnectionError("its node died")
        await self.answering.wait()
        kind = self.hello.device_class
        answer: Any = Evaluated(id=request.id, evaluation=correct(2.0), device_class=kind)
        if (request.device_class or "") not in kind:
            answer = refusal(request, [kind])
        return answer.model_dump_json(), (self.others, [])

    async def ping(self, driver: str) -> tuple[Load, str]:
        return (self.others, []), ""

    async def end(self) -> None:
        pass


def executor_of(*actors: Any) -> RayExecutor:
    executor = RayExecutor("somewhere:1")
    executor._judges = [
        ActorJudge(lambda each=each: Handle(each), lambda _: None, {}) for each in actors
    ]
    return executor


async def settle(executor: RayExecutor) -> None:
    """Wait until every judge is ready or has failed."""
    while executor._starting():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def fail(judge: ActorJudge) -> None:
    """Have it fail, as if its actor had said so when it was greeted."""
    judge._life.cancel()
    judge.greeting = None
    judge.failure = JudgeUnavailable("on the node n7, there is no GPU")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOST_PAUSE_S", 0.01)


@pytest.mark.slow
async def test_a_judge_that_cannot_start_again_leaves_its_requests_to_the_others(
    tmp_path: Path,
) -> None:
    fake = f"{sys.executable} {FAKE_JUDGE} {tmp_path}/notes --judging-s 0.05"
    starts_once = f"mkdir {tmp_path}/once || {{ echo no GPU >&2; exit 1; }}; exec {fake}"
    broken, working = (Host("cpu", ["sh", "-c", line]) for line in (starts_once, fake))
    executor = executor_of(broken, working)
    await settle(executor)
    assert broken._judge.process is not None
    await broken._judge.process.kill()

    found = await asyncio.gather(*(executor.evaluate(PROBLEM, HONEST) for _ in range(12)))

    assert all(isinstance(each, Correct) for each in found), found
    await settle(executor)
    assert "no GPU" in str(executor._judges[0].failure)
    await executor.close()
    for host in (broken, working):
        host._watching.cancel()
        await host.end()


@pytest.mark.slow
async def test_an_actor_does_not_end_itself_while_its_judge_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, stand_in = asyncio.Event(), MagicMock()
    stand_in.kill = lambda _: killed.set()
    monkeypatch.setattr(engine, "ray", lambda: stand_in)
    monkeypatch.setattr(engine, "IDLE_S", 0.3)
    monkeypatch.setattr(engine, "PING_S", 0.02)
    fake = f"{sys.executable} {FAKE_JUDGE} {tmp_path}/notes"
    host = Host("cpu", ["sh", "-c", f"sleep 0.6; exec {fake}"])

    assert "" == (await host.greet({})).error

    assert host._judge.process is not None
    assert host._judge.process.alive
    assert not killed.is_set()
    await host.ping("a driver")
    await asyncio.wait_for(killed.wait(), 10)
    assert not host._judge.process.alive


async def test_losses_are_forgiven_and_those_without_end_are_not() -> None:
    now_and_then, for_ever = Answering(), Answering()
    now_and_then.losses = [0.06] * cluster.LOSSES
    for_ever.losses = [0.0] * 1000

    assert isinstance(await executor_of(now_and_then).evaluate(PROBLEM, HONEST), Correct)
    with pytest.raises(JudgeUnavailable, match=r"lost .* 21 times .*its node died"):
        await executor_of(for_ever).evaluate(PROBLEM, HONEST)

    assert cluster.LOSSES + 1 == now_and_then.asked == for_ever.asked


async def test_a_request_waits_for_no_single_judge_without_a_place() -> None:
    ready, absent, late = Answering("H100"), Answering("H200"), Answering("H200")
    absent.has_place.clear()
    late.has_place.clear()
    executor = executor_of(ready, absent, late)
    said: list[str] = []
    executor.on_notice = said.append
    asked = asyncio.create_task(executor.on("H200").evaluate(PROBLEM, HONEST))
    await asyncio.sleep(0.15)
    assert isinstance(await executor.on("H100").evaluate(PROBLEM, HONEST), Correct)
    assert ["waiting for a judge in the Ray cluster on a machine of kind 'H200'"] == said

    late.has_place.set()

    assert isinstance(await asyncio.wait_for(asked, 5), Correct)
    assert ((1, 0, 1), "") == ((ready.asked, absent.asked, late.asked), said[-1])
    await executor.close()


async def test_a_kind_that_does_not_come_is_refused_unless_it_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "HELLOS_S", 0.1)
    first, second = Answering("H100"), Answering("H200")
    executor = executor_of(first, second)
    on_second = executor.on("H200")
    await on_second.evaluate(PROBLEM, HONEST)
    second.losses = [0.0]
    second.has_place.clear()
    again = asyncio.create_task(on_second.evaluate(PROBLEM, HONEST))
    await asyncio.sleep(0.05)
    assert 2 == second.greetings

    with pytest.raises(JudgeUnavailable, match="kind 'B200', and there is only 'H100"):
        await asyncio.wait_for(executor.on("B200").evaluate(PROBLEM, HONEST), 5)
    await asyncio.sleep(0.3)
    second.has_place.set()

    assert isinstance(await asyncio.wait_for(again, 5), Correct)
    await executor.close()


async def test_a_judge_that_failed_is_tried_again_for_its_kind_and_its_reason_is_given() -> None:
    ready, broken = Answering("H100"), Answering("H200")
    mended = broken.hello
    executor = executor_of(ready, broken)
    await settle(executor)
    fail(executor._judges[1])

    assert isinstance(await executor.on("H100").evaluate(PROBLEM, HONEST), Correct)
    assert 1 == broken.greetings
    assert isinstance(await executor.on("H200").evaluate(PROBLEM, HONEST), Correct)
    assert (2, 1) == (broken.greetings, broken.asked)

    async def greet(_: object) -> Greeting:
        return Greeting(__version__, "n7", mended.model_dump_json(), "there is no GPU")

    fail(executor._judges[1])
    broken.greet = greet  # type: ignore[method-assign]
    with pytest.raises(JudgeUnavailable, match="on the node n7, there is no GPU"):
        await executor.on("H200").evaluate(PROBLEM, HONEST)
    with pytest.raises(JudgeUnavailable, match="kind 'B200', and there is only 'H100"):
        await executor.on("B200").evaluate(PROBLEM, HONEST)
    await executor.close()
    with pytest.raises(JudgeUnavailable, match="is closed"):
        await executor.on("H100").evaluate(PROBLEM, HONEST)


async def test_requests_are_spread_though_those_of_another_driver_wait() -> None:
    first, second = Answering(others=20), Answering(others=21)
    for each in (first, second):
        each.answering.clear()
    executor = executor_of(first, second)
    await settle(executor)
    await asyncio.sleep(0.01)  # the first ping
    asked = [asyncio.create_task(executor.evaluate(PROBLEM, HONEST)) for _ in range(21)]
    await asyncio.sleep(0.05)

    assert [11, 10] == [first.asked, second.asked]

    for each in (first, second):
        each.answering.set()
    await asyncio.gather(*asked)
    await executor.close()


@pytest.mark.slow
async def test_an_actor_reports_the_requests_of_other_drivers(tmp_path: Path) -> None:
    host = Host("cpu", [sys.executable, FAKE_JUDGE, f"{tmp_path}/notes", "--judging-s", "0.5"])
    first, second = (executor_of(host) for _ in range(2))
    asked = [
        asyncio.create_task(executor.evaluate(PROBLEM, HONEST))
        for executor in (first, first, second)
    ]
    deadline = time.monotonic() + 20
    while len(host._judge.open) < 3:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)

    loads = {
        judge: (await host.ping(judge._driver))[0]
        for executor in (first, second)
        for judge in executor._judges
    }

    assert [1, 2] == [others for others, _ in loads.values()]
    await asyncio.gather(*asked)
    for executor in (first, second):
        await executor.close()
    host._watching.cancel()
    await host.end()
