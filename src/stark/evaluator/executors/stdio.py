"""Judges behind commands that carry standard input and output, with restart: the engine of `local` and `command`.

A judge that dies takes nothing with it: what it was working on is sent again to a fresh one, and no
candidate is blamed, unless judges die over it alone and a fresh one does its problem without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections import deque
from collections.abc import Sequence

from pydantic import ValidationError

from stark.core.candidate import Candidate
from stark.core.errors import JudgeDied, JudgeUnavailable, ProblemError
from stark.core.evaluation import Crashed, Evaluation
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.protocol import (
    PROTOCOL,
    Answer,
    Describe,
    Described,
    Evaluate,
    Evaluated,
    Hello,
    JudgeFailed,
    Limits,
    ProblemRefused,
    answer_adapter,
)

TRIES = 3
"""How often a request is sent before its judge counts as unavailable."""

START_S = 180.0
"""Importing torch and measuring the device take seconds; a remote queue may take longer."""

LONGEST_LINE = 256 << 20
STDERR_LINES = 20
CLOSE_S = 10.0


class JudgeProcess:
    """One judge at a time behind one command; started when first asked, started anew after a death."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.waiting: dict[str, asyncio.Future[Answer]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._readers: list[asyncio.Task[None]] = []
        self._said: deque[str] = deque(maxlen=STDERR_LINES)

    async def ask(self, request: Describe | Evaluate) -> Answer:
        """Send a request and wait for its answer. Raises JudgeDied, or JudgeUnavailable if none can be started."""
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting[request.id] = waiting  # counts as work while the judge starts
        try:
            process = await self._running()
            assert process.stdin is not None
            process.stdin.write(request.model_dump_json().encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # its death also ends the wait
                await process.stdin.drain()
            answer = await waiting
            if isinstance(answer, JudgeFailed):
                # It is about to end: it must not get the next request, nor fail it when it does.
                _, reading = self._readers
                await asyncio.wait([reading])
                raise JudgeDied(answer.error)
            return answer
        finally:
            self.waiting.pop(request.id, None)

    async def close(self) -> None:
        """Close the judge's input, which ends it, and make sure that it ended."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            await asyncio.wait_for(_ended(process), CLOSE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._start()
            return self._process

    async def _start(self) -> asyncio.subprocess.Process:
        self._said.clear()
        try:
            # Shielded: a cancellation in the middle of starting would hang, and leave a process.
            starting = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    limit=LONGEST_LINE,
                    start_new_session=True,
                )
            )
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await _ended(await starting)
            raise
        except OSError as error:
            raise JudgeUnavailable(f"the judge cannot be started: {error}") from error
        errors = asyncio.create_task(self._keep_stderr(process))
        try:
            await asyncio.wait_for(self._hello(process), START_S)
        except (JudgeDied, TimeoutError) as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await _ended(process)
            await errors
            said = "\n".join(self._said) or str(error) or f"it said nothing for {START_S:g} s"
            raise JudgeUnavailable(
                f"the judge ({' '.join(self.command)}) does not start; `stark doctor` says what this machine lacks:\n{said}"
            ) from error
        self._readers = [errors, asyncio.create_task(self._read_answers(process))]
        return process

    async def _hello(self, process: asyncio.subprocess.Process) -> None:
        """Read up to the judge's first message; what a login shell or a queue prints before it is passed over."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if not line.startswith(b'{"kind":"hello"'):
                continue
            hello = answer_adapter.validate_json(line)
            assert isinstance(hello, Hello)
            if hello.protocol != PROTOCOL:
                raise JudgeDied(
                    f"it speaks protocol {hello.protocol}, not {PROTOCOL}: install the same version of STARK on both sides"
                )
            return
        raise JudgeDied("it ended before it was ready")

    async def _read_answers(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValidationError, ValueError):
            while line := await process.stdout.readline():
                answer = answer_adapter.validate_json(line)
                if isinstance(answer, Hello):
                    continue
                future = self.waiting.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await _ended(process)
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(JudgeDied("\n".join(self._said) or "the judge ended"))

    async def _keep_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        with contextlib.suppress(ValueError):
            while line := await process.stderr.readline():
                self._said.append(line.decode(errors="replace").rstrip())


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Close a judge's input, which asks it to end, and wait until it did."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(ConnectionError):
        await process.stdin.wait_closed()
    await process.wait()


class StdioExecutor:
    """Several judges, each behind a command of its own; a request goes to the one with the least to do."""

    def __init__(self, commands: Sequence[Sequence[str]], limits: Limits | None = None) -> None:
        self._judges = [JudgeProcess(command) for command in commands]
        self._limits = limits or Limits()
        self._count = itertools.count(1)
        self._again = asyncio.Lock()

    async def describe(self, problem: Problem) -> Reference:
        """Measure the reference on the least busy judge."""
        answer = await self._ask(Describe(id=self._next(), problem=problem, limits=self._limits))
        assert isinstance(answer, Described)
        return answer.reference

    async def evaluate(self, problem: Problem, candidate: Candidate) -> Evaluation:
        """Judge one candidate on the least busy judge."""
        request = Evaluate(
            id=self._next(), problem=problem, candidate=candidate, limits=self._limits
        )
        answer = await self._ask(request)
        assert isinstance(answer, Evaluated)
        return answer.evaluation

    async def close(self) -> None:
        """End all judges."""
        await asyncio.gather(*(judge.close() for judge in self._judges))

    def _next(self) -> str:
        return str(next(self._count))

    async def _ask(self, request: Describe | Evaluate) -> Answer:
        """Ask until it is answered; what was on a judge that died is asked again, one at a time.

        A death costs everything that was in flight there, so only a request that dies on its own
        again and again is looked at more closely.
        """
        reason = ""
        for _ in range(TRIES):
            try:
                async with self._again if reason else contextlib.nullcontext():
                    answer = await self._least_busy().ask(request)
            except JudgeDied as death:
                reason = str(death)
                continue
            if isinstance(answer, ProblemRefused):
                raise ProblemError(answer.error)
            return answer
        died = f"the judge died {TRIES} times over the same request; its last words:\n{reason}"
        if isinstance(request, Evaluate) and await self._works_without(request):
            crashed = Crashed(phase="verify", error=f"{died}\nWithout this candidate it works.")
            return Evaluated(id=request.id, evaluation=crashed)
        raise JudgeUnavailable(died)

    async def _works_without(self, request: Evaluate) -> bool:
        """Whether a fresh judge can do the same problem's reference: then the candidate is what ends judges."""
        probe = Describe(id=self._next(), problem=request.problem, limits=request.limits)
        try:
            async with self._again:
                return isinstance(await self._least_busy().ask(probe), Described)
        except JudgeDied:
            return False

    def _least_busy(self) -> JudgeProcess:
        return min(self._judges, key=lambda judge: len(judge.waiting))
