"""How long a builder's actor lives. Ray and the build service are made up."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from stark.core.toolchain import Toolchain
from stark.evaluator.executors import builder, engine
from stark.evaluator.executors.builder import Builder, Builders

SLOW_SERVICE = """
import socket, sys, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print('{"versions": {}, "cpu": ""}', flush=True)
    connection, _ = listener.accept()
    connection.recv(1000)
    time.sleep(0.5)
    connection.sendall(b"built")
    connection.close()
    sys.stdin.read()
"""


@pytest.mark.slow
async def test_a_builder_that_nobody_pings_ends_after_its_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (service := tmp_path / "service.py").write_text(SLOW_SERVICE)
    ended, ray = asyncio.Event(), MagicMock()
    ray.kill = lambda _: ended.set()
    monkeypatch.setattr(engine, "ray", lambda: ray)
    monkeypatch.setattr(engine, "PING_S", 0.02)
    actor = Builder(1, [sys.executable, str(service)])
    assert isinstance((await actor.greet()).toolchain, Toolchain)
    monkeypatch.setattr(engine, "IDLE_S", 0.2)

    answer = await actor.build(b"{}\n")

    assert b"built" == answer
    assert not ended.is_set()
    await asyncio.wait_for(ended.wait(), 10)
    assert actor._process is not None
    await asyncio.wait_for(actor._process.wait(), 10)


async def test_a_builder_that_was_lost_once_is_pinged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pings, enough = 0, asyncio.Event()

    async def ping() -> None:
        nonlocal pings
        pings += 1
        if pings == 1:
            raise ConnectionError("lost")
        enough.set()

    ray, actor = MagicMock(), MagicMock()
    ray.exceptions.RayError = ConnectionError
    ray.remote.return_value.options.return_value.remote.return_value = actor
    actor.ping.remote = ping
    actor.greet.remote.side_effect = ConnectionError
    for module in (engine, builder):
        monkeypatch.setattr(module, "ray", lambda: ray)
    monkeypatch.setattr(builder, "PING_S", 0.01)
    pinging = Builders([("a node", 2)], "building", None)

    await asyncio.wait_for(enough.wait(), 10)

    await pinging.close()
