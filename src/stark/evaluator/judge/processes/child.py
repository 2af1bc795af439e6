"""One confined program: asked under a deadline, watched, stopped and killed whole.

Knows nothing of correctness; says only what a child answered or how it ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator

from stark.evaluator.candidate.sandbox.layers import WITHOUT
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message
from stark.evaluator.judge.processes import placing
from stark.evaluator.judge.processes.allowance import Allowance, Use
from stark.evaluator.judge.processes.failures import ChildFailed, SandboxFailed
from stark.evaluator.judge.processes.memory import copy_memory, last_of_line
from stark.evaluator.judge.processes.output import Output
from stark.evaluator.judge.processes.standstill import Restless, Standstill, go_on, stop
from stark.evaluator.judge.processes.watch import last_core, waits_s

POLL_S = 0.05
"""How often a waiting judge looks at what a child uses."""

START_S = 60.0
"""How long a child may take into its place; milliseconds, unless the machine is overloaded."""

ENDING_S = 5.0
"""How long a killed child may take to end; a process stuck in a driver takes longer."""


class Child:
    """One running program. Every method but `begin` and `close` may raise ChildFailed."""

    def __init__(
        self,
        pid: int,
        exit_code: Callable[[int], int | None],
        layers: tuple[str, ...],
        channel: Channel,
        output: Output,
        allowed: Allowance,
    ) -> None:
        self.pid = pid
        """Of the keeper, the first process of its tree."""

        self.layers = layers
        """Of the sandbox around it."""

        self._exit_code_of = exit_code
        self._channel = channel
        self._output = output
        self._allowed = allowed
        self._runner_pid = pid
        self._processes: Collection[int] = ()
        self._standing: Standstill | None = None
        self._placed: placing.Placed | None = None
        self._code: int | None = None

    def begin(self) -> None:
        """Wait until it is in its place. Raises SandboxFailed, after which it is closed."""
        try:
            ready = self._channel.receive(START_S)
            error = None if ready.get("ok") is True else str(ready.get("error"))
        except (ChannelClosed, TimeoutError) as failure:
            error = str(failure) or f"it said nothing for {START_S:g} s"
        if error is not None:
            said = self.close()
            raise SandboxFailed(
                f"a child could not be confined: {error}\n{said}\nSee `stark doctor`; {WITHOUT} leaves layers out"
            )
        self._use = Use(self.pid, self._allowed)
        self._runner_pid = last_of_line(self.pid)

    def ask(self, request: Message, limit_s: float) -> Message:
        """Send a request and wait for its answer. Raises ChildFailed for anything but {"ok": true, …}."""
        return self.answer(self.send(request), limit_s)

    def send(self, request: Message) -> str:
        """Send a request; returns by what its answer is known. Raises ChildFailed."""
        nonce = secrets.token_hex(8)
        try:
            self._channel.send({**request, "nonce": nonce})
        except ChannelClosed:
            raise self._ended() from None
        return nonce

    def answer(self, nonce: str, limit_s: float) -> Message:
        """Wait for an answer. Raises ChildFailed for anything but {"ok": true, …}."""
        deadline = time.monotonic() + limit_s
        try:
            answer = self._receive(deadline, limit_s)
        except ChannelClosed:
            raise self._ended() from None
        if answer.get("nonce") != nonce:
            raise ChildFailed("forged", "it sent an answer to a request that it had not been sent")
        if answer.get("ok") is not True:
            error = str(answer.get("error", "no reason given"))
            if answer.get("kind") == "out_of_memory":
                raise ChildFailed("out_of_memory", error)
            types = answer.get("types")
            raise ChildFailed(
                "crashed", error, tuple(map(str, types)) if isinstance(types, list) else ()
            )
        return answer

    def finish(self, limit_s: float) -> int:
        """Wait for the end of one that serves no requests; returns its exit code, negative for a signal. Raises ChildFailed."""
        deadline = time.monotonic() + limit_s
        while (code := self._exit_code()) is None:
            if time.monotonic() > deadline:
                raise ChildFailed("timed_out", f"it did not end within {limit_s:g} s")
            self._use.check()
            time.sleep(POLL_S)
        return code

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at what it uses while nobody waits for an answer of it. One that uses too much is ended; raises ChildFailed."""
        done = threading.Event()
        failed: list[BaseException] = []

        def watch() -> None:
            while not done.wait(POLL_S):
                try:
                    self._use.check()
                except BaseException as failure:  # the boundary of a thread
                    failed.append(failure)
                    self._kill()
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        if failed:
            raise failed[0]

    def pause(self) -> float:
        """Stop it and all that it started until `resume`, so that nothing of it runs while another program is timed.

        Returns when it was stopped, on the clock of `time.perf_counter`.
        """
        try:
            self._standing = stop(self.pid, self._processes)
        except Restless as error:
            raise ChildFailed("restless", str(error)) from error
        self._processes = self._standing.used_ns
        return self._standing.since

    def resume(self) -> None:
        """Let it run again, if it was stopped."""
        standing, self._standing = self._standing, None
        try:
            if standing is not None:
                go_on(standing)
        except Restless as error:
            raise ChildFailed("restless", str(error)) from error

    def spread(self) -> None:
        """Keep each of its threads on one core until `loosen`: when it goes on after a stop they would crowd each other."""
        self._placed = placing.spread(self._runner_pid)

    def settle(self) -> None:
        """Keep only those of its threads that worked since, if there is a core for each."""
        if self._placed is not None:
            placing.settle(self._placed)

    def loosen(self) -> None:
        """Let its threads run on any core again."""
        placed, self._placed = self._placed, None
        if placed is not None:
            placing.loosen(placed)

    def waits_s(self) -> dict[str, float]:
        """How long each of its threads has waited for a core so far."""
        return waits_s(self._runner_pid)

    def core(self) -> int | None:
        """The core that its first thread ran on last, if that is known."""
        return last_core(self._runner_pid)

    def copy_out(self, source: int, target: int, size: int) -> bool:
        """Copy bytes from its memory to an address of this process's; false where it has none there."""
        return copy_memory(self._runner_pid, source, target, size)

    def close(self) -> str:
        """Kill the child with all its processes; returns what it printed, bounded."""
        self._channel.close()
        self._kill()
        deadline = time.monotonic() + ENDING_S
        while self._exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        return self._output.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _receive(self, deadline: float, limit_s: float) -> Message:
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ChildFailed("timed_out", f"no answer within {limit_s:g} s")
            try:
                return self._channel.receive(min(POLL_S, remaining))
            except TimeoutError:
                self._use.check()

    def _exit_code(self) -> int | None:
        """How it ended, or None; the forkserver tells only once."""
        if self._code is None:
            self._code = self._exit_code_of(self.pid)
        return self._code

    def _ended(self) -> ChildFailed:
        """Why the channel closed: an exit or a signal, or the candidate closed it itself."""
        for _ in range(100):
            code = self._exit_code()
            if code is not None:
                break
            time.sleep(0.01)
        if code is None:
            return ChildFailed("crashed", "the process closed its channel to the judge")
        if code >= 0:
            return ChildFailed("crashed", f"the process exited with code {code}")
        if -code == signal.SIGKILL:
            return ChildFailed("out_of_memory", "the process was killed by SIGKILL, as for memory")
        known = {entry.value: entry.name for entry in signal.Signals}
        return ChildFailed("crashed", f"the process died by signal {known.get(-code, -code)}")
