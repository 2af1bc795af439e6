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
import importlib
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import torch

from stark.evaluator.candidate.preforked import become_runner
from stark.evaluator.candidate.sandbox import kernel, view
from stark.evaluator.candidate.sandbox.layers import Layer, in_use, offered
from stark.evaluator.candidate.sandbox.namespaces import SIGNALLED
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message

IDLE_S = 0.02
"""Seconds without a request after which a child is forked ahead for the next request."""

ENDING_S = 5.0
"""Seconds that killed children may take to exit."""


class Forkserver:
    """Forks children and reports how they ended. Kills the processes that an ended child leaves behind."""

    def __init__(self, channel: Channel, offered: dict[Layer, str | None]) -> None:
        self.channel = channel
        self.offered = offered
        self.branches: set[int] = set()
        self.alive: set[int] = set()
        self.ended: dict[int, int] = {}
        self.preforked: tuple[int, Channel] | None = None
        """A child that waits on a channel for its request."""

        self.wants_another = False
        """Whether to fork such a child when there is time. The first child shows that there will be others."""

    def serve(self) -> None:
        """Answer requests until the judge closes its end."""
        kernel.adopt_orphans()
        while True:
            try:
                request, descriptors = self.channel.receive_with_descriptors(
                    IDLE_S if self.wants_another else None
                )
            except TimeoutError:
                self.preforked, self.wants_another = self._prefork(), False
            except ChannelClosed:
                return
            else:
                self.channel.send(self._answer(request, descriptors))

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
                self._close_channels()
                run(Channel.from_descriptor(descriptor), self.offered, folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(descriptor)
        self.branches.add(pid)

    def _close_channels(self) -> None:
        """In a new process, close the channels of this one and of the child that waits."""
        self.channel.close()
        if self.preforked is not None:
            self.preforked[1].close()

    def _fork(self, request: Message, descriptors: list[int]) -> int:
        """Hand the request to a child, which then runs a program (see `Runner`).

        `descriptors` are the child's channel, its output, and the arena if the arena is a file.
        """
        pid, channel = self.preforked or self._prefork()
        self.preforked, self.wants_another = None, True
        try:
            channel.send(request, tuple(descriptors))
        except ChannelClosed:  # it was killed while it waited, for instance because memory ran out
            pid, channel = self._prefork()
            channel.send(request, tuple(descriptors))
        channel.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return pid

    def _prefork(self) -> tuple[int, Channel]:
        """Fork a child that creates its namespaces and waits for its request."""
        ours, theirs = Channel.pair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                ours.close()
                self._close_channels()  # no program may hold another child's channel
                become_runner(theirs, in_use(self.offered), parent)
                code = 0
            os._exit(code)
        theirs.close()
        self.alive.add(pid)
        return pid, ours

    def _reap(self) -> None:
        """Record the children that ended, and kill the orphaned processes that they left."""
        self._collect()
        deadline = time.monotonic() + ENDING_S
        while (
            left := _own_children() - self.alive - self.branches
        ) and time.monotonic() < deadline:
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
                    self.ended[pid] = _code_of_runner(os.waitstatus_to_exitcode(status))

    def kill_all(self) -> None:
        """Kill every child with all its processes."""
        for pid in self.alive:
            _end_group(pid)
        deadline = time.monotonic() + ENDING_S
        while self.alive and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.005)


def _end_group(pid: int) -> None:
    """Kill a child's process group in one call, so that processes that keep forking cannot escape.

    Call this function before `waitpid` reaps the child: until then, no other group can have this id.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _code_of_runner(code: int) -> int:
    """The runner's exit code, negative if a signal ended it. The runner's parent reports signals as codes above 128."""
    return SIGNALLED - code if code > SIGNALLED else code


def _own_children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in listed.read_text().split()} if listed.exists() else set()


def run(channel: Channel, layers: dict[Layer, str | None], folder: str) -> NoReturn:
    """Serve a channel until it closes. Then kill all children, remove the folder and end this process."""
    server = Forkserver(channel, layers)
    server.serve()
    server.kill_all()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # at once: the judge waits, and torch takes half a second to be taken apart


def main() -> None:
    """Entry point: `python -m stark.evaluator.candidate.forkserver DESCRIPTOR FOLDER [MODULE…]`.

    Runs until the judge ends, even if the judge is killed. Then kills all children and removes FOLDER.
    """
    _, descriptor, folder, *modules = sys.argv
    if not Path(folder).is_absolute():
        sys.exit(f"{folder} is not an absolute path; pass an absolute path")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_grad_enabled(False)
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if torch.cuda.is_initialized():
        sys.exit(
            "a preloaded module initialized CUDA, so CUDA fails in forked children; do not preload that module"
        )
    view.of_machine(), view.gpus()  # cached here, so that no child has to look them up
    run(Channel.from_descriptor(int(descriptor)), offered(), folder)


if __name__ == "__main__":
    main()
