"""Uses a shell command as a model: the command reads the conversation on stdin and prints the reply.

In this way a coding agent's command line, a script or a person can take any role (docs/models.md). The command runs
with the user's permissions, outside any sandbox. It receives neither a temperature nor an output limit.
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
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from stark.core.call import Message, Reply
from stark.core.errors import ModelRefused, ModelUnreachable, PromptRefused, UsageError
from stark.core.usage import Price, Usage
from stark.models.base import MAX_OUTPUT_TOKENS, priced

TIMEOUT_S = 3600.0
"""The time limit of one run of the command: an hour, because a person may be answering."""

USAGE_VARIABLE = "STARK_USAGE_FILE"

_TRIES = 2
_NOT_RUNNABLE = (126, 127)
"""The shell's exit codes for a command that it cannot execute or find."""

_WATCHED = (
    '( (read -r line </proc/self/fd/{} || kill -KILL -$$) >/dev/null 2>&1 & ); exec /bin/sh -c "$1"'
)
"""Runs a command, and kills its process group when the other end of a pipe closes without a line: then this process has
ended, in whatever way. The watcher is no child of the command, which may wait for all of its children."""

_REAP_S = 5.0
_ERROR_LENGTH = 2000

_HEADINGS = {"system": "INSTRUCTIONS", "user": "MESSAGE", "assistant": "YOUR REPLY"}


class CommandModel:
    """A shell command, run once per prompt."""

    max_output_tokens = MAX_OUTPUT_TOKENS
    """Used only to reserve budget: the command does not receive this limit, and its replies are never `truncated`."""

    def __init__(
        self,
        command: str,
        label: str | None = None,
        price: Price | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ):
        """Without a `label`, the model is named after the command's program.

        Raises UsageError if the command has no program.
        """
        self._command = command
        self._model = label or PurePath(_program(command)).name
        self._timeout_s = timeout_s
        self.name = f"exec:{self._model}"
        self.price = price

    async def ask(
        self,
        messages: tuple[Message, ...],
        temperature: float | None,
        *,
        max_output_tokens: int | None = None,
    ) -> Reply:
        """Return what the command prints. A command that fails or prints nothing is run once more. See `Model.ask`."""
        started = time.monotonic()
        with TemporaryDirectory(prefix="stark-usage-") as folder:
            text, reported = await self._answer(as_text(messages), Path(folder))
        usage = reported.model_copy(update={"seconds": time.monotonic() - started})
        return Reply(text=text, model=self._model, usage=priced(usage, self.price))

    async def _answer(self, prompt: str, folder: Path) -> tuple[str, Usage]:
        """The reply, and the usage reported by the try that succeeded."""
        for number in range(_TRIES):
            file = folder / f"usage-{number}.json"
            status, output, errors = await self._run(prompt.encode(errors="replace"), file)
            if status == 0 and output.strip():
                return output, self._reported(file)
            if status in _NOT_RUNNABLE:
                break
        refusal = ModelRefused if status in _NOT_RUNNABLE else PromptRefused
        outcome = "printed nothing" if status == 0 else f"exited with status {status}"
        detail = errors.strip()[-_ERROR_LENGTH:] or "(empty)"
        raise refusal(
            f"{self.name} {outcome}: run the command by hand to see why (its stderr: {detail})"
        )

    def _reported(self, file: Path) -> Usage:
        """The usage in the file, if any. Raises ModelRefused for an invalid file, since budgets depend on usage."""
        try:
            return Usage.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return Usage()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise ModelRefused(
                f"{self.name} wrote an invalid usage report to {USAGE_VARIABLE} ({place}: {first['msg']}): write one "
                "JSON object with input_tokens, output_tokens and dollars, or no file"
            ) from error

    async def _run(self, prompt: bytes, usage_file: Path) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of one run."""
        watched, ours = os.pipe()
        with os.fdopen(ours, "wb", buffering=0) as alive:
            try:
                # In a new session, so that it can be killed with all that it started.
                starting = asyncio.create_subprocess_exec(
                    *("/bin/sh", "-c", _WATCHED.format(watched), "sh", self._command),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=(watched,),
                    env=os.environ | {USAGE_VARIABLE: str(usage_file)},
                )
                process = await _started(starting)
            except OSError as error:
                raise ModelRefused(
                    f"{self.name} cannot start: {error}; shorten the command or free system resources"
                ) from error
            finally:
                os.close(watched)
            try:
                async with asyncio.timeout(self._timeout_s):
                    output, errors = await process.communicate(prompt)
            except BaseException as error:
                await _end(process)
                if isinstance(error, TimeoutError):
                    raise ModelUnreachable(
                        f"{self.name} gave no answer within {self._timeout_s:g} s: run the command by hand to see why"
                    ) from None
                raise
            with suppress(BrokenPipeError):
                alive.write(b"\n")
        assert process.returncode is not None, "communicate() waits for the end"
        return process.returncode, output.decode(errors="replace"), errors.decode(errors="replace")


def check_program(command: str) -> None:
    """Raise UsageError if the command's program does not exist.

    A shell builtin counts as a program. A name that the shell would expand, such as `$EDITOR`, is not checked.
    """
    program = _program(command)
    if not re.fullmatch(r"[\w.+/][\w.+/-]*", program):
        return
    found = shutil.which(program) is not None
    if not found and "/" not in program:
        asked = ["/bin/sh", "-c", 'command -v "$1"', "sh", program]
        found = subprocess.run(asked, capture_output=True, check=False).returncode == 0
    if not found:
        raise UsageError(
            f"exec: cannot find the program {program}: install it, correct its path, or make it executable"
        )


def as_text(messages: tuple[Message, ...]) -> str:
    """A conversation as one text. Messages get headings if one of them is the assistant's."""
    if all(message.speaker != "assistant" for message in messages):
        return "\n\n".join(message.text for message in messages) + "\n"
    turns = (f"===== {_HEADINGS[message.speaker]} =====\n\n{message.text}" for message in messages)
    return "\n\n".join(turns) + "\n"


def _program(command: str) -> str:
    """The first word of a shell command, as written, after any `VARIABLE=value`."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(
            f"exec: cannot parse the command {command!r} ({error}): check its quotes"
        ) from error
    for word in words:
        if re.search(r"\w", PurePath(word).name) and not re.match(r"[A-Za-z_]\w*=", word):
            return word
    raise UsageError("exec: needs a command: write exec:COMMAND or exec[NAME]:COMMAND")


async def _started(
    starting: Coroutine[Any, Any, asyncio.subprocess.Process],
) -> asyncio.subprocess.Process:
    """The process that starts. If this is cancelled meanwhile, it is killed with all that it has started already."""
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(OSError):
            await _end(await task)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the command and its process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # A child that left the group may keep the pipes open, and the wait would not end.
    with suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            await process.wait()
