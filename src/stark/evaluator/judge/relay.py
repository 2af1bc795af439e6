"""Gives each problem a process of its own, passes it the problem's requests, and passes on its answers.

A problem's settings, modules and faults so reach no other problem. The process is forked from this one, which has
imported torch and uses no device, and it is kept for the problem's next candidates: searches take turns on a device,
and to prepare a problem takes longer than to judge a candidate. If the process dies, its requests fail and no others.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import BinaryIO, NamedTuple, NoReturn

from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Cancel,
    JudgeFailed,
    PreparedProblems,
    order_adapter,
    refusal,
)

ENDING_S = 10.0
"""Seconds that a process may take to end what it has started."""

ALONE, LEAVE = "alone", "leave"
"""What a process gets beside requests: no other problem has a process, or it is to end when the device is free."""


class Said(NamedTuple):
    """What a problem's process sends."""

    line: bytes
    """A message for the executor; empty if the process lacks memory. It then gets `ALONE` as soon as it is the only one."""

    answers: str | None = None
    """The id of the request that this answers, if any."""

    held: float = 0.0
    """About how much of the memory that all such processes may hold together this one holds between candidates. One that
    holds more than all of it is kept alone."""

    last: bool = False
    """Whether the process can answer nothing more."""


Serve = Callable[[Connection, Forkserver], object]
"""Serves one problem in a new process: requests come through the connection, and `Said` goes back."""


@dataclass(eq=False)
class Process:
    """One problem's process."""

    problem: str
    """The key in `Relay._processes`."""

    itself: BaseProcess
    pipe: Connection
    open: dict[str, AnyRequest] = field(default_factory=dict)
    """Its requests without an answer, by id."""

    held: float = 0.0

    def send(self, order: object) -> None:
        """Send it a request, `ALONE` or `LEAVE`. If it has died, that is heard next."""
        with suppress(OSError):
            self.pipe.send(order)


class Relay:
    """Everything that a judge's first process does. It has one thread, because it forks."""

    def __init__(
        self, serve: Serve, forkserver: Forkserver, out: BinaryIO, device_class: str
    ) -> None:
        self._serve, self._forkserver, self._out = serve, forkserver, out
        self._device_class = device_class
        self._processes: dict[str, Process] = {}
        """By the problem's digest and the precision, the least recently used first."""

        self._leaving: list[BaseProcess] = []
        """Processes that end as soon as the device is free."""

        self._reported: set[str] = set()
        """The digests of the problems that the executor knows to be prepared."""

    def run(self, requests: int) -> None:
        """Relay until the executor closes its end of the descriptor `requests`."""
        partial = b""
        while True:
            pipes = {process.pipe: process for process in self._processes.values()}
            self._leaving = [process for process in self._leaving if process.is_alive()]
            for ready in wait([requests, *pipes]):
                if isinstance(ready, Connection):
                    if pipes[ready] in self._processes.values():
                        self._hear(pipes[ready])
                        self._report()
                    continue
                read = os.read(requests, 1 << 20)
                if not read:
                    return
                *lines, partial = (partial + read).split(b"\n")
                for line in lines:
                    order = order_adapter.validate_json(line)
                    self._cancel(order) if isinstance(order, Cancel) else self._pass(order)
                self._report()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.pipe.close()
        for process in self._processes.values():
            self._end(process)
        self._forkserver.close()

    def say(self, answer: Answer) -> None:
        """Send a message to the executor."""
        self._write(answer.model_dump_json().encode())

    def _report(self) -> None:
        """Tell the executor which problems have a process, if that has changed."""
        problems = {problem.split()[0] for problem in self._processes}
        if problems != self._reported:
            self._reported = problems
            self.say(PreparedProblems(problems=tuple(problems)))

    def _write(self, line: bytes) -> None:
        self._out.write(line + b"\n")
        self._out.flush()

    def _pass(self, request: AnyRequest) -> None:
        if (request.device_class or "") not in self._device_class:
            self.say(refusal(request, [self._device_class]))
            return
        # Budgets, expected outputs and the roofline depend on the precision.
        problem = f"{request.problem.digest} {request.limits.precision}"
        process = self._processes.pop(problem, None) or self._started(problem)
        self._processes[problem] = process
        process.open[request.id] = request
        process.send(request)

    def _cancel(self, order: Cancel) -> None:
        for process in self._processes.values():
            if order.id in process.open:
                process.send(order)

    def _hear(self, process: Process) -> None:
        try:
            said: Said = process.pipe.recv()
        except (EOFError, OSError):
            self._bury(process)
            return
        if not said.line:
            self._leave_alone(process)
            return
        self._write(said.line)
        process.open.pop(said.answers or "", None)
        if said.last:
            self._bury(process)
        elif said.answers is not None:
            process.held = said.held
            self._make_room(process)

    def _bury(self, process: Process) -> None:
        """End a process that has failed, and answer its other requests."""
        del self._processes[process.problem]
        code = self._end(process)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        for name, request in process.open.items():
            error = f"the judge's process for the problem {request.problem.name} {how}"
            self.say(JudgeFailed(id=name, error=error))

    def _leave_alone(self, process: Process) -> None:
        """End all other processes, say so, and start those anew that have requests.

        The process holds the device, so the new ones take none of its memory before it has made use of it.
        """
        others = [each for each in self._processes.values() if each is not process]
        self._processes = {process.problem: process}
        for each in others:
            each.pipe.close()
        for leaving in self._leaving:  # they wait for the device
            leaving.kill()
        for each in others:
            self._end(each)
        process.send(ALONE)
        for request in [request for each in others for request in each.open.values()]:
            self._pass(request)

    def _make_room(self, latest: Process) -> None:
        """End idle processes, the least recently used first, while all hold too much."""
        for process in [p for p in self._processes.values() if p is not latest and not p.open]:
            if sum(each.held for each in self._processes.values()) <= 1:
                return
            del self._processes[process.problem]
            process.send(LEAVE)
            process.pipe.close()
            self._leaving.append(process.itself)

    def _started(self, problem: str) -> Process:
        ours, theirs = Pipe()
        forkserver = self._forkserver.branch()
        given = theirs, forkserver, ours
        itself = get_context("fork").Process(target=self._become, args=given)
        itself.start()
        theirs.close()
        forkserver.forget()
        return Process(problem, itself, ours)

    def _become(self, pipe: Connection, forkserver: Forkserver, *others: Connection) -> NoReturn:
        """Serve a problem in this process, which was just forked."""
        try:
            for other in (*others, *(process.pipe for process in self._processes.values())):
                other.close()
            self._forkserver.forget()
            self._out.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            self._serve(pipe, forkserver)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)

    def _end(self, process: Process) -> int:
        """End a process and all that it has started. Returns its exit code, negative for a signal."""
        process.pipe.close()
        process.itself.join(ENDING_S)
        process.itself.kill()  # does nothing if it has ended
        process.itself.join(ENDING_S)
        code = process.itself.exitcode
        return -signal.SIGKILL if code is None else code  # None if it is stuck in a driver
