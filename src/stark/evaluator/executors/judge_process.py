"""One running judge behind a command that carries standard input and output: start it, ask it, end it.

A judge that died stays dead; what was asked of it ends with its death and of no other judge's. Starting
another is for the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence

from pydantic import ValidationError

from stark.core.errors import JudgeDied, JudgeUnavailable
from stark.evaluator.protocol import (
    PROTOCOL,
    Answer,
    AnyRequest,
    Greeting,
    Hello,
    JudgeFailed,
    Notice,
    answer_adapter,
)

START_S = 900.0
"""Importing torch and measuring the device take seconds. But a remote queue may take longer, and the device is first waited for, which
another judge's final check may have for minutes."""

LONGEST_LINE = 256 << 20
STDERR_LINES = 20
CLOSE_S = 10.0


class JudgeProcess:
    """A judge that was started with `start_judge`."""

    def __init__(self, process: Process, on_notice: Callable[[str], None] = lambda _: None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid = process.pid
        self.alive = True
        """Whether it may be asked; false as soon as it said that it failed, or ended."""

        self._on_notice = on_notice
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._said: deque[str] = deque(maxlen=STDERR_LINES)
        self._printed: deque[str] = deque(maxlen=STDERR_LINES)
        """What came on its standard output before the judge's first message."""

        self._errors = asyncio.create_task(self._keep_stderr(process.stderr))
        self._answers: asyncio.Task[None] | None = None

    async def ask(self, request: AnyRequest) -> Answer:
        """Send a request and wait for its answer. Raises JudgeDied."""
        if not self.alive:
            raise JudgeDied(self.last_words)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = waiting
        try:
            self._in.write(request.model_dump_json().encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # its death also ends the wait
                await self._in.drain()
            answer = await waiting
        finally:
            self._waiting.pop(request.id, None)
        if isinstance(answer, JudgeFailed):
            raise JudgeDied(answer.error)
        return answer

    @property
    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        return "\n".join(self._said) or "the judge ended"

    @property
    def what_it_said(self) -> str:
        """The ends of all that it wrote before it was ready, for who must find out why it never was."""
        return "\n".join([*self._printed, *self._said])

    async def greeted(self) -> None:
        """Read up to the judge's first message; what a login shell or a queue prints before it is kept for `what_it_said`."""
        while line := await self._out.readline():
            if line.startswith(b'{"kind":"notice"') and self._notified(line):
                continue
            if not line.startswith(b'{"kind":"hello"'):
                self._printed.append(line.decode(errors="replace").rstrip())
                continue
            _check_hello(line)
            self._answers = asyncio.create_task(self._read_answers())
            return
        raise JudgeDied("it ended before it was ready")

    def _notified(self, line: bytes) -> bool:
        """Whether a line that came before `Hello` is a notice, which is passed on."""
        with contextlib.suppress(ValidationError):
            self._on_notice(Notice.model_validate_json(line).text)
            return True
        return False

    async def close(self) -> None:
        """Close its input, which ends it, and make sure that it ended."""
        self.alive = False
        self._in.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSE_S)
        except TimeoutError:
            await self.kill()
        await self._rest()

    async def kill(self) -> None:
        """End it at once with all that it started in its session."""
        self.alive = False
        self._kill()
        await self._ended()
        await self._rest()

    def _kill(self) -> None:
        with contextlib.suppress(
            ProcessLookupError, PermissionError
        ):  # one that is another user's, by sudo
            os.killpg(self.pid, signal.SIGKILL)

    async def _ended(self) -> None:
        with contextlib.suppress(TimeoutError):  # it may be no one's to kill here
            await asyncio.wait_for(self._process.wait(), CLOSE_S)

    async def _read_answers(self) -> None:
        """Hand every answer to whoever waits for it; at the end all others learn of the death."""
        with contextlib.suppress(ValidationError, ValueError):
            while line := await self._out.readline():
                answer = answer_adapter.validate_json(line)
                if isinstance(answer, Hello):
                    continue
                if isinstance(answer, Notice):
                    self._on_notice(answer.text)
                    continue
                if isinstance(answer, JudgeFailed):
                    self.alive = False  # it is about to end, and must not get the next request
                future = self._waiting.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
        self.alive = False
        self._on_notice("")
        self._kill()
        await self._ended()
        await asyncio.wait([self._errors], timeout=1.0)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(JudgeDied(self.last_words))

    async def _keep_stderr(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line too long to keep; unread, it would stop the judge
                continue
            if not line:
                return
            self._said.append(line.decode(errors="replace").rstrip())

    async def _rest(self) -> None:
        """Let the readers end; a process that it started may hold its error stream open for a moment."""
        readers = [self._errors] if self._answers is None else [self._errors, self._answers]
        _, late = await asyncio.wait(readers, timeout=CLOSE_S)
        for reader in late:
            reader.cancel()


def _check_hello(line: bytes) -> None:
    """Raises JudgeDied for the first message of a judge of another version."""
    fault = "its first message cannot be read"
    with contextlib.suppress(ValidationError):
        protocol = Greeting.model_validate_json(line).protocol
        if protocol == PROTOCOL:
            Hello.model_validate_json(line)
            return
        fault = f"it speaks protocol {protocol}, not {PROTOCOL}"
    raise JudgeDied(f"{fault}: install the same version of STARK on both sides")


async def start_judge(
    command: Sequence[str], on_notice: Callable[[str], None] = lambda _: None
) -> JudgeProcess:
    """A judge that is ready. Raises JudgeUnavailable with its own words when it does not get that far."""
    judge = JudgeProcess(await _spawned(command), on_notice)
    try:
        await asyncio.wait_for(judge.greeted(), START_S)
    except (JudgeDied, TimeoutError) as error:
        await judge.kill()
        reason = str(error) or f"it was not ready after {START_S:g} s"
        said = "\n".join(part for part in (judge.what_it_said, reason) if part)
        raise JudgeUnavailable(
            f"the judge ({shlex.join(command)}) does not start; {_advice(command)}:\n{said}"
        ) from error
    except BaseException:
        await asyncio.shield(judge.kill())
        raise
    return judge


def _advice(command: Sequence[str]) -> str:
    """What to do about a judge that does not start: this machine is to blame only for one that it runs itself."""
    if command[0] == sys.executable:
        return "`stark doctor` says what this machine lacks"
    return "try that command by itself, which must end in a judge of this version"


async def _spawned(command: Sequence[str]) -> Process:
    # Shielded: a cancellation in the middle of it would leave a process that nobody knows.
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await JudgeProcess(await spawning).kill()
        raise
    except OSError as error:
        raise JudgeUnavailable(f"the judge cannot be started: {error}") from error
