"""A process that imported torch and never touched a device, from which children are forked in milliseconds.

Importing torch takes seconds, forking a process that did takes a few milliseconds, and a CUDA context
cannot be forked: hence a server of its own that does nothing else. It answers three requests:

    {"do": "sandbox"}                     ->  {"layers": every layer with null, or with why it is not here}
    {"do": "fork", ...} with descriptors  ->  {"pid": 123, "layers": those of this child}
    {"do": "wait", "pid": 123}            ->  {"status": null, or an exit code, negative for a signal}

A child says first of all on its own channel whether it is in its place: {"ok": true}, or why not.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

from stark.evaluator.candidate.nest import become_runner
from stark.evaluator.candidate.sandbox import kernel, view
from stark.evaluator.candidate.sandbox.layers import Layer, in_use, offered
from stark.evaluator.candidate.sandbox.namespaces import SIGNALLED
from stark.evaluator.candidate.wire import Channel, ChannelClosed, Message

IDLE_S = 0.02
"""How long nothing is asked before a nest is made for the next request."""

ENDING_S = 5.0
"""How long killed children may take to end."""


class Nest(NamedTuple):
    """A child that waits for its request."""

    pid: int
    channel: Channel


class Forkserver:
    """Forks children and says how they ended; processes that they leave behind are killed."""

    def __init__(self, channel: Channel, layers: dict[Layer, str | None]) -> None:
        self.channel = channel
        self.layers = layers
        self.alive: set[int] = set()
        self.ended: dict[int, int] = {}
        self.nests: dict[frozenset[Layer], Nest] = {}
        self.wanted: set[frozenset[Layer]] = set()
        """Of which kind to have a nest ready for the next request."""

    def serve(self) -> None:
        """Answer requests until the judge closes its end."""
        kernel.adopt_orphans()
        while True:
            try:
                request, descriptors = self.channel.receive_with_descriptors(
                    IDLE_S if self.wanted else None
                )
            except TimeoutError:
                layers = self.wanted.pop()
                self.nests[layers] = self._nest(layers)
            except ChannelClosed:
                return
            else:
                self.channel.send(self._answer(request, descriptors))

    def _answer(self, request: Message, descriptors: list[int]) -> Message:
        if request["do"] == "sandbox":
            return {"layers": self.layers}
        if request["do"] == "fork":
            active = in_use(self.layers, request["on_device"])
            pid = self._fork(request, descriptors, active)
            self.wanted.add(active)
            return {"pid": pid, "layers": sorted(active)}
        self._reap()
        return {"status": self.ended.pop(request["pid"], None)}

    def _fork(self, request: Message, descriptors: list[int], layers: frozenset[Layer]) -> int:
        """A child that serves a `Runner`. Descriptors: its channel, its output, and its arena if it is a file."""
        nest = self.nests.pop(layers, None) or self._nest(layers)
        try:
            nest.channel.send(request, tuple(descriptors))
        except ChannelClosed:  # it was killed while it waited, for memory perhaps
            nest = self._nest(layers)
            nest.channel.send(request, tuple(descriptors))
        nest.channel.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return nest.pid

    def _nest(self, layers: frozenset[Layer]) -> Nest:
        """A child in its namespaces, which waits for its request."""
        ours, theirs = Channel.pair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                for channel in (
                    self.channel,
                    ours,
                    *(nest.channel for nest in self.nests.values()),
                ):
                    channel.close()  # no program may hold what others are asked through
                become_runner(theirs, layers, parent)
                code = 0
            os._exit(code)
        theirs.close()
        self.alive.add(pid)
        return Nest(pid, ours)

    def _reap(self) -> None:
        """Note which children ended, and end what they left behind (it is reparented to this process)."""
        self._collect()
        deadline = time.monotonic() + ENDING_S
        while (left := _own_children() - self.alive) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)  # what is killed may have children of its own, which come here next
            self._collect()

    def _collect(self) -> None:
        looking = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, looking)) is not None:
                pid = found.si_pid
                if pid in self.alive:
                    _end_group(pid)
                _, status = os.waitpid(pid, 0)
                if pid in self.alive:
                    self.alive.remove(pid)
                    self.ended[pid] = _code_of_runner(os.waitstatus_to_exitcode(status))

    def kill_all(self) -> None:
        """End every child with all its processes."""
        for pid in self.alive:
            _end_group(pid)
        deadline = time.monotonic() + ENDING_S
        while self.alive and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.005)


def _end_group(pid: int) -> None:
    """Kill what a child left behind, all at once: programs that fork faster than they are found do not outrun this.

    The number is theirs until the child is waited for.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _code_of_runner(code: int) -> int:
    """Its keeper ended in its place, and says a signal as shells do."""
    return SIGNALLED - code if code > SIGNALLED else code


def _own_children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in listed.read_text().split()} if listed.exists() else set()


def main() -> None:
    """Entry point: `python -m stark.evaluator.candidate.forkserver DESCRIPTOR FOLDER [MODULE…]`.

    Ends when the judge does, however that ended, and leaves nothing: no child, and no FOLDER.
    """
    _, descriptor, folder, *modules = sys.argv
    if not Path(folder).is_absolute():
        sys.exit(f"{folder} is no absolute path, so it cannot be a judge's folder")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_grad_enabled(False)
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if torch.cuda.is_initialized():
        sys.exit("a preloaded module touched the device, so children could not use it")
    view.of_machine()  # once, and not in every child
    server = Forkserver(Channel.from_descriptor(int(descriptor)), offered())
    server.serve()
    server.kill_all()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
