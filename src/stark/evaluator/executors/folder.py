"""An executor that passes requests and results as files in a shared folder.

It is meant for batch queues and for GPU nodes without a network connection. The orchestrator, which
runs the search, writes `requests/ID.json`. A worker (`stark worker FOLDER`) has the request judged
and writes the answer to `results/ID.json`. Meanwhile `claims/ID` names the worker. The id is a digest
of the request's content, so an existing answer is reused for a while. A claim is deleted
after the answer. If the answer is a refusal, the orchestrator deletes the answer and the request. If
nobody waits for an answer any more, it deletes the request, and the worker gives up. All other files stay.
A worker leaves requests for other kinds of machines to workers that run on those.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from stark.core.errors import JudgeUnavailable, UsageError
from stark.core.judging import Limits, Tools
from stark.evaluator.executors.base import RequestingExecutor
from stark.evaluator.executors.claims import write_atomically, written_at
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    ProblemRefused,
    RequestRefused,
    answer_adapter,
    request_id,
)

POLL_S = (0.1, 2.0)
"""Shortest and longest pause between two checks of the folder, in seconds. Pauses grow while the orchestrator waits."""

NOTICE_AFTER_S = 30.0
"""Seconds without an answer after which an orchestrator reports that no worker is active."""

RENEWED_S = 90.0
"""Seconds without renewal after which an orchestrator assumes that a worker has died. Network file systems may be a minute late."""

EXPIRE_S = 30 * 24 * 3600.0
"""Age at which an answer is no longer used: drivers and clocks of a machine change."""

PARTS = ("requests", "results", "claims")


class FolderExecutor(RequestingExecutor):
    """The orchestrator's side: writes requests and waits for results without a deadline."""

    cases_at_once = True

    def __init__(self, folder: Path | str, limits: Limits, tools: Tools | None = None) -> None:
        """Create the subfolders (`PARTS`). Raises UsageError if that fails."""
        super().__init__(limits, tools)
        self.on_notice = _say
        self._heard: dict[str | None, float] = {}
        """When a worker last had a request, by the kind of machine that the request is for."""

        try:
            self._folder = Path(folder).expanduser().absolute()
            for name in PARTS:
                (self._folder / name).mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError) as error:  # a RuntimeError: there is no such user
            raise UsageError(
                f"cannot create the request folders in {folder}: {error}; choose another folder"
            ) from error

    async def answer(self, request: AnyRequest) -> Answer:
        """Write the request and wait for its answer, however long the queue takes.

        Raises JudgeUnavailable if this process and the worker run different versions of STARK.
        """
        name = request_id(request)
        asked, result, _ = Files.of(self._folder, name)
        if time.time() - written_at(result) > EXPIRE_S:
            result.unlink(missing_ok=True)
        try:
            await self._answered(request.model_copy(update={"id": name}))
        except asyncio.CancelledError:
            asked.unlink(missing_ok=True)
            raise
        finally:
            self._notified(name, "")
        self._heard[request.device_class] = time.monotonic()
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
        asked, result, claim = Files.of(self._folder, request.id)
        kind, began = request.device_class, time.monotonic()
        which = f"a machine of kind {kind!r}" if kind else "the machine"
        run = f"run `stark worker {self._folder}` on {which} that should judge candidates"
        notice, (pause, longest) = f"waiting for a worker; {run}", POLL_S
        while not result.exists():
            if not asked.exists():
                write_atomically(asked, request.model_dump_json())
            if time.time() - written_at(claim) <= RENEWED_S:
                self._heard[kind] = time.monotonic()
            quiet_s = time.monotonic() - max(began, self._heard.get(kind, began))
            self._notified(request.id, notice if quiet_s > NOTICE_AFTER_S else "")
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, longest)


def _say(notice: str) -> None:
    """Report on stderr, where nobody else reports. Stdout is reserved for results."""
    if notice:
        sys.stderr.write(f"{notice}\n")


class Files(NamedTuple):
    """The files of one request: the request itself, its result, and the claim of the worker that has it."""

    asked: Path
    result: Path
    claim: Path

    @classmethod
    def of(cls, folder: Path, name: str) -> Files:
        """Those of the request with this id."""
        requests, results, claims = (folder / part for part in PARTS)
        return cls(requests / f"{name}.json", results / f"{name}.json", claims / name)
