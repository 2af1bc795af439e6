"""A process that has imported torch without using a device, and forks children in milliseconds.

Importing torch takes seconds and a fork takes milliseconds, but a CUDA context does not survive a
fork. So this process uses no device and runs no program itself. It answers five requests:

    {"do": "sandbox"}                     ->  {"layers": maps each layer to null, or to why it is missing}
    {"do": "branch", "folder": ...} with a descriptor  ->  {}; a copy of this process answers there
    {"do": "fork", ...} with descriptors  ->  {"pid": 123}
    {"do": "kill", "pid": 123}            ->  {}; only this process knows whether the number is still the child's
    {"do": "wait", "pid": 123}            ->  {"status": null, or the exit code once the child has ended}

The exit code is negative if a signal ended the child. A child's first message on its own channel is
{"ok": true}, or the reason why the child could not be confined.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch

from stark.evaluator.candidate import confine
from stark.evaluator.candidate.confine import Place
from stark.evaluator.candidate.program import import_ahead
from stark.evaluator.candidate.runner import Runner
from stark.evaluator.candidate.sandbox import kernel, view
from stark.evaluator.candidate.sandbox.layers import Layer, in_use, offered
from stark.evaluator.candidate.sandbox.namespaces import SIGNALLED
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message

ENDING_S = 5.0
"""Seconds that killed children may take to exit."""

FAILURES = (OSError, RuntimeError, ValueError)
"""Exceptions that a sandbox layer raises if it cannot be applied."""


class Forkserver:
    """Forks children and reports how they ended. Kills the processes that an ended child leaves behind."""

    def __init__(self, channel: Channel, offered: dict[Layer, str | None]) -> None:
        self.channel = channel
        self.offered = offered
        self.branches: set[int] = set()
        self.alive: set[int] = set()
        self.ended: dict[int, int] = {}

    def run(self, folder: str) -> NoReturn:
        """Serve until the judge closes its end. Then kill all children, remove the folder and end this process."""
        kernel.adopt_orphans()
        with contextlib.suppress(ChannelClosed):
            while True:
                self.channel.send(self._answer(*self.channel.receive_with_descriptors()))
        for pid in self.alive:
            _end_group(pid)
        deadline = time.monotonic() + ENDING_S
        while self.alive and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.005)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)  # at once: the judge waits, and torch takes half a second to be taken apart

    def _answer(self, request: Message, descriptors: list[int]) -> Message:
        if request["do"] == "sandbox":
            return {"layers": self.offered}
        if request["do"] == "branch":
            self._branch(descriptors[0], request["folder"])
            return {}
        if request["do"] == "fork":
            return {"pid": self._fork(request, descriptors)}
        if request["do"] == "kill":
            if request["pid"] in self.alive:
                _end_group(request["pid"])
            return {}
        self._reap()
        return {"status": self.ended.pop(request["pid"], None)}

    def _branch(self, descriptor: int, folder: str) -> None:
        """Fork a copy of this process that has no children yet."""
        pid = os.fork()
        if pid == 0:
            try:
                self.channel.close()
                Forkserver(Channel(descriptor), self.offered).run(folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(descriptor)
        self.branches.add(pid)
        self._collect()  # branches that have ended

    def _fork(self, request: Message, descriptors: list[int]) -> int:
        """Fork a child that confines itself and runs a program. `descriptors` are its own, see `_become_child`."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                self.channel.close()  # no program may hold it
                _become_child(request, descriptors, in_use(self.offered), parent)
                os._exit(0)
            os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        self.alive.add(pid)
        return pid

    def _reap(self) -> None:
        """Record the children that ended, and kill the orphaned processes that they left."""
        self._collect()
        deadline = time.monotonic() + ENDING_S
        listed = Path(f"/proc/self/task/{os.getpid()}/children")
        while listed.exists() and time.monotonic() < deadline:
            left = set(map(int, listed.read_text().split())) - self.alive - self.branches
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)  # children of the killed processes are reparented to this one next
            self._collect()

    def _collect(self) -> None:
        looking = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, looking)) is not None:
                pid = found.si_pid
                if pid in self.alive:
                    _end_group(pid)
                _, status = os.waitpid(pid, 0)
                self.branches.discard(pid)
                if pid in self.alive:
                    self.alive.remove(pid)
                    code = os.waitstatus_to_exitcode(status)
                    # The runner's parent reports signals as codes above 128.
                    self.ended[pid] = SIGNALLED - code if code > SIGNALLED else code


def _become_child(
    request: Message, descriptors: list[int], layers: frozenset[Layer], parent: int
) -> None:
    """Confine this process and serve the judge until the channel closes. Dies with `parent`.

    `descriptors` are the channel, the output, and the arena if the arena is a file.
    """
    control, output, *arena = descriptors
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # programs started from here must not keep them open
    channel = Channel(control)
    place = Place(**request["place"])
    try:
        confine.enter(layers, place, output, parent)
        kernel.allow_tracing()
        if not request["command"]:
            confine.close(layers, place)
            if not request["attaches"]:
                confine.lock(layers)
    except FAILURES as error:
        channel.send({"ok": False, "error": str(error)})
        return
    channel.send({"ok": True})
    if request["command"]:
        try:
            confine.become(layers, request["command"])
        except FAILURES as error:
            os.write(output, f"Error: cannot start the tool: {error}\n".encode())
            raise
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # a killed child does not flush its buffers
    Runner(channel, arena[0] if arena else None, partial(confine.lock, layers)).serve()


def _end_group(pid: int) -> None:
    """Kill a child's process group in one call, so that processes that keep forking cannot escape.

    Call this function before `waitpid` reaps the child: until then, no other group can have this id.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Entry point: `python -m stark.evaluator.candidate.forkserver DESCRIPTOR FOLDER [MODULE…]`. Ends with the judge, even if that is killed."""
    _, descriptor, folder, *modules = sys.argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_grad_enabled(False)
    import_ahead(modules)
    if torch.cuda.is_initialized():
        sys.exit(
            "a preloaded module initialized CUDA, so CUDA fails in forked children; do not preload that module"
        )
    view.of_machine(), view.gpus()  # cached here, so that no child has to look them up
    Forkserver(Channel(int(descriptor)), offered()).run(folder)


if __name__ == "__main__":
    main()
