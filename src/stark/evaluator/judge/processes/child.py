"""Sends requests to one confined child process, watches its resource use, and stops and kills the process.

Knows nothing about correctness. Reports only what the child answered or how it ended.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from stark.evaluator.candidate.sandbox.layers import WITHOUT
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message
from stark.evaluator.judge.processes.allowance import Allowance, Use
from stark.evaluator.judge.processes.failures import (
    ChildFailed,
    FailureKind,
    ReferenceDied,
    SandboxFailed,
)
from stark.evaluator.judge.processes.memory import innermost_process
from stark.evaluator.judge.processes.output import Output
from stark.evaluator.judge.processes.standstill import NotStopped, Tree

POLL_S = 0.05
"""Seconds between two checks of a child's resource use while the judge waits for its answer."""

START_S = 60.0
"""Seconds allowed for confinement, which normally takes milliseconds."""

ENDING_S = 5.0
"""Seconds to wait until a killed child has exited. A process stuck in a driver takes longer."""

CLOSED_S = 1.0
"""Seconds in which a child may exit after it has closed its channel."""

LEAST_S = 1e-3
"""Seconds to wait for an answer at least, however little patience is left."""


@dataclass
class Patience:
    """The seconds that the judge will wait for a child, in all requests together."""

    left_s: float = math.inf
    ended: bool = False
    """Whether nobody wants to know any more. Then every wait ends at once, as if its time were over."""


class Child:
    """One running child, which is confined. Every method except `close` may raise ChildFailed.

    If the child runs a reference that works (`is_reference`), they raise ReferenceDied instead: no candidate is to blame.
    """

    def __init__(
        self,
        pid: int,
        ask_forkserver: Callable[[Message], Message],
        channel: Channel,
        output: Output,
        allowed: Allowance,
    ) -> None:
        """Wait until the child is confined. If that fails, close the child and raise SandboxFailed."""
        self.pid = pid
        """The ID of the first process in the child's process tree, which reaps the others."""

        self.patience = Patience()
        self.is_reference = False
        self.state_at: list[int] = []
        """On a CPU, the addresses of what its module's forward changes, if the judge can write there."""

        self._ask_forkserver, self._channel = ask_forkserver, channel
        self._output = output
        self._tree = Tree(pid)
        self._code: int | None = None
        try:
            ready = self._channel.receive(START_S)
        except (ChannelClosed, TimeoutError) as failure:
            ready = {"error": str(failure) or f"it sent nothing within {START_S:g} s"}
        if ready.get("ok") is not True:
            error, said = ready.get("error"), self.close()
            raise SandboxFailed(
                f"cannot confine a child process: {error}\n{said}\nRun `stark doctor` to see "
                f"which sandbox layers work; set {WITHOUT} to the layers to leave out, "
                "separated by commas"
            )
        self._use = Use(pid, allowed)
        self.runner_pid = innermost_process(pid)
        """The ID of the process that runs the program, the last of a chain."""

    def failed(
        self, kind: FailureKind, error: str, types: tuple[str, ...] = ()
    ) -> ChildFailed | ReferenceDied:
        """The exception for a failure of this child."""
        failure = ChildFailed(kind, error, types)
        said = f"the running reference failed ({kind.replace('_', ' ')}): {error}"
        return ReferenceDied(said, failure) if self.is_reference else failure

    def ask(self, request: Message, limit_s: float = math.inf) -> Message:
        """Send a request and wait up to `limit_s` seconds for its answer. Fails like `answer`."""
        return self.answer(self.send(request), limit_s)

    def send(self, request: Message) -> str:
        """Send a request and return the nonce that its answer must have."""
        nonce = secrets.token_hex(8)
        try:
            self._channel.send({**request, "nonce": nonce})
        except ChannelClosed:
            raise self._ended() from None
        return nonce

    def answer(self, nonce: str, limit_s: float = math.inf) -> Message:
        """Wait up to `limit_s` seconds, and no longer than `patience` allows, for the answer with this nonce.

        Fails for any answer other than {"ok": true, …}.
        """
        limit_s = min(limit_s, self.patience.left_s)
        answer = self.answered(nonce, limit_s)
        if answer is None:
            raise self.failed("timed_out", f"no answer within {max(limit_s, LEAST_S):.3g} s")
        return answer

    def answered(self, nonce: str, limit_s: float) -> Message | None:
        """The answer with this nonce, or None if there is none in time. Otherwise like `answer`."""
        begin = time.monotonic()
        try:
            answer = self._receive(max(min(limit_s, self.patience.left_s), LEAST_S))
        except ChannelClosed:
            raise self._ended() from None
        finally:
            self.patience.left_s -= time.monotonic() - begin
        if answer is None:
            return None
        if answer.get("nonce") != nonce:
            raise self.failed("forged", "it answered a request that the judge did not send")
        if answer.get("ok") is not True:
            error = str(answer.get("error", "no reason given"))
            if answer.get("kind") == "out_of_memory":
                raise self.failed("out_of_memory", error)
            types = answer.get("types")
            names = tuple(map(str, types)) if isinstance(types, list) else ()
            raise self.failed("crashed", error, names)
        return answer

    def has_ended(self) -> bool:
        """Whether the child has exited."""
        return self._exit_code() is not None

    def finish(self, limit_s: float) -> int:
        """Wait for the exit of a child that serves no requests, and return its exit code.

        The code is negative if a signal killed the child. Raises ChildFailed after `limit_s` seconds.
        """
        deadline = time.monotonic() + limit_s
        while (code := self._exit_code()) is None:
            if time.monotonic() > deadline:
                raise ChildFailed("timed_out", f"it did not end within {limit_s:g} s")
            self._use.check()
            time.sleep(POLL_S)
        return code

    def pause(self) -> float:
        """Stop all its processes until `go_on`, while others are timed. Returns a `time.perf_counter()` when all had stopped."""
        try:
            return self._tree.stop()
        except NotStopped as error:
            raise self.failed("restless", str(error)) from error

    def stood_still(self) -> bool:
        """Whether none of its processes has run since `pause`."""
        return self._tree.stood()

    def go_on(self) -> None:
        """Continue its processes if they are stopped, whatever they did since `pause`."""
        self._tree.go_on()

    def close(self) -> str:
        """Kill all its processes. Returns the beginning and the end of what it printed."""
        self._channel.close()
        if self._code is None:  # otherwise its number may be another's by now
            self._ask_forkserver({"do": "kill", "pid": self.pid})
        self._code_within(ENDING_S)
        self._tree.close()
        return self._output.close()

    def _receive(self, limit_s: float) -> Message | None:
        """The next message, or None if there is none in time. Fails if the child uses too much meanwhile."""
        deadline = time.monotonic() + limit_s
        while (remaining := deadline - time.monotonic()) > 0 and not self.patience.ended:
            with contextlib.suppress(TimeoutError):
                return self._channel.receive(min(POLL_S, remaining))
            try:
                self._use.check()
            except ChildFailed as failure:
                raise self.failed(failure.kind, failure.error) from None
        return None

    def _exit_code(self) -> int | None:
        """Its exit code, or None if it runs. The forkserver reports a code only once, so the code is cached."""
        if self._code is None:
            self._code = self._ask_forkserver({"do": "wait", "pid": self.pid})["status"]
        return self._code

    def _code_within(self, limit_s: float) -> int | None:
        """Its exit code, or None if it still runs after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        while (code := self._exit_code()) is None and time.monotonic() < deadline:
            time.sleep(0.002)
        return code

    def _ended(self) -> Exception:
        """Why the channel closed: the process exited, a signal killed it, or it closed the channel itself."""
        code = self._code_within(CLOSED_S)
        if code == -signal.SIGKILL:
            error = "the process was killed by SIGKILL, probably because memory ran out"
            return self.failed("out_of_memory", error)
        if code is None:
            return self.failed("crashed", "the process closed its channel to the judge")
        if code >= 0:
            return self.failed("crashed", f"the process exited with code {code}")
        known = {entry.value: entry.name for entry in signal.Signals}
        return self.failed("crashed", f"the process was killed by signal {known.get(-code, -code)}")
