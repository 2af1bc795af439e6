"""Runs one judge: starts it by a command, talks to it over stdin and stdout, and ends it.

A judge that died is not restarted here. Its open requests fail with JudgeDied, and the caller
decides whether to start another judge.
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
"""Seconds that a judge may take to start. Importing torch and measuring the device take only
seconds. A remote queue may take longer, and another judge's final check can occupy the device for
minutes."""

LONGEST_LINE = 256 << 20
"""Maximum length of a message from the judge, in bytes. A judge that sends a longer message is killed."""

STDERR_LINES = 20
"""Number of lines at the end of the judge's output that are kept for error messages."""

CLOSE_S = 10.0
"""Seconds to wait for a judge to exit by itself. If it is then killed, the same wait follows once more."""


class JudgeProcess:
    """A running judge. Create it with `start_judge`."""

    def __init__(self, process: Process, on_notice: Callable[[str], None] = lambda _: None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid = process.pid
        self.alive = True
        """Whether the judge accepts requests. False after it exited."""

        self._on_notice = on_notice
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._before_hello: deque[str] = deque(maxlen=STDERR_LINES)
        """The last lines that the judge wrote to stdout before `Hello`."""

        self._errors = asyncio.create_task(self._keep_stderr(process.stderr))
        self._answers: asyncio.Task[None] | None = None

    async def ask(self, request: AnyRequest) -> Answer:
        """Send a request and wait for its answer. Raises JudgeDied."""
        if not self.alive:
            raise JudgeDied(self.stderr_tail)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = waiting
        try:
            self._in.write(request.model_dump_json().encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # if the judge died, the wait below ends too
                await self._in.drain()
            answer = await waiting
        finally:
            self._waiting.pop(request.id, None)
        if isinstance(answer, JudgeFailed):
            raise JudgeDied(answer.error)
        return answer

    @property
    def stderr_tail(self) -> str:
        """The last lines of the judge's stderr."""
        return "\n".join(self._stderr) or "the judge ended without an error message"

    @property
    def startup_output(self) -> str:
        """The last lines that the judge printed before it was ready. They explain why it did not start."""
        return "\n".join([*self._before_hello, *self._stderr])

    async def wait_for_hello(self) -> None:
        """Wait for `Hello`. Raises JudgeDied if the judge exits or has another version.

        Notices that precede `Hello` are passed on. Other lines, such as a login shell's greeting, are kept for
        `startup_output`.
        """
        while line := await self._out.readline():
            if line.startswith(b'{"kind":"notice"') and self._notified(line):
                continue
            if not line.startswith(b'{"kind":"hello"'):
                self._before_hello.append(line.decode(errors="replace").rstrip())
                continue
            _check_hello(line)
            self._answers = asyncio.create_task(self._read_answers())
            return
        raise JudgeDied("the command ended before a judge was ready")

    def _notified(self, line: bytes) -> bool:
        """Pass on a line that precedes `Hello` if the line is a valid notice. Returns whether it is one."""
        with contextlib.suppress(ValidationError):
            self._on_notice(Notice.model_validate_json(line).text)
            return True
        return False

    async def close(self) -> None:
        """Close the judge's stdin, so that the judge exits. Kill it if it does not exit in time."""
        self.alive = False
        self._in.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSE_S)
        except TimeoutError:
            await self.kill()
        await self._finish_readers()

    async def kill(self) -> None:
        """Kill the judge and the rest of its process group."""
        self.alive = False
        self._kill()
        await self._wait_for_exit()
        await self._finish_readers()

    def _kill(self) -> None:
        # A judge behind sudo belongs to another user and cannot be killed from here.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def _wait_for_exit(self) -> None:
        with contextlib.suppress(TimeoutError):  # another user's process survives the signal
            await asyncio.wait_for(self._process.wait(), CLOSE_S)

    async def _read_answers(self) -> None:
        """Pass each answer to its caller. When the judge dies, fail all open requests."""
        with contextlib.suppress(ValidationError, ValueError):
            while line := await self._out.readline():
                answer = answer_adapter.validate_json(line)
                if isinstance(answer, Hello):
                    continue
                if isinstance(answer, Notice):
                    self._on_notice(answer.text)
                    continue
                future = self._waiting.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
        self.alive = False
        self._on_notice("")
        self._kill()
        await self._wait_for_exit()
        await asyncio.wait([self._errors], timeout=1.0)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(JudgeDied(self.stderr_tail))

    async def _keep_stderr(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # the line is too long; readline has discarded it
                continue
            if not line:
                return
            self._stderr.append(line.decode(errors="replace").rstrip())

    async def _finish_readers(self) -> None:
        """Wait for the readers and cancel late ones: a process that the judge started may keep stderr open."""
        readers = [self._errors] if self._answers is None else [self._errors, self._answers]
        _, late = await asyncio.wait(readers, timeout=CLOSE_S)
        for reader in late:
            reader.cancel()


def _check_hello(line: bytes) -> None:
    """Raise JudgeDied if `Hello` comes from another version of STARK."""
    fault = "the judge's first message cannot be parsed"
    with contextlib.suppress(ValidationError):
        protocol = Greeting.model_validate_json(line).protocol
        if protocol == PROTOCOL:
            Hello.model_validate_json(line)
            return
        fault = f"the judge uses protocol version {protocol}, not {PROTOCOL}"
    raise JudgeDied(f"{fault}: install the same version of STARK here and where the judge runs")


async def start_judge(
    command: Sequence[str], on_notice: Callable[[str], None] = lambda _: None
) -> JudgeProcess:
    """Start a judge and wait until it is ready.

    Raises JudgeUnavailable with the judge's own output if the judge does not start.
    """
    judge = JudgeProcess(await _spawned(command), on_notice)
    try:
        await asyncio.wait_for(judge.wait_for_hello(), START_S)
    except (JudgeDied, TimeoutError) as error:
        await judge.kill()
        reason = str(error) or f"the judge was not ready within {START_S:g} s"
        said = "\n".join(part for part in (judge.startup_output, reason) if part)
        raise JudgeUnavailable(
            f"the judge ({shlex.join(command)}) does not start; {_advice(command)}. "
            f"The judge's output and the error:\n{said}"
        ) from error
    except BaseException:
        await asyncio.shield(judge.kill())
        raise
    return judge


def _advice(command: Sequence[str]) -> str:
    """What to do about a judge that does not start. `stark doctor` can check only this machine."""
    if command[0] == sys.executable:
        return "run `stark doctor` to see what this machine lacks"
    return "run that command in a shell; it must start a judge of this version of STARK"


async def _spawned(command: Sequence[str]) -> Process:
    # Shielded: if the start were cancelled halfway, the new process would never be stopped.
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
        raise JudgeUnavailable(f"cannot run the judge's command: {error}") from error
