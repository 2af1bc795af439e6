from __future__ import annotations

import asyncio
from types import SimpleNamespace

from stark.evaluator.executors.builder import Builds
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
