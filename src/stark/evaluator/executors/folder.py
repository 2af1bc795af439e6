"""An executor that passes requests and results as files in a shared folder.

It is meant for batch queues and for GPU nodes without a network connection. The orchestrator, which
runs the search, writes `requests/ID.json`. A worker (`stark worker FOLDER`) has the request judged
and writes the answer to `results/ID.json`. Meanwhile `claims/ID` names the worker. The id is a digest
of the request's content, so an existing answer is reused for a while. Requests and results are written under
a temporary name and then renamed, so that a reader never sees an incomplete file. A claim is deleted
after the answer. If the answer is a refusal, the orchestrator deletes the answer and the request. If
nobody waits for an answer any more, it deletes the request, and the worker gives up. All other files stay.
A worker leaves requests for other kinds of machines to workers that run on those.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, ValidationError

from stark.core.errors import DeadlyRequest, JudgeUnavailable, UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Evaluated,
    ProblemRefused,
    RequestRefused,
    answer_adapter,
    request_adapter,
    request_id,
)

POLL_S = (0.1, 2.0)
"""Shortest and longest pause between two checks of the folder, in seconds. Pauses grow while the orchestrator waits."""

LINGER_POLLS = 3
"""How long a worker with `--once` waits for another request after an answer, in multiples of the longest pause
(see `POLL_S`)."""

NOTICE_AFTER_S = 30.0
"""Seconds without an answer after which an orchestrator reports that no worker is active."""

STALE_S = 600.0
"""Seconds without renewal after which another worker may take over a claim."""

PROMPTLY = 2
"""Number of requests per judge that a worker takes as soon as they are there."""

IN_FLIGHT = 8
"""Maximum number of requests per judge. Those beyond `PROMPTLY` must have waited for `UNWANTED_POLLS`, and are taken one
at a time, so that other workers come first. GPUs need them: while one program is timed, others build."""

UNWANTED_POLLS = 2
"""For how long no worker has had room for a request, in multiples of the longest pause (see `POLL_S`)."""

RENEWED_S = 90.0
"""Seconds without renewal after which an orchestrator assumes that a worker has died. Network file systems may show a
renewal a minute late."""

DEATHS = 2
"""Number of workers that may die while they have a request. Then it is refused, or it would end every worker."""

EXPIRE_S = 30 * 24 * 3600.0
"""Age at which an answer is no longer used: drivers and clocks of a machine change."""

PARTS = ("requests", "results", "claims")

OTHER_VERSION = "was written by another version of STARK; install the same version for the search and the worker"


class FolderExecutor(RequestingExecutor):
    """The orchestrator's side: writes requests and waits for results without a deadline."""

    cases_at_once = True

    def __init__(self, folder: Path | str, limits: Limits, tools: Tools | None = None) -> None:
        """Create the subfolders (`PARTS`). Raises UsageError if that fails."""
        super().__init__(limits, tools)
        self.on_notice = _say
        self._open: Counter[str | None] = Counter()
        """The number of requests without an answer, by the kind of machine that they are for."""

        self._heard: dict[str | None, float] = {}
        """When a worker last had one of these requests, by kind."""

        try:
            self._folder = Path(folder).expanduser().absolute()
            for name in PARTS:
                (self._folder / name).mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError) as error:  # a RuntimeError: there is no such user
            raise UsageError(
                f"cannot create the request folders in {folder}: {error}; choose another folder"
            ) from error

    async def close(self) -> None:
        """Do nothing: the orchestrator's side starts no process."""

    async def answer(self, request: AnyRequest) -> Answer:
        """Write the request and wait for its answer, however long the queue takes.

        Raises JudgeUnavailable if this process and the worker run different versions of STARK.
        """
        name, kind = request_id(request), request.device_class
        asked, result = _paths(self._folder, name)
        if time.time() - _written_at(result) > EXPIRE_S:
            result.unlink(missing_ok=True)
        self._open[kind] += 1
        try:
            await self._answered(request.model_copy(update={"id": name}))
        except asyncio.CancelledError:
            asked.unlink(missing_ok=True)
            raise
        else:
            self._hear(kind)
        finally:
            self._open[kind] -= 1
            if not self._open[kind]:
                self._notified(kind, "")
        try:
            answer = answer_adapter.validate_json(result.read_bytes())
        except ValidationError as error:
            raise JudgeUnavailable(
                f"{result} was written by another version of STARK; install the same version "
                "here and on the worker's machine, then delete this file to have the candidate judged again"
            ) from error
        if isinstance(answer, ProblemRefused | RequestRefused):
            # Do not keep a refusal: the problem or the machine may be repaired before the next run.
            asked.unlink(missing_ok=True)
            result.unlink(missing_ok=True)
        return answer

    async def _answered(self, request: AnyRequest) -> None:
        """Wait for the result. If the request's file vanishes, because another run gave it up, write it again."""
        asked, result = _paths(self._folder, request.id)
        claim, kind = self._folder / "claims" / request.id, request.device_class
        began = time.monotonic()
        pause, longest = POLL_S
        while not result.exists():
            if not asked.exists():
                _write_atomically(asked, request)
            if time.time() - _written_at(claim) <= RENEWED_S:
                self._hear(kind)
            elif time.monotonic() - max(began, self._heard.get(kind, began)) > NOTICE_AFTER_S:
                self._note_missing_worker(kind)
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, longest)

    def _note_missing_worker(self, device_class: str | None) -> None:
        which = f"a machine of kind {device_class!r}" if device_class else "the machine"
        self._notified(
            device_class,
            f"waiting for a worker; run `stark worker {self._folder}` "
            f"on {which} that should judge candidates",
        )

    def _hear(self, device_class: str | None) -> None:
        """Note that a worker of this kind is active."""
        self._heard[device_class] = time.monotonic()
        self._notified(device_class, "")


def _say(notice: str) -> None:
    """Report on stderr, where nobody else reports. Stdout is reserved for results."""
    if notice:
        sys.stderr.write(f"{notice}\n")


def require_requests(folder: Path) -> None:
    """Raise UsageError unless a run has created `folder/requests` and `folder` is writable."""
    if not (folder / "requests").is_dir():
        raise UsageError(
            f"{folder} has no requests; start a run with the executor folder:{folder} first"
        )
    there = [place for name in PARTS if (place := folder / name).exists()]
    if not all(os.access(place, os.W_OK) for place in (folder, *there)):
        raise UsageError(
            f"{folder} or a subfolder is not writable; give this user permission to write there"
        )


async def serve_folder(
    folder: Path,
    judges: RequestingExecutor,
    once: bool,
    report: Callable[[str], None],
    ready: Callable[[], int] = lambda: 1,
) -> int:
    """The worker's side: have the requests in `folder` judged, and return how many were answered.

    Each is judged within its own limits. `ready` returns the number of judges, which decides how many requests are judged
    at a time. One that another worker had when it died is judged while nothing else is, so that no other can be blamed.
    `report` is called with a line of text for each request. With `once`, the function returns when no request is left and no
    new one has arrived within a few seconds of the last answer. Without `once`, it runs until it is cancelled.
    """
    require_requests(folder)
    working: dict[str, asyncio.Task[Answer | None]] = {}
    left: set[str] = set()
    """The requests for other kinds of machines."""

    answered, ends_at = 0, time.monotonic()
    alone: str | None = None
    """The latest request that another worker had when it died."""

    try:
        while True:
            orphans = [] if alone in working else _orphans(folder, left)
            found: list[str] = []
            if orphans and not working:
                alone = next((name for name in orphans if _claim(folder / "claims" / name)), None)
                found = [] if alone is None else [alone]
            if not found and alone not in working and not (orphans and working):
                found = _claim_waiting(folder, len(working), max(1, ready()), left)
            for name in found:
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
                task = working.pop(name)
                answer = None if task.cancelled() else task.result()
                report(_summary(name, answer))
                if _is_for_others(answer):
                    left.add(name)
                elif answer is not None:
                    answered += 1
                    ends_at = time.monotonic() + LINGER_POLLS * POLL_S[1]
            for name, task in working.items():
                (folder / "claims" / name).touch()
                if not _paths(folder, name)[0].exists():
                    task.cancel()
    finally:
        for name, task in working.items():
            task.cancel()
            _release(folder, name)


async def _serve_one(folder: Path, name: str, judges: RequestingExecutor) -> Answer | None:
    """Answer one request and release its claim. Returns None if the request's file no longer exists.

    Refuses a request that cannot be parsed. No answer is written to a request for another kind of machine.
    """
    asked, result = _paths(folder, name)
    claim = folder / "claims" / name
    try:
        try:
            text = asked.read_bytes()
        except FileNotFoundError:
            return None
        try:
            request = request_adapter.validate_json(text)
        except ValidationError:
            answer: Answer = RequestRefused(id=name, error=f"request {name} {OTHER_VERSION}")
        else:
            answer = await _answer(claim, judges, request)
        if not _is_for_others(answer):
            _write_atomically(result, answer)
            claim.unlink(missing_ok=True)
        return answer
    finally:
        _release(folder, name)


async def _answer(claim: Path, judges: RequestingExecutor, request: AnyRequest) -> Answer:
    """Have a request judged, unless workers have died of it. Refuses one on which judges die."""
    dead = _owners(claim)[:-1]
    if len(dead) >= DEATHS:
        error = f"{len(dead)} workers died while they had this request: {', '.join(dead)}"
        return RequestRefused(id=request.id, error=error)
    try:
        return (await judges.answer(request)).model_copy(update={"id": request.id})
    except DeadlyRequest as error:
        return RequestRefused(id=request.id, error=str(error))


def _is_for_others(answer: Answer | None) -> bool:
    """Whether a request was refused because it is for another kind of machine."""
    return isinstance(answer, RequestRefused) and answer.other_class


def _summary(name: str, answer: Answer | None) -> str:
    """A one-line summary of the answer."""
    match answer:
        case None:
            return f"{name} was withdrawn"
        case RequestRefused(other_class=True):
            return f"{name} is left to another worker: {answer.error}"
        case RequestRefused():
            return answer.error
        case Evaluated():
            return f"{name} {answer.evaluation.status}"
    return f"{name} {answer.kind.replace('_', ' ')}"


def _claim_waiting(folder: Path, working: int, judges: int, left: Collection[str]) -> list[str]:
    """Claim requests beside the `working` ones, as many as `PROMPTLY` and `IN_FLIGHT` say."""
    promptly = max(0, PROMPTLY * judges - working)
    claims = (name for name in _waiting(folder, left) if _claim(folder / "claims" / name))
    if promptly:
        return list(islice(claims, promptly))
    before = time.time() - UNWANTED_POLLS * POLL_S[1]
    oldest = next(_waiting(folder, left), None) if working < IN_FLIGHT * judges else None
    if oldest is None or _written_at(_paths(folder, oldest)[0]) > before:
        return []
    return list(islice(claims, 1))


def _waiting(folder: Path, left: Collection[str]) -> Iterator[str]:
    """The requests that have neither a result nor a claim, oldest first, but those in `left`."""
    for name in _unanswered(folder, left):
        if not (folder / "claims" / name).exists():
            yield name


def _orphans(folder: Path, left: Collection[str]) -> list[str]:
    """The requests that a worker had when it died, oldest first, but those in `left`."""
    claims = {name: folder / "claims" / name for name in _unanswered(folder, left)}
    return [name for name, claim in claims.items() if claim.exists() and not _is_live(claim)]


def _unanswered(folder: Path, left: Collection[str]) -> Iterator[str]:
    """The requests that have no result, oldest first, but those in `left`."""
    for path in sorted((folder / "requests").glob("*.json"), key=_written_at):
        if path.stem not in left and not _paths(folder, path.stem)[1].exists():
            yield path.stem


def _claim(path: Path) -> bool:
    """Claim a request. A claim lists those who died while they had it, then its owner."""
    try:
        with path.open("x") as file:
            file.write(f"{_us()}\n")
    except FileExistsError:
        return not _is_live(path) and _take_over(path)
    return True


def _take_over(stale: Path) -> bool:
    """Claim a dead worker's request. The mark keeps out other workers; that of one that dies here is removed later."""
    mark = stale.with_name(f"{stale.name}.taken")
    try:
        mark.hardlink_to(stale)
    except FileNotFoundError:
        return False
    except FileExistsError:
        with suppress(FileNotFoundError):
            if time.time() - mark.stat().st_ctime > STALE_S:
                mark.unlink()
        return False
    try:
        if _is_live(stale):
            return False
        part = stale.with_name(f"{stale.name}.{secrets.token_hex(4)}.part")
        part.write_text("\n".join([*_owners(stale), _us(), ""]))
        part.rename(stale)
        return True
    finally:
        mark.unlink(missing_ok=True)


def _release(folder: Path, name: str) -> None:
    """Give up our claim, if we still have it. Those who died while they had the request stay known."""
    claim = folder / "claims" / name
    with suppress(FileNotFoundError):
        owners = _owners(claim)
        if owners[-1:] != [_us()]:
            return
        dead = owners[:-1]
        if dead and _paths(folder, name)[0].exists():
            part = claim.with_name(f"{name}.{secrets.token_hex(4)}.part")
            part.write_text("\n".join([*dead, ""]))
            os.utime(part, (0, 0))
            part.rename(claim)
        else:
            claim.unlink()


def _owners(claim: Path) -> list[str]:
    """Those who died while they had the request, then the one who has it."""
    return claim.read_text().splitlines()


def _us() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _is_live(claim: Path) -> bool:
    """Whether the worker has renewed its claim within the last `STALE_S` seconds."""
    return time.time() - _written_at(claim) <= STALE_S


def _written_at(path: Path) -> float:
    """When a file was written; 0 if it does not exist any more."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    """The files of a request and of its result."""
    return folder / "requests" / f"{name}.json", folder / "results" / f"{name}.json"


def _write_atomically(path: Path, message: BaseModel) -> None:
    """Write a file so that readers see all of it or none."""
    part = path.with_suffix(f".{_us()}.part")
    part.write_text(message.model_dump_json())
    part.rename(path)
