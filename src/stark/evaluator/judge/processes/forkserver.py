"""The judge's side of the forkserver: children come from it in milliseconds, each confined."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from stark.evaluator.candidate.sandbox.layers import WITHOUT, Layer, in_use
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.child import ENDING_S, Child
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.failures import ForkserverDied
from stark.evaluator.judge.processes.output import Output

SERVER_S = 150.0
"""How long the process that children are forked from may take to answer: at first it imports torch, from a cold disk perhaps."""

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
        child = Child(forked["pid"], self.exit_code, tuple(forked["layers"]), ours, output, allowed)
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


def _left_out() -> dict[str, str]:
    return {WITHOUT: os.environ[WITHOUT]} if WITHOUT in os.environ else {}
