"""The worker's side of a shared folder (see `folder.py`): has the requests judged that it can claim."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from stark.core.errors import DeadlyRequest, UsageError
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.executors.claims import (
    is_live,
    owners,
    release,
    take,
    write_atomically,
    written_at,
)
from stark.evaluator.executors.folder import PARTS, POLL_S, Files
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
    """Raise UsageError unless a run has created `folder/requests` and `folder` is writable. Creates missing subfolders."""
    if not (folder / "requests").is_dir():
        raise UsageError(
            f"{folder} has no requests; start a run with the executor folder:{folder} first"
        )
    places = [folder, *(folder / name for name in PARTS)]
    with suppress(OSError):
        for place in places:
            place.mkdir(exist_ok=True)
    if not all(os.access(place, os.W_OK) for place in places):
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
    worker = _Worker(folder, judges, report)
    try:
        while True:
            worker.claim(max(1, ready()))
            if working := worker.working.values():
                await asyncio.wait(working, timeout=POLL_S[1], return_when=asyncio.FIRST_COMPLETED)
                worker.finish()
            elif once and time.monotonic() >= worker.lingers_until:
                return worker.answered
            else:
                await asyncio.sleep(POLL_S[1])
    finally:
        worker.give_up()


class _Worker:
    """Claims requests in a folder, and has them judged."""

    def __init__(
        self, folder: Path, judges: RequestingExecutor, report: Callable[[str], None]
    ) -> None:
        self._folder, self._judges, self._report = folder, judges, report
        self.answered, self.lingers_until = 0, 0.0
        self.working: dict[Files, asyncio.Task[Answer | None]] = {}
        self._left: set[Files] = set()
        """The requests for other kinds of machines."""

        self._alone: Files | None = None
        """The request that another worker had when it died, if the latest claim was to such a one."""

    def claim(self, judges: int) -> None:
        """Begin with requests that nobody has. One that a worker died with waits until nothing else is judged."""
        if self._alone in self.working:
            return
        orphans = [each for each in self._unanswered(claimed=True) if not is_live(each.claim)]
        if orphans and self.working:
            return
        self._alone = next((files for files in orphans if take(files.claim)), None)
        for files in self._claimed(judges) if self._alone is None else [self._alone]:
            self.working[files] = asyncio.create_task(self._serve(files))

    def finish(self) -> None:
        """Report what is done, renew the other claims, and cancel what was withdrawn."""
        for files, task in list(self.working.items()):
            if task.done():
                del self.working[files]
                answer = None if task.cancelled() else task.result()
                self._report(_summary(files.claim.name, answer))
                if _is_for_others(answer):
                    self._left.add(files)
                elif answer is not None:
                    self.answered += 1
                    self.lingers_until = time.monotonic() + LINGER_POLLS * POLL_S[1]
            else:
                files.claim.touch()
                if not files.asked.exists():
                    task.cancel()

    def give_up(self) -> None:
        """Leave all requests to other workers."""
        for files, task in self.working.items():
            task.cancel()
            release(files.claim, files.asked)

    async def _serve(self, files: Files) -> Answer | None:
        """Answer one request and release its claim. Returns None if the request's file no longer exists.

        Refuses a request that cannot be parsed. No answer is written to a request for another kind of machine.
        """
        asked, result, claim = files
        try:
            try:
                request = request_adapter.validate_json(asked.read_bytes())
            except FileNotFoundError:
                return None
            except ValidationError:
                error = f"request {claim.name} {OTHER_VERSION}"
                answer: Answer = RequestRefused(id=claim.name, error=error)
            else:
                answer = await self._answer(claim, request)
            if not _is_for_others(answer):
                write_atomically(result, answer.model_dump_json())
                claim.unlink(missing_ok=True)
            return answer
        finally:
            release(claim, asked)

    async def _answer(self, claim: Path, request: AnyRequest) -> Answer:
        """Have a request judged, unless workers have died of it. Refuses one on which judges die."""
        dead = owners(claim)[:-1]
        if len(dead) >= DEATHS:
            error = f"{len(dead)} workers died while they had this request: {', '.join(dead)}"
            return RequestRefused(id=request.id, error=error)
        try:
            return (await self._judges.answer(request)).model_copy(update={"id": request.id})
        except DeadlyRequest as error:
            return RequestRefused(id=request.id, error=str(error))

    def _claimed(self, judges: int) -> list[Files]:
        """Claim requests, as many as `PROMPTLY` and `IN_FLIGHT` say."""
        count = PROMPTLY * judges - len(self.working)
        if count <= 0:
            full = len(self.working) >= IN_FLIGHT * judges
            oldest = None if full else next(self._unanswered(claimed=False), None)
            before = time.time() - UNWANTED_POLLS * POLL_S[1]
            if oldest is None or written_at(oldest.asked) > before:
                return []
        taken = (files for files in self._unanswered(claimed=False) if take(files.claim))
        return list(islice(taken, max(count, 1)))

    def _unanswered(self, claimed: bool) -> Iterator[Files]:
        """The requests that have no result, with a claim or without one, oldest first, but those for other machines."""
        for path in sorted((self._folder / "requests").glob("*.json"), key=written_at):
            files = Files.of(self._folder, path.stem)
            done = files in self._left or files.result.exists()
            if not done and files.claim.exists() is claimed:
                yield files


def _is_for_others(answer: Answer | None) -> bool:
    """Whether a request was refused because it is for another kind of machine."""
    return isinstance(answer, RequestRefused) and answer.other_class


def _summary(name: str, answer: Answer | None) -> str:
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
