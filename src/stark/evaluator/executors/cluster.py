"""An executor whose judges run in a Ray cluster: each in an actor that has a GPU, or a share of a node's processors.

Ray places actors, restarts them on other nodes, and asks its autoscaler for nodes if some find no place. An actor starts
the same judge as `local` does, beside itself, and relays messages. Queues, steering and blame are ours: a request whose
actor or node died is sent again, and no candidate is blamed for that. Drivers of one cluster share its actors.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qsl

from pydantic import NonNegativeInt, PositiveInt

from stark import __version__
from stark.core.base import Frozen
from stark.core.errors import JudgeUnavailable, UsageError
from stark.core.judging import Limits, Tools
from stark.core.toolchain import Toolchain
from stark.evaluator.executors import engine
from stark.evaluator.executors.actor import ActorJudge, ActorLost, Host
from stark.evaluator.executors.builder import Builders, build_nodes
from stark.evaluator.executors.engine import ray, shared_actor
from stark.evaluator.executors.judges import CLOSED, JudgesExecutor
from stark.evaluator.protocol import Answer, AnyRequest, Hello
from stark.explain.numbers import first_line

NAMESPACE = f"stark-{__version__}"
"""Of the actors' names. Drivers of different versions share no actors."""

LOSSES = 20
"""How often a request may be lost before it is given up: it may be what takes down the nodes. To restart an actor on another
node takes about 20 s."""

HELLOS_S = 60.0
"""Seconds to wait for judges that say what they are, while others are ready."""

CONNECT_S = 5.0
"""Seconds in which a cluster's head must accept a connection."""

POLL_S = 0.05
"""Seconds between two looks whether a judge has become ready."""


class Wish(Frozen):
    """What `ray:ADDRESS?device=cpu&judges=8&cpus=2&builders=1` says."""

    address: str | None
    """Of a cluster; None for one on this machine that ends with this process."""

    device: Literal["cpu", "cuda"] | None = None
    judges: PositiveInt | None = None
    cpus: PositiveInt = 1
    builders: NonNegativeInt | None = None

    @classmethod
    def parse(cls, text: str) -> Wish:
        """Read what follows `ray:`. Raises UsageError."""
        address, _, query = text.partition("?")
        try:
            given = parse_qsl(query, True, True) if query else ()
            return cls.model_validate({"address": address or None, **dict(given)})
        except ValueError:
            raise UsageError(
                f"cannot read the executor ray:{text}; write ray, ray:ADDRESS, or for instance "
                "ray:ADDRESS?device=cpu&judges=8&cpus=2"
            ) from None


class RayExecutor(JudgesExecutor):
    """Judges in a Ray cluster."""

    def __init__(
        self,
        text: str,
        limits: Limits | None = None,
        tools: Tools | None = None,
        command: Sequence[str] | None = None,
        build_command: Sequence[str] | None = None,
    ) -> None:
        """`text` is what follows `ray:` (see `Wish`). `command` starts another judge than STARK's own, `build_command`
        another build service.

        Raises UsageError if the text cannot be read or Ray is not installed.
        """
        super().__init__(limits, tools)
        self._wish, self._command = Wish.parse(text), command
        self._build_command = build_command
        self._judges: list[ActorJudge] = []
        self._builders: Builders | None = None
        if importlib.util.find_spec("ray") is None:
            raise UsageError("the executor ray needs Ray: pip install 'stark-kernels[ray]'")
        self._opening = asyncio.Lock()
        self._ours = False
        """Whether this executor has started the cluster."""

    async def start(self) -> None:
        """See `JudgesExecutor.start`. Waits for one judge; others join when the cluster finds places for them."""
        await self._usable(None)

    async def hellos(self) -> dict[str, Hello | Toolchain | str]:
        """See `JudgesExecutor.hellos`. Waits a while for judges and builders that have no place yet."""
        await self._ready()
        deadline = time.monotonic() + HELLOS_S
        while self._starting() and time.monotonic() < deadline:  # noqa: ASYNC110 (any of several tasks)
            await asyncio.sleep(POLL_S)
        found: dict[str, Hello | Toolchain | str] = {}
        for number, judge in enumerate(self._judges):
            if (said := judge.greeting) is None:
                reason = judge.failure or "it waits for a place in the cluster"
                found[f"judge {number}"] = str(reason)
            else:
                found[f"judge {number} on {said.node}"] = Hello.model_validate_json(said.hello)
        if self._builders is not None:
            hellos = [each for each in found.values() if isinstance(each, Hello)]
            found |= await self._builders.described(hellos, HELLOS_S)
        return found

    async def close(self) -> None:
        """See `RequestingExecutor.close`. A cluster that this executor has started ends too."""
        await super().close()
        if self._builders is not None:
            await self._builders.close()
        if self._ours:
            self._ours = False
            await asyncio.gather(*(judge.end() for judge in self._judges))
            await asyncio.to_thread(ray().shutdown)

    async def _ask_once(self, request: AnyRequest, alone: bool) -> Answer:
        """See `JudgesExecutor`. A request whose actor is lost is sent again."""
        losses = 0
        while True:
            try:
                return await super()._ask_once(request, alone)
            except ActorLost as lost:
                losses += 1
                if losses > LOSSES:
                    raise JudgeUnavailable(
                        f"the Ray cluster has lost the judges of this request {losses} times ({lost}); "
                        "look at `ray status`, and resume the run when the cluster works"
                    ) from lost
                await asyncio.sleep(engine.LOST_PAUSE_S)

    async def _usable(self, kind: str | None) -> list[ActorJudge]:
        """See `JudgesExecutor`. Those that are ready: an actor without a place would keep the request.

        Waits for one. Raises why a judge of this kind failed; or why any failed, if none is ready at all.
        """
        await self._ready(kind)
        for wanted in (kind, None):
            if self._has(wanted):
                return [judge for judge in self._judges if judge.ready]
            failures = [each.failure for each in self._judges if each.may_serve(wanted)]
            for failure in filter(None, failures):
                raise failure
        raise JudgeUnavailable(CLOSED)

    async def _ready(self, kind: str | None = None) -> None:
        """Wait until a judge of this kind is ready, or none can be. One that has failed is tried again before that.

        While others are ready, a kind that has not been there yet is waited for only `HELLOS_S`.
        """
        async with self._opening:
            if not self._judges and not self._closed:
                await self._open()
        if not self._has(kind) and not self._closed:
            for judge in self._judges:
                if judge.failure is not None and judge.may_serve(kind):
                    judge.start_again()
        on = f" on a machine of kind {kind!r}" if kind else ""
        deadline = time.monotonic() + HELLOS_S
        try:
            while not self._has(kind) and (starting := self._starting()):
                known = any(judge.device_class and judge.may_serve(kind) for judge in starting)
                if time.monotonic() >= deadline and not known and self._has(None):
                    return
                self._notified(kind, f"waiting for a judge in the Ray cluster{on}")
                await asyncio.sleep(POLL_S)
        finally:
            self._notified(kind, "")

    def _has(self, kind: str | None) -> bool:
        return any(judge.ready and judge.may_serve(kind) for judge in self._judges)

    def _starting(self) -> list[ActorJudge]:
        """Those that wait for a place in the cluster, or whose judge starts."""
        return [judge for judge in self._judges if judge.greeting is None and judge.failure is None]

    async def _open(self) -> None:
        """Connect, and create the actors or find them."""
        await asyncio.to_thread(self._connect)
        nodes, gpus = ray().nodes(), int(ray().cluster_resources().get("GPU", 0))
        alive = sum(bool(node["Alive"]) for node in nodes)
        cuda = self._wish.device == "cuda" or (self._wish.device is None and gpus > 0)
        # On a CPU, builders would take the judges' places, so they must be asked for.
        places = build_nodes(nodes, self._wish.builders if cuda else self._wish.builders or 0)
        number = self._wish.judges or (gpus if cuda else alive - len(places))
        if not number:
            raise JudgeUnavailable(
                "the Ray cluster has no place for judges now; say how many it should make room for, as in "
                "ray:ADDRESS?device=cuda&judges=8, or use device=cpu and fewer builders"
            )
        self._builders = Builders(places, NAMESPACE, self._build_command)
        if not cuda:
            # A judge must not take a part of a builder's node.
            await self._builders.greetings(HELLOS_S)
        needs: dict[str, Any] = {"num_gpus": 1} if cuda else {"num_cpus": self._wish.cpus}
        needs["scheduling_strategy"] = "SPREAD"
        device = "cuda:0" if cuda else "cpu"
        for index in range(number):
            named = Host, f"{device} {index}", NAMESPACE
            create = partial(shared_actor, *named, device, self._command, **needs)
            notified = partial(self._notified, index)
            self._judges.append(ActorJudge(create, notified, self._builders.actors))

    def _connect(self) -> None:
        """Connect to the cluster, or start one here, which asks for a token. Raises JudgeUnavailable."""
        address = self._wish.address
        if address is None and "ray" not in sys.modules:  # it reads these once
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_worker_niceness", "0")  # or judges have low priority
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns
        if ray().is_initialized():
            return
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None:
                ray().init(include_dashboard=False, **quiet)
            else:
                _require_answer(address)
                ray().init(address, **quiet)
        except Exception as error:  # Ray raises many kinds
            failed = f"reach the Ray cluster {address}" if address else "start Ray here"
            reason = first_line(str(error)) or type(error).__name__
            raise JudgeUnavailable(f"cannot {failed}: {reason}") from error
        self._ours = address is None


def _require_answer(address: str) -> None:
    """Raise OSError unless something listens at HOST:PORT. Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and "://" not in address and port.isdecimal():
        socket.create_connection((host, int(port)), CONNECT_S).close()
