from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from stark.evaluator.executors import engine
from stark.evaluator.executors.builder import Builds, greeted
from stark.evaluator.executors.desk import Desk
from stark.evaluator.protocol import Hello
from support.nodes import CPU, TOOLCHAIN


async def asked(desk: Desk) -> bytes:
    reader, writer = await asyncio.open_unix_connection(desk.socket)
    writer.write(b"a request\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_a_desk_without_builders_hangs_up_until_a_driver_brings_one() -> None:
    async def greet() -> Builds:
        return Builds("a node", TOOLCHAIN)

    async def build(request: bytes) -> bytes:
        return b"built for " + request

    builder = SimpleNamespace(
        greet=SimpleNamespace(remote=greet), build=SimpleNamespace(remote=build)
    )
    hello, desk = Hello(device=CPU, versions={}, toolchain=TOOLCHAIN), Desk()

    await desk.open({}, hello)
    assert b"" == await asked(desk)

    await desk.open({"builder": builder}, hello)
    assert b"built for a request\n" == await asked(desk)
    desk.close()


async def test_a_builder_that_ray_starts_again_is_greeted_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exceptions = pytest.importorskip("ray").exceptions
    monkeypatch.setattr(engine, "LOST_PAUSE_S", 0.01)
    losses = [exceptions.ActorUnavailableError("it restarts", None)] * 2

    async def greet() -> Builds:
        if losses:
            raise losses.pop()
        return Builds("a node", TOOLCHAIN)

    async def dead() -> Builds:
        raise exceptions.ActorDiedError

    def actor(method: object) -> SimpleNamespace:
        return SimpleNamespace(greet=SimpleNamespace(remote=method))

    assert Builds("a node", TOOLCHAIN) == await greeted(actor(greet))
    assert await greeted(actor(dead)) is None
    losses += [exceptions.ActorUnavailableError("it restarts", None)] * 1000
    assert await greeted(actor(greet), limit_s=0.05) is None
