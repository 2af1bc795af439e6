"""Requests and results as files in a shared folder: for batch queues and GPU nodes without a network.

`requests/ID.json` holds a request, `results/ID.json` its answer, `claims/ID` says which worker is on it. An
ID is the request's content digest, so an answer that is already there is taken instead of asked for again,
and every file appears whole by a rename. Nothing is ever deleted but claims and what was refused.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from stark.core.errors import JudgeUnavailable, ProblemError, UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Evaluated,
    NotCompiled,
    ProblemRefused,
    RequestRefused,
    answer_adapter,
    request_adapter,
    request_id,
)

POLL_S = (0.1, 2.0)
"""How often a waiting orchestrator looks, at first and at last."""

LINGER_LOOKS = 3
"""How many of the longest pauses a worker with `--once` waits after an answer: who got it may ask what follows from it."""

TELL_AFTER_S = 30.0
"""How long an orchestrator waits before it says that no worker is there."""

STALE_S = 600.0
"""A claim that its worker has not renewed for so long is free again."""

IN_FLIGHT = 8


PARTS = ("requests", "results", "claims")


class FolderExecutor(RequestingExecutor):
    """The orchestrator's side: writes requests and waits for results, however long it takes."""

    def __init__(self, folder: Path, limits: Limits, tools: Tools | None = None) -> None:
        """Makes the folder. Raises UsageError where that is not possible."""
        super().__init__(limits, tools)
        self._folder = folder
        self._told = False
        """Whether it was said that no worker is there; it is said once, and again after an answer."""

        try:
            for name in PARTS:
                (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot hold requests: {error.strerror}; choose another --executor folder:PATH"
            ) from error

    async def close(self) -> None:
        """Nothing was started."""

    async def _ask(self, request: AnyRequest) -> Answer:
        """Wait for the answer, however long a queue takes."""
        name = request_id(request)
        named = request.model_copy(update={"id": name})
        began = time.monotonic()
        pause, longest = POLL_S
        while not self._is_answered(named):
            if time.monotonic() - began > TELL_AFTER_S and not self._told:
                self._tell_if_alone()
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, longest)
        self._told = False
        return self._received(name)

    def _received(self, name: str) -> Answer:
        """The answer that is there. Raises ProblemError, or JudgeUnavailable where the two sides do not understand each other."""
        result = self._path("results", name)
        try:
            answer = answer_adapter.validate_json(result.read_bytes())
        except ValidationError as error:
            raise JudgeUnavailable(
                f"{result} is no answer of this version of STARK; install the same version on both sides, "
                "and remove the file to have it judged again"
            ) from error
        if isinstance(answer, ProblemRefused | NotCompiled | RequestRefused):
            # The problem, or the machine, may be mended by the next time.
            self._path("requests", name).unlink(missing_ok=True)
            result.unlink(missing_ok=True)
        if isinstance(answer, ProblemRefused):
            raise ProblemError(answer.error)
        if isinstance(answer, RequestRefused):
            raise JudgeUnavailable(f"the worker at {self._folder} refuses: {answer.error}")
        return answer

    def _is_answered(self, request: AnyRequest) -> bool:
        """Whether its result is there. A request that is not, or was taken away with a refusal, is written."""
        if self._path("results", request.id).exists():
            return True
        asked = self._path("requests", request.id)
        if not asked.exists():
            _write_whole(asked, request.model_dump_json())
        return False

    def _path(self, kind: str, name: str) -> Path:
        return self._folder / kind / f"{name}.json"

    def _tell_if_alone(self) -> None:
        """On standard error: standard output is for what was asked for."""
        if any(_is_live(claim) for claim in (self._folder / "claims").iterdir()):
            return
        self._told = True
        sys.stderr.write(
            f"waiting for a worker; run `stark worker {self._folder}` where candidates are to be judged\n"
        )
        sys.stderr.flush()


def in_folder(path: str, limits: Limits, tools: Tools) -> FolderExecutor:
    """The executor behind `folder:PATH`. Raises UsageError."""
    try:
        place = Path(path).expanduser().absolute()
    except RuntimeError as error:  # no such user
        raise UsageError(f"{path} is no folder: {error}") from error
    return FolderExecutor(place, limits, tools)


class Judges(Protocol):
    """What a worker has requests answered by."""

    async def answer(self, request: AnyRequest) -> Answer:
        """The answer to a request as it is, its limits included. Raises JudgeUnavailable."""
        ...


def require_requests(folder: Path) -> None:
    """Raises UsageError for a folder that no orchestrator has used."""
    if not (folder / "requests").is_dir():
        raise UsageError(
            f"{folder} has no requests; start a run with `--executor folder:{folder}` first"
        )
    there = [place for name in PARTS if (place := folder / name).exists()]
    if not all(os.access(place, os.W_OK) for place in (folder, *there)):
        raise UsageError(f"nothing can be written to {folder}; let this user write there")


async def serve_folder(
    folder: Path, judges: Judges, once: bool, report: Callable[[str], None]
) -> int:
    """The worker's side: judge what waits in `folder`, several requests in flight; returns how many were answered.

    Each is judged within the limits that came with it: who asks decides on them, and its id stands for them too.
    With `once` it returns when nothing waits any more, and after an answer has looked a while for what its receiver
    asks next; otherwise it goes on until it is cancelled.
    """
    require_requests(folder)
    working: dict[str, asyncio.Task[Answer | None]] = {}
    answered, ends_at = 0, time.monotonic()
    try:
        while True:
            for name in _waiting(folder, IN_FLIGHT - len(working), set(working)):
                working[name] = asyncio.create_task(_serve_one(folder, name, judges))
            if not working:
                if once and time.monotonic() >= ends_at:
                    return answered
                await asyncio.sleep(POLL_S[1])
                continue
            done, _ = await asyncio.wait(
                working.values(), timeout=POLL_S[1], return_when=asyncio.FIRST_COMPLETED
            )
            for name in [name for name, task in working.items() if task in done]:
                answer = working.pop(name).result()
                report(_told(name, answer))
                if answer is not None:
                    answered += 1
                    ends_at = time.monotonic() + LINGER_LOOKS * POLL_S[1]
            for name in working:
                (folder / "claims" / name).touch()
    finally:
        for name, task in working.items():
            task.cancel()
            (folder / "claims" / name).unlink(missing_ok=True)


async def _serve_one(folder: Path, name: str, judges: Judges) -> Answer | None:
    """Answer one request; None for one that was withdrawn meanwhile. The claim ends with it, however it ends."""
    path = folder / "requests" / f"{name}.json"
    try:
        try:
            request = request_adapter.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            return _refused(folder, name)
        answer = (await judges.answer(request)).model_copy(update={"id": name})
        _write_result(folder, name, answer)
        return answer
    finally:
        (folder / "claims" / name).unlink(missing_ok=True)


def _refused(folder: Path, name: str) -> Answer:
    """Answer a request that cannot be read, and put it aside."""
    reason = "is no request of this version of STARK; install the same version on both sides"
    answer = RequestRefused(id=name, error=f"{name} {reason}")
    _write_result(folder, name, answer)
    path = folder / "requests" / f"{name}.json"
    with suppress(FileNotFoundError):  # whoever asked has read the answer and withdrawn it
        path.rename(path.with_suffix(".unreadable"))
    return answer


def _told(name: str, answer: Answer | None) -> str:
    """What came of a request, in a line."""
    match answer:
        case None:
            return f"{name} was withdrawn"
        case RequestRefused():
            return answer.error
        case Evaluated():
            return f"{name} {answer.evaluation.status}"
    return f"{name} {answer.kind.replace('_', ' ')}"


def _write_result(folder: Path, name: str, answer: Answer) -> None:
    _write_whole(folder / "results" / f"{name}.json", answer.model_dump_json())


def _waiting(folder: Path, most: int, ours: set[str]) -> list[str]:
    """Claim up to `most` requests that have no result and no live claim, oldest first."""
    claimed: list[str] = []
    for path in _oldest_first(folder / "requests"):
        if len(claimed) >= most:
            break
        name = path.stem
        if name in ours or (folder / "results" / f"{name}.json").exists():
            continue
        if _claim(folder / "claims" / name):
            claimed.append(name)
    return claimed


def _oldest_first(requests: Path) -> list[Path]:
    written: dict[Path, float] = {}
    for path in requests.glob("*.json"):
        with suppress(FileNotFoundError):  # withdrawn meanwhile
            written[path] = path.stat().st_mtime
    return sorted(written, key=written.__getitem__)


def _claim(path: Path) -> bool:
    if not _is_live(path):
        path.unlink(missing_ok=True)
    try:
        with path.open("x") as file:
            file.write(f"{socket.gethostname()} {os.getpid()}\n")
    except FileExistsError:
        return False
    return True


def _is_live(claim: Path) -> bool:
    """Whether its worker has renewed it of late."""
    try:
        return time.time() - claim.stat().st_mtime <= STALE_S
    except FileNotFoundError:
        return False


def _write_whole(path: Path, text: str) -> None:
    """Write so that a reader sees the whole file or none."""
    part = path.with_suffix(f".{socket.gethostname()}-{os.getpid()}.part")
    part.write_text(text)
    part.rename(path)
