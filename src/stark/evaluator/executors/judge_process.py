"""Runs one judge: starts it by a command, talks to it over stdin and stdout, and ends it.

A judge that died is not restarted here. Its open requests fail with JudgeDied, and the caller
decides whether to start another judge.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from functools import partial

from pydantic import ValidationError

from stark.core.errors import JudgeDied, JudgeUnavailable
from stark.evaluator.protocol import (
    PROTOCOL,
    Answer,
    AnyRequest,
    Cancel,
    Hello,
    JudgeFailed,
    Notice,
    PreparedProblems,
    answer_adapter,
)

START_S = 900.0
"""Seconds that a judge may take to start. That takes only a few, unless it waits in a remote queue, or for another
judge's final check on the device."""

LONGEST_LINE = 256 << 20
"""Maximum length of a message from the judge, in bytes. A judge that sends a longer message is killed."""

OUTPUT_CHARS = 4000
"""Number of characters at the end of the judge's output that are kept for error messages."""

STDERR_S = 1.0
"""Seconds to wait for the end of a dead judge's stderr. A process that the judge started may keep it open."""

CLOSE_S = 10.0
"""Seconds to wait for a judge to exit by itself, and again after it was killed."""


class JudgeProcess:
    """A running judge. Create it with `start_judge`."""

    def __init__(self, process: Process, on_notice: Callable[[str], None]) -> None:
        assert process.stdin and process.stdout and process.stderr
        self.pid = process.pid
        self.hello: Hello
        """What the judge said of itself; set by `wait_for_hello`."""

        self.alive = True
        """Whether the judge accepts requests. False after it exited."""

        self.problems: frozenset[str] = frozenset()
        """Digests of the problems that it keeps prepared."""

        self._on_notice, self._process = on_notice, process
        self._in, self._out = process.stdin, process.stdout
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self.said = ""
        """The end of what it printed beside the protocol: to stderr, and to stdout before `Hello`. Tells why it died."""

        self._errors = asyncio.create_task(self._keep_stderr(process.stderr))
        self._answers: asyncio.Task[None] | None = None

    def ask(self, request: AnyRequest) -> asyncio.Future[Answer]:
        """Send a request. Its answer may be JudgeDied, which is also raised if the judge has already died.

        If the answer is cancelled, the judge stops working on it.
        """
        if not self.alive:
            raise self._death()
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = waiting
        waiting.add_done_callback(partial(self._forget, request.id))
        self._send(request)
        return waiting

    def _forget(self, request: str, answer: asyncio.Future[Answer]) -> None:
        del self._waiting[request]
        if answer.cancelled() and self.alive:
            self._send(Cancel(id=request))

    def _send(self, order: AnyRequest | Cancel) -> None:
        self._in.write(order.model_dump_json().encode() + b"\n")

    async def idle(self) -> None:
        """Wait until no request is without an answer."""
        while self._waiting:
            await asyncio.wait(self._waiting.values())

    async def wait_for_hello(self) -> None:
        """Wait for `Hello`. Raises JudgeDied if the judge exits or has another version.

        Notices that precede `Hello` are passed on. Other lines, such as a login shell's greeting, are kept.
        """
        while line := await self._out.readline():
            if line.startswith(b'{"kind":"hello"'):
                self.hello = _checked_hello(line)
                self._answers = asyncio.create_task(self._read_answers())
                return
            try:
                self._on_notice(Notice.model_validate_json(line).text)
            except ValidationError:
                self._keep(line)
        raise JudgeDied("the command ended before a judge was ready")

    async def close(self) -> None:
        """Close the judge's stdin, so that the judge exits. Kill what is left of it after a while."""
        self.alive = False
        self._in.close()
        await self._exited()
        await self.kill()
        if self._answers is not None:
            self._answers.cancel()

    async def kill(self) -> None:
        """Kill the judge and the rest of its process group, and fail all open requests."""
        self.alive = False
        self._on_notice("")
        # A judge behind sudo belongs to another user and cannot be killed from here.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._exited()
        await asyncio.wait([self._errors], timeout=STDERR_S)
        self._errors.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._death())

    def _death(self) -> JudgeDied:
        return JudgeDied(self.said.rstrip() or "the judge ended without an error message")

    async def _exited(self) -> None:
        """Wait for the exit, but not for ever: another user's process survives a signal."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), CLOSE_S)

    async def _read_answers(self) -> None:
        """Pass each answer to its caller until the judge dies."""
        with contextlib.suppress(ValidationError, ValueError):
            while line := await self._out.readline():
                answer = answer_adapter.validate_json(line)
                if isinstance(answer, Notice):
                    self._on_notice(answer.text)
                elif isinstance(answer, PreparedProblems):
                    self.problems = frozenset(answer.problems)
                elif not isinstance(answer, Hello):
                    waiting = self._waiting.get(answer.id)
                    if waiting is None or waiting.done():
                        continue  # it was cancelled
                    if isinstance(answer, JudgeFailed):
                        waiting.set_exception(JudgeDied(answer.error, answer.machine))
                    else:
                        waiting.set_result(answer)
        await self.kill()

    async def _keep_stderr(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(OUTPUT_CHARS):
            self._keep(chunk)

    def _keep(self, printed: bytes) -> None:
        self.said = (self.said + printed.decode(errors="replace"))[-OUTPUT_CHARS:]


def _checked_hello(line: bytes) -> Hello:
    """Parse `Hello`. Raises JudgeDied if it comes from another version of STARK."""
    try:
        protocol = json.loads(line).get("protocol")  # which every version has
        if protocol == PROTOCOL:
            return Hello.model_validate_json(line)
        fault = f"the judge uses protocol version {protocol}, not {PROTOCOL}"
    except ValueError:
        fault = "the judge's first message cannot be parsed"
    raise JudgeDied(f"{fault}: install the same version of STARK here and where the judge runs")


async def start_judge(command: Sequence[str], on_notice: Callable[[str], None]) -> JudgeProcess:
    """Start a judge and wait until it is ready. Raises JudgeUnavailable with the judge's own output if it does not start."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
    except OSError as error:
        raise JudgeUnavailable(f"cannot run the judge's command: {error}") from error
    judge = JudgeProcess(process, on_notice)
    try:
        await asyncio.wait_for(judge.wait_for_hello(), START_S)
    except (JudgeDied, TimeoutError) as error:
        await judge.kill()
        reason = str(error) or f"the judge was not ready within {START_S:g} s"
        said = f"{judge.said.rstrip()}\n{reason}".lstrip()
        advice = "run `stark doctor` to see what this machine lacks"  # the only one it can check
        if command[0] != sys.executable:
            advice = "run that command in a shell; it must start a judge of this version of STARK"
        raise JudgeUnavailable(
            f"the judge ({shlex.join(command)}) does not start; {advice}. "
            f"The judge's output and the error:\n{said}"
        ) from error
    except BaseException:
        await asyncio.shield(judge.kill())
        raise
    return judge
