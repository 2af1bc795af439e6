"""Asks a build service for builds, over a socket: the judge's side.

Whatever goes wrong there is no candidate's fault. The judge then builds by itself.
"""

from __future__ import annotations

import io
import select
import socket
import sys
import tempfile
import time
from pathlib import Path

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.judging import Limits
from stark.evaluator.judge.building.packing import Received, Unusable, receive
from stark.evaluator.judge.processes.child import Patience

POLL_S = 0.1
"""Seconds between two looks whether anybody still waits for the candidate."""

WAITS = 3.0
"""Times the limit of a build that a judge waits for an answer. A service may have to make other builds first."""


class Wanted(Frozen):
    """A request for a build: one line of JSON. The answer is a stream (`packing.py`)."""

    key: str
    candidate: Candidate
    architecture: str | None
    limits: Limits


def fetched(service: Path, wanted: Wanted, patience: Patience, folder: Path) -> Received | None:
    """A build from the service, or None if it sends none in time. Its contents are in `folder`, without a name."""
    limit_s = WAITS * wanted.limits.build_s
    deadline = time.monotonic() + limit_s
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(limit_s)
            connection.connect(str(service))
            connection.sendall(wanted.model_dump_json().encode() + b"\n")
            stream = io.BufferedReader(_Patient(connection, patience, deadline))
            return receive(stream, wanted.key, tempfile.TemporaryFile(dir=folder))
    except (OSError, Unusable) as reason:
        sys.stderr.write(f"the build {wanted.key} is made here: {reason}\n")
        return None


class _Patient(io.RawIOBase):
    """Reads from a connection while somebody waits for it. Raises TimeoutError otherwise."""

    def __init__(self, connection: socket.socket, patience: Patience, deadline: float) -> None:
        self._connection, self._patience, self._deadline = connection, patience, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not select.select([self._connection], [], [], POLL_S)[0]:
            if self._patience.ended or time.monotonic() > self._deadline:
                raise TimeoutError("no answer in time")
        return self._connection.recv_into(buffer)
