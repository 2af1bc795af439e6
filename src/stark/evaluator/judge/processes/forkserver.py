"""The judge's side of the forkserver, from which confined children are forked in milliseconds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from stark.evaluator.candidate.sandbox.layers import WITHOUT, Layer, in_use
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message
from stark.evaluator.judge.processes.allowance import Allowance
from stark.evaluator.judge.processes.child import ENDING_S, Child
from stark.evaluator.judge.processes.environment import child_environment
from stark.evaluator.judge.processes.output import Output

SERVER_S = 150.0
"""Seconds that the forkserver may take to answer. It imports torch before its first answer."""

BEFORE_IMPORTS = {
    # Importing tvm_ffi must not initialize CUDA: this would break it in forked children, and use a device too early.
    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
}
FORKSERVER_ENVIRONMENT = {
    **BEFORE_IMPORTS,
    # Make malloc keep freed memory, as in any process that has run for a while. Otherwise the
    # heap's layout decides by chance whether large tensors are faulted in page by page on every
    # call. That made a program up to three times slower in one process than in another.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class Forkserver:
    """The judge's side of `stark.evaluator.candidate.forkserver`. Thread-safe."""

    def __init__(self, channel: Channel, folder: Path) -> None:
        self.folder = folder
        """Removed when the forkserver ends."""

        self._lock = threading.Lock()
        self._channel = channel

    @classmethod
    def start(cls, preload: Iterable[str]) -> Forkserver:
        """Start a forkserver that imports these modules."""
        ours, theirs = Channel.pair()
        descriptor = theirs.end.fileno()
        folder = Path(tempfile.mkdtemp(prefix="stark-judge-"))
        left_out = {name: value for name, value in os.environ.items() if name == WITHOUT}
        # Candidates can read what is in sys.path, so -P keeps the current directory out.
        program = [sys.executable, "-P", "-m", "stark.evaluator.candidate.forkserver"]
        subprocess.Popen(
            [*program, str(descriptor), str(folder), *preload],
            env=child_environment(folder, FORKSERVER_ENVIRONMENT | left_out),
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,  # survives a killed judge, to clean up after it
        )
        theirs.close()
        return cls(ours, folder)

    def branch(self) -> Forkserver:
        """A copy of this forkserver, with its own children, for another process of the judge."""
        ours, theirs = Channel.pair()
        folder = Path(tempfile.mkdtemp(prefix="problem-", dir=self.folder))
        with closing(theirs):
            self._ask({"do": "branch", "folder": str(folder)}, (theirs.end.fileno(),))
        return Forkserver(ours, folder)

    @cached_property
    def sandbox(self) -> dict[Layer, str | None]:
        """Maps every layer to None if this machine offers it, or to the reason why not."""
        layers: dict[Layer, str | None] = self._ask({"do": "sandbox"})["layers"]
        return layers

    def layers(self) -> list[Layer]:
        """The sandbox layers around a child."""
        return sorted(in_use(self.sandbox))

    def fork(
        self, allowed: Allowance, arena: int | None = None, command: Sequence[str] = ()
    ) -> Child:
        """Fork a confined child. Raises SandboxFailed.

        `arena` is the descriptor of the file that is the child's shared memory; on a GPU there is no such file.
        With a `command`, the child executes this command and serves no requests; `Child.finish` waits
        for its end. The command keeps the privileges that it needs to set up a sandbox, so it must drop
        them (`confine.close`) before it runs any of the candidate's code.
        """
        ours, theirs = Channel.pair()
        reading, writing = os.pipe()
        handed = (theirs.end.fileno(), writing, *([] if arena is None else [arena]))
        request = {
            "do": "fork",
            "place": asdict(allowed.place),
            "attaches": allowed.attaches,
            "command": list(command),
        }
        try:
            pid = self._ask(request, handed)["pid"]
        finally:
            theirs.close()
            os.close(writing)
        output = Output(reading, allowed.output_kb)
        return Child(pid, self._ask, ours, output, allowed)

    def close(self) -> None:
        """End the forkserver and every child."""
        with suppress(OSError, ChannelClosed, TimeoutError):
            self._channel.end.shutdown(socket.SHUT_WR)
            self._channel.receive(ENDING_S)  # it closes its end last
        self._channel.close()

    def forget(self) -> None:
        """Leave the forkserver to another process, which was forked from this one."""
        self._channel.close()

    def _ask(self, request: Message, descriptors: tuple[int, ...] = ()) -> Message:
        with self._lock:
            try:
                self._channel.send(request, descriptors)
                return self._channel.receive(SERVER_S)
            except (ChannelClosed, TimeoutError) as error:
                raise RuntimeError(
                    "the forkserver, from which the judge forks its children, has died"
                ) from error
