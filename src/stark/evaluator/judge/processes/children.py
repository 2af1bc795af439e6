"""Children that run programs: started from a forkserver, asked under a deadline, killed whole.

Knows nothing of correctness; says only what a child answered or how it ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from stark.evaluator.candidate.sandbox.bounds import most_processes
from stark.evaluator.candidate.sandbox.layers import WITHOUT, Layer, in_use
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message
from stark.evaluator.judge.processes import placing
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.folders import excess
from stark.evaluator.judge.processes.memory import copy_memory, last_of_line
from stark.evaluator.judge.processes.nameless import nameless_bytes
from stark.evaluator.judge.processes.output import Output
from stark.evaluator.judge.processes.standstill import Restless, Standstill, go_on, stop
from stark.evaluator.judge.processes.watch import (
    exact_memory_bytes,
    last_core,
    use_of_tree,
    waits_s,
)

POLL_S = 0.05
"""How often a waiting judge looks at what a child uses."""

FOLDER_POLL_S = 1.0
"""How often it looks at what the child has written."""

START_S = 60.0
"""How long a child may take into its place; milliseconds, unless the machine is overloaded."""

SERVER_S = 150.0
"""How long the process that children are forked from may take to answer: at first it imports torch, from a cold disk perhaps."""

ENDING_S = 5.0
"""How long a killed child may take to end; a process stuck in a driver takes longer."""

FORKSERVER_ENVIRONMENT = {
    # Importing tvm_ffi must not look for a device: a process that did cannot be forked from.
    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    # malloc keeps what it once had, as in any process that has run for a while. Otherwise the luck of
    # the heap's layout decides whether large tensors are faulted in page by page on every call, which made
    # one and the same program up to three times slower from one process to the next.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class ChildFailed(Exception):
    """A child did not answer properly: data about the candidate."""

    def __init__(
        self,
        kind: Literal["crashed", "timed_out", "out_of_memory", "forged", "restless"],
        error: str,
        types: tuple[str, ...] = (),
    ) -> None:
        super().__init__(error)
        self.kind = kind
        self.error = error
        self.types = types
        """Of the exception that it says it raised, with those of its bases and causes, by their full names."""


class ForkserverDied(Exception):
    """The process that children are forked from is gone: a fault of ours."""


class SandboxFailed(Exception):
    """A layer that this machine offers could not be put around a child: a fault of ours, and no program ran."""


@dataclass(frozen=True)
class Allowance:
    """What a child may see and use."""

    folder: Path
    """Where it works, the only folder that it may write to."""

    environment: dict[str, str]
    memory_gb: float
    """Of itself and whatever it starts, beyond what it begins with."""

    output_kb: int
    readable: tuple[Path, ...] = ()
    """Files and folders beside its own and the system's."""

    watched: tuple[Path, ...] = ()
    """Folders beside its own that something in it writes to, and that may hold no more than that one."""

    bounds_address_space: bool = False
    """Whether each of its processes is held to the memory by the kernel; drivers and compilers do not bear it."""

    cpu_s: int | None = None
    """Processor time of each of its processes."""

    attaches: bool = True
    """Whether it maps the judge's memory before a program may run."""

    on_device: bool = False
    """Whether that memory is on a GPU, which some layers would keep it from."""


class Forkserver:
    """The judge's side of `stark.evaluator.candidate.forkserver`. Safe to use from several threads."""

    def __init__(self, preload: Iterable[str]) -> None:
        ours, theirs = Channel.pair()
        descriptor = theirs.end.fileno()
        self.folder = Path(tempfile.mkdtemp(prefix="stark-judge-"))
        self._lock = threading.Lock()
        self._channel = ours
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",  # the folder that STARK was started in is none of a candidate's business
                "-m",
                "stark.evaluator.candidate.forkserver",
                str(descriptor),
                str(self.folder),
                *preload,
            ],
            env=child_environment(self.folder, FORKSERVER_ENVIRONMENT | _left_out()),
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,  # it outlives a judge that is killed, to clean up after it
        )
        theirs.close()

    @cached_property
    def sandbox(self) -> dict[Layer, str | None]:
        """Every layer with None if this machine offers it, or with why it does not."""
        layers: dict[Layer, str | None] = self._ask({"do": "sandbox"})["layers"]
        return layers

    def layers(self, on_device: bool) -> list[Layer]:
        """Those that are put around a child."""
        return sorted(in_use(self.sandbox, on_device))

    def fork(
        self, allowed: Allowance, arena: int | None = None, command: Sequence[str] = ()
    ) -> Child:
        """A confined child; `arena` is the descriptor of its shared memory, if a file. Raises SandboxFailed.

        With a `command` it becomes that, serves no requests (`Child.finish`), and is not locked: what it runs has to be.
        """
        ours, theirs = Channel.pair()
        reading, writing = os.pipe()
        handed = [theirs.end.fileno(), writing, *([] if arena is None else [arena])]
        bounded = allowed.bounds_address_space
        request = {
            "do": "fork",
            "folder": str(allowed.folder),
            "readable": [str(path) for path in allowed.readable],
            "environment": allowed.environment,
            "memory_bytes": int(allowed.memory_gb * 1e9) if bounded else None,
            "cpu_s": allowed.cpu_s,
            "attaches": allowed.attaches,
            "on_device": allowed.on_device,
            "command": list(command),
        }
        try:
            forked = self._ask(request, tuple(handed))
        finally:
            theirs.close()
            os.close(writing)
        output = Output(reading, allowed.output_kb)
        child = Child(self, forked["pid"], tuple(forked["layers"]), ours, output, allowed)
        child.begin()
        return child

    def exit_code(self, pid: int) -> int | None:
        """How a child ended (negative for a signal), or None while it lives."""
        code = self._ask({"do": "wait", "pid": pid})["status"]
        return None if code is None else int(code)

    def close(self) -> None:
        """End the server and with it every child."""
        self._channel.close()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, request: Message, descriptors: tuple[int, ...] = ()) -> Message:
        with self._lock:
            try:
                self._channel.send(request, descriptors)
                return self._channel.receive(SERVER_S)
            except (ChannelClosed, TimeoutError) as error:
                raise ForkserverDied("the process that children are forked from is gone") from error


class Child:
    """One running program. Every method but `begin` and `close` may raise ChildFailed."""

    def __init__(
        self,
        server: Forkserver,
        pid: int,
        layers: tuple[str, ...],
        channel: Channel,
        output: Output,
        allowed: Allowance,
    ) -> None:
        self.pid = pid
        """Of the keeper, the first process of its tree."""

        self.layers = layers
        """Of the sandbox around it."""

        self._server = server
        self._channel = channel
        self._output = output
        self._allowed = allowed
        self._began_with_bytes = 0
        self._runner_pid = pid
        self._folder_due = 0.0
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
        self._began_with_bytes = use_of_tree(self.pid).memory_bytes
        self._runner_pid = last_of_line(self.pid)
        self._folder_due = time.monotonic() + FOLDER_POLL_S

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
            self._check_use()
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
                    self._check_use()
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
                self._check_use()

    def _check_use(self) -> None:
        used = use_of_tree(self.pid)
        if self._is_too_much(used.memory_bytes) and self._is_too_much(exact_memory_bytes(used)):
            raise ChildFailed(
                "out_of_memory", f"it used over {self._allowed.memory_gb:g} GB of memory"
            )
        if used.tasks > most_processes():
            raise ChildFailed(
                "crashed", f"it started over {most_processes()} processes and threads"
            )
        if time.monotonic() >= self._folder_due:
            nameless = nameless_bytes(used.processes)
            for folder in (self._allowed.folder, *self._allowed.watched):
                too_much = excess(folder, nameless)
                if too_much is not None:
                    raise ChildFailed("crashed", f"it wrote {too_much}")
            self._folder_due = time.monotonic() + FOLDER_POLL_S

    def _is_too_much(self, used_bytes: int) -> bool:
        return used_bytes - self._began_with_bytes > self._allowed.memory_gb * 1e9

    def _exit_code(self) -> int | None:
        """How it ended, or None; the forkserver tells only once."""
        if self._code is None:
            self._code = self._server.exit_code(self.pid)
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


def _left_out() -> dict[str, str]:
    return {WITHOUT: os.environ[WITHOUT]} if WITHOUT in os.environ else {}
