"""A model that is a command: the conversation goes to its standard input, its output is the reply.

So a coding agent's command line, a script or a person can take any role. A command that knows what
its answer took may write that to the file that the variable STARK_USAGE_FILE names, as JSON:

    {"input_tokens": 12000, "output_tokens": 900, "dollars": 0.05}

each of which may be left out. Knows no temperature, and leaves what the command does on this machine
to whoever named it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from pydantic import Field, ValidationError

from stark.core.base import Frozen
from stark.core.call import Message, Reply
from stark.core.errors import ModelRefused, ModelUnreachable, UsageError
from stark.core.usage import Usage

TIMEOUT_S = 3600.0
"""Long, since a person may be the one who answers."""

_TRIES = 2
_NOT_RUNNABLE = (126, 127)
"""What a shell exits with when a command cannot be executed or found."""

_REAP_S = 5.0
_ERROR_LENGTH = 2000

_HEADINGS = {"system": "INSTRUCTIONS", "user": "MESSAGE", "assistant": "YOUR REPLY"}


USAGE_VARIABLE = "STARK_USAGE_FILE"
"""Names the file in which a command may tell what its answer took."""


class _Told(Frozen):
    """What a command tells of one answer; what it does not tell is unknown."""

    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class CommandModel:
    """A shell command that is run once for each question."""

    def __init__(self, command: str, label: str | None = None, *, timeout_s: float = TIMEOUT_S):
        """Keeps the command; `label` is the model's name as it shall be recorded.

        Raises UsageError for a command that has no first word.
        """
        self._command = command
        self._model = label or PurePath(_program(command)).name
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """`exec:` and the label, or the program's name."""
        return f"exec:{self._model}"

    async def ask(self, messages: tuple[Message, ...], temperature: float | None) -> Reply:
        """What the command prints; it cannot be told a temperature. See `Model.ask`.

        A command that fails or prints nothing is run once more.
        """
        started = time.monotonic()
        with TemporaryDirectory(prefix="stark-usage-") as folder:
            question = as_text(messages).encode(errors="replace")
            text, told = await self._answer(question, Path(folder))
        usage = Usage(calls=1, seconds=time.monotonic() - started, **told.model_dump())
        return Reply(text=text, model=self._model, usage=usage)

    def _told(self, file: Path) -> _Told:
        """What the command wrote of its usage; nothing is known where it wrote none.

        What cannot be read is refused, since limits in tokens and dollars rest on it.
        """
        try:
            return _Told.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return _Told()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "it"
            raise ModelRefused(
                f"the command behind {self.name} wrote to {USAGE_VARIABLE} what is no usage ({place}: "
                f"{first['msg']}): write one JSON object with input_tokens, output_tokens and dollars, or nothing"
            ) from error

    async def _answer(self, question: bytes, folder: Path) -> tuple[str, _Told]:
        """What the command prints, and what that try of it told in the folder."""
        for number in range(_TRIES):
            usage = folder / f"usage-{number}.json"
            status, output, errors = await self._run(question, usage)
            if status == 0 and output.strip():
                return output, self._told(usage)
            if status in _NOT_RUNNABLE:
                break
        ended = "printed nothing" if status == 0 else f"ended with status {status}"
        said = errors.strip()[-_ERROR_LENGTH:] or "it wrote nothing to standard error"
        raise ModelRefused(
            f"the command behind {self.name} {ended}; run it by hand to see why: {said}"
        )

    async def _run(self, question: bytes, usage: Path) -> tuple[int, str, str]:
        """Exit status, standard output and standard error of one run."""
        try:
            # A session of its own, so that whatever it starts can be ended with it.
            starting = asyncio.ensure_future(
                asyncio.create_subprocess_shell(
                    self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                    env=os.environ | {USAGE_VARIABLE: str(usage)},
                )
            )
            # A cancellation in the middle of starting would leave a process that nobody ends.
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await _end(await starting)
            raise
        except OSError as error:
            raise ModelRefused(f"the command behind {self.name} cannot start: {error}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                output, errors = await process.communicate(question)
        except BaseException as error:
            await _end(process)
            if isinstance(error, TimeoutError):
                raise ModelUnreachable(
                    f"the command behind {self.name} gave no answer within {self._timeout_s:g} s"
                ) from None
            raise
        assert process.returncode is not None, "communicate() waits for the end"
        return process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")


def check_program(command: str) -> None:
    """Raise UsageError where a command starts with the path or the name of no program.

    The shell is asked for names, since it has commands of its own; what it would expand is left to it.
    """
    program = _program(command)
    if not re.fullmatch(r"[\w.+/][\w.+/-]*", program):
        return
    if "/" in program:
        found, advice = (
            shutil.which(program) is not None,
            "correct the path, or make the file executable",
        )
    else:
        asked = ["/bin/sh", "-c", 'command -v "$1"', "sh", program]
        found = subprocess.run(asked, capture_output=True, check=False).returncode == 0
        advice = "install it, or write where it is"
    if not found:
        raise UsageError(f"exec: names {program}, which is no program; {advice}")


def as_text(messages: tuple[Message, ...]) -> str:
    """A conversation as one text: instructions and question alone, or every turn under a heading."""
    if [message.speaker for message in messages] in (["user"], ["system", "user"]):
        return "\n\n".join(message.text for message in messages) + "\n"
    turns = (f"===== {_HEADINGS[message.speaker]} =====\n\n{message.text}" for message in messages)
    return "\n\n".join(turns) + "\n"


def _program(command: str) -> str:
    """The program that a shell command starts with as it is written there, after any `VARIABLE=value`."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"the command {command!r} is no shell command ({error})") from error
    for word in words:
        if re.search(r"\w", PurePath(word).name) and not re.match(r"[A-Za-z_]\w*=", word):
            return word
    raise UsageError("exec: is followed by no command: write exec:COMMAND or exec[NAME]:COMMAND")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the command and everything that it started in its session's process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process that has left the group may hold the pipes open, and the wait with them.
    with suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            await process.wait()
