"""The worker's side of a shared folder (see `folder.py`): has the requests judged that it can claim."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from stark.core.errors import DeadlyRequest, UsageError
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.executors.claims import is_live, owners, release, take, written_at
from stark.evaluator.executors.folder import PARTS, POLL_S, Files, write_atomically
from stark.evaluator.protocol import Answer, AnyRequest, Evaluated, RequestRefused, request_adapter

LINGER_POLLS = 3
"""How long a worker with `--once` waits for another request after an answer, in multiples of the longest pause
(see `POLL_S`)."""

PROMPTLY = 2
"""Number of requests per judge that a worker takes as soon as they are there."""

IN_FLIGHT = 8
"""Maximum number of requests per judge. Those beyond `PROMPTLY` must have waited for `UNWANTED_POLLS`, and are taken one
at a time, so that other workers come first. GPUs need them: while one program is timed, others build."""

UNWANTED_POLLS = 2
"""For how long no worker has had room for a request, in multiples of the longest pause (see `POLL_S`)."""

DEATHS = 2
"""Number of workers that may die while they have a request. Then it is refused, or it would end every worker."""

OTHER_VERSION = "was written by another version of STARK; install the same version for the search and the worker"


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
                alone = next((name for name in orphans if take(Files.of(folder, name).claim)), None)
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
                asked, _, claim = Files.of(folder, name)
                claim.touch()
                if not asked.exists():
                    task.cancel()
    finally:
        for name, task in working.items():
            task.cancel()
            asked, _, claim = Files.of(folder, name)
            release(claim, asked)


async def _serve_one(folder: Path, name: str, judges: RequestingExecutor) -> Answer | None:
    """Answer one request and release its claim. Returns None if the request's file no longer exists.

    Refuses a request that cannot be parsed. No answer is written to a request for another kind of machine.
    """
    asked, result, claim = Files.of(folder, name)
    try:
        try:
            request = request_adapter.validate_json(asked.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            answer: Answer = RequestRefused(id=name, error=f"request {name} {OTHER_VERSION}")
        else:
            answer = await _answer(claim, judges, request)
        if not _is_for_others(answer):
            write_atomically(result, answer)
            claim.unlink(missing_ok=True)
        return answer
    finally:
        release(claim, asked)


async def _answer(claim: Path, judges: RequestingExecutor, request: AnyRequest) -> Answer:
    """Have a request judged, unless workers have died of it. Refuses one on which judges die."""
    dead = owners(claim)[:-1]
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
    claims = (name for name in _waiting(folder, left) if take(Files.of(folder, name).claim))
    if promptly:
        return list(islice(claims, promptly))
    before = time.time() - UNWANTED_POLLS * POLL_S[1]
    oldest = next(_waiting(folder, left), None) if working < IN_FLIGHT * judges else None
    if oldest is None or written_at(Files.of(folder, oldest).asked) > before:
        return []
    return list(islice(claims, 1))


def _waiting(folder: Path, left: Collection[str]) -> Iterator[str]:
    """The requests that have neither a result nor a claim, oldest first, but those in `left`."""
    names = _unanswered(folder, left)
    return (name for name in names if not Files.of(folder, name).claim.exists())


def _orphans(folder: Path, left: Collection[str]) -> list[str]:
    """The requests that a worker had when it died, oldest first, but those in `left`."""
    claims = {name: Files.of(folder, name).claim for name in _unanswered(folder, left)}
    return [name for name, claim in claims.items() if claim.exists() and not is_live(claim)]


def _unanswered(folder: Path, left: Collection[str]) -> Iterator[str]:
    """The requests that have no result, oldest first, but those in `left`."""
    for path in sorted((folder / "requests").glob("*.json"), key=written_at):
        if path.stem not in left and not Files.of(folder, path.stem).result.exists():
            yield path.stem
