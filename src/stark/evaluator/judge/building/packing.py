"""How a judge asks a build service for builds over a socket, and gets them as streams that may be wrong in any way.

Whatever goes wrong there is no candidate's fault. The judge then builds by itself.

A stream is one line of JSON (`Packed`), the contents of the files, and the SHA-256 digest of both. It has no form for links,
special files, owners or modes other than "executable". Candidates write a build's files, so nothing in a stream is trusted:
`receive` checks the limits, the names and the digest before `unpack` writes anything.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import select
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from pydantic import Field, ValidationError

from stark.core.base import Frozen
from stark.core.candidate import Candidate
from stark.core.judging import Limits
from stark.evaluator.judge.processes import folders
from stark.evaluator.judge.processes.child import Patience

KEPT_BYTES = 512 << 20
"""Most bytes that a build may leave. They are copied before every run of the candidate, and no time limit covers that."""

HEADER_BYTES = 32 << 20
"""Maximum length of a stream's first line."""

LONGEST_PATH = 2000

POLL_S = 0.1
"""Seconds between two looks whether anybody still waits for the candidate."""

WAITS = 3.0
"""Times the limit of a build that a judge waits for an answer. A service may have to make other builds first."""


class Unusable(Exception):
    """A stream contains no build, or there is none to send."""


class Wanted(Frozen):
    """A request for a build: one line of JSON. The answer is a stream (`Packed`)."""

    key: str
    candidate: Candidate
    architecture: str | None
    limits: Limits


class PackedFile(Frozen):
    """One file of a build."""

    path: str
    """Relative to the build's folder."""

    size: int = Field(ge=0)
    changed_ns: int
    """When it was last changed. By this, ninja decides whether anything must be compiled again."""

    executable: bool


class Packed(Frozen):
    """The first line of a stream."""

    output: str
    """What the build printed."""

    files: tuple[PackedFile, ...]


@dataclass(frozen=True)
class Received:
    """A stream that passed all checks."""

    packed: Packed
    contents: memoryview
    """Of the files, one after the other."""

    def unpack(self, folder: Path) -> None:
        """Write the files into an empty folder that nothing else writes to. Raises Unusable if two have one place."""
        begin = 0
        try:
            for file in self.packed.files:
                place = folder / file.path
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("xb") as out:
                    begin += out.write(self.contents[begin : begin + file.size])
                place.chmod(0o755 if file.executable else 0o644)
                os.utime(place, ns=(file.changed_ns, file.changed_ns))
        except (OSError, OverflowError) as error:
            raise Unusable(f"its files cannot be written: {error}") from error


def fetched(service: Path, wanted: Wanted, patience: Patience, folder: Path) -> Received | None:
    """A build from the service, or None if it sends none in time. Its contents are in a file without a name in `folder`."""
    limit_s = WAITS * wanted.limits.build_s
    deadline = time.monotonic() + limit_s
    try:
        with (
            tempfile.TemporaryFile(dir=folder) as stream,
            socket.socket(socket.AF_UNIX) as connection,
        ):
            connection.settimeout(limit_s)
            connection.connect(str(service))
            connection.sendall(wanted.model_dump_json().encode() + b"\n")
            while not patience.ended and time.monotonic() < deadline:
                if select.select([connection], [], [], POLL_S)[0]:
                    chunk = connection.recv(1 << 20)
                    if not chunk or stream.tell() > HEADER_BYTES + KEPT_BYTES:
                        break
                    stream.write(chunk)
            stream.flush()
            return receive(memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)))
    except (OSError, ValueError, Unusable) as reason:  # a ValueError: nothing arrived
        sys.stderr.write(f"the build {wanted.key} is made here: {reason}\n")
        return None


def send(output: str, folder: Path, out: IO[bytes]) -> None:
    """Write a build's stream: what it printed, and the regular files of its folder."""
    packed = Packed(output=output, files=tuple(_files(folder)))
    contents = ((folder / file.path).read_bytes() for file in packed.files)
    whole = hashlib.sha256()
    for part in chain([packed.model_dump_json().encode() + b"\n"], contents):
        whole.update(part)
        out.write(part)
    out.write(whole.digest())
    out.flush()


def receive(stream: memoryview) -> Received:
    """Check a stream. Raises Unusable."""
    line = bytes(stream[:HEADER_BYTES]).partition(b"\n")[0]
    try:
        packed = Packed.model_validate_json(line)
    except ValidationError as error:
        raise Unusable("its first line cannot be read") from error
    if len(packed.files) > folders.MAX_FILES:
        raise Unusable(f"it has more than {folders.MAX_FILES:,} files")
    if (size := sum(file.size for file in packed.files)) > KEPT_BYTES:
        raise Unusable(f"it has more than {KEPT_BYTES / 1e9:.1f} GB")
    for file in packed.files:
        if not _is_safe(file.path):
            raise Unusable(f"a file is named {file.path[:200]!r}")
    end = len(line) + 1 + size
    if hashlib.sha256(stream[:end]).digest() != stream[end:]:
        raise Unusable("its contents do not have its digest")
    return Received(packed, stream[end - size : end])


def _is_safe(path: str) -> bool:
    """Whether a path leads to a file below the folder that it is relative to."""
    parts = path.split("/")
    strange = any(part in ("", ".", "..") for part in parts) or "\0" in path
    return not strange and len(path) <= LONGEST_PATH and len(parts) <= folders.MAX_DEPTH


def _files(folder: Path) -> Iterator[PackedFile]:
    """The regular files of a folder that can be named in a stream."""
    for entry, _ in folders.entries(folder):
        if not entry.is_file(follow_symlinks=False):
            continue
        path = Path(entry.path).relative_to(folder).as_posix()
        found = entry.stat(follow_symlinks=False)
        if path.isprintable() and _is_safe(path) and os.access(entry.path, os.R_OK):
            yield PackedFile(
                path=path,
                size=found.st_size,
                changed_ns=found.st_mtime_ns,
                executable=bool(found.st_mode & stat.S_IXUSR),
            )
