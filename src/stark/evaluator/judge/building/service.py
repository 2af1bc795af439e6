"""A build service: builds candidates for judges on other machines, as they would build them themselves.

It has the same sandbox, limits and cache of builds as a judge, needs no device, and answers each request with a stream
(`packing.py`). A request that it could not serve as the judge's machine would is refused, and the judge builds by itself.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from pydantic import ValidationError

from stark.core.errors import StarkError
from stark.core.toolchain import Toolchain
from stark.evaluator.judge.building.away import Wanted
from stark.evaluator.judge.building.builds import Builds, Built
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.building.complaints import is_of_a_compiler
from stark.evaluator.judge.building.packing import Packed, send
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.failures import ChildFailed, SandboxFailed
from stark.evaluator.judge.processes.forkserver import Forkserver

LONGEST_REQUEST = 16 << 20
"""Maximum length of a request in bytes."""


class BuildService(socketserver.ThreadingUnixStreamServer):
    """Serves one request per connection."""

    daemon_threads = True
    request_queue_size = 1000

    def __init__(
        self,
        socket_: Path,
        cache: BuildCache,
        toolchain: Toolchain,
        forkserver: Forkserver,
        builds: int,
    ) -> None:
        """`builds` is the largest number of concurrent builds."""
        self._cache, self._toolchain, self._forkserver = cache, toolchain, forkserver
        self._slots = threading.BoundedSemaphore(builds)
        super().__init__(str(socket_), _Connection)

    def answer(self, wanted: Wanted, patience: Patience, out: BinaryIO) -> None:
        """Make a build and write its stream."""
        builds = Builds(self._cache, wanted.architecture, self._toolchain, self._forkserver)
        if builds.key(wanted.candidate) != wanted.key:
            refusal = "the build service has another toolchain"
            send(Packed(key=wanted.key, refusal=refusal), None, out)
            return
        with self._slots, builds.in_use(wanted.candidate):
            patience.left_s = wanted.limits.build_s
            try:
                built = builds.build(wanted.candidate, wanted.limits, patience)
            except (ChildFailed, SandboxFailed, StarkError, OSError) as failure:
                send(Packed(key=wanted.key, refusal=_encodable(str(failure))), None, out)
            else:
                send(_packed(wanted.key, built), None if built.error else built.kept, out)


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Answer one request, unless the judge hangs up before."""
        line = self.rfile.readline(LONGEST_REQUEST)
        try:
            wanted = Wanted.model_validate_json(line)
        except ValidationError:
            return
        patience = Patience()
        threading.Thread(target=_watch, args=(self.connection, patience), daemon=True).start()
        with suppress(OSError):
            cast(BuildService, self.server).answer(wanted, patience, cast(BinaryIO, self.wfile))


def _watch(connection: socket.socket, patience: Patience) -> None:
    """End the patience for a build when the other side closes the connection."""
    with suppress(OSError):
        connection.recv(1)
    patience.ended = True


def _packed(key: str, built: Built) -> Packed:
    """The beginning of a build's stream."""
    output = _encodable(built.output)
    if built.error is None:
        return Packed(key=key, output=output)
    if is_of_a_compiler(built.error):
        return Packed(key=key, error=_encodable(built.error), output=output)
    # Such as an exception of Python, which may be this machine's fault and takes no compiler to raise again.
    return Packed(key=key, refusal="the candidate's file raises an exception")


def _encodable(text: str) -> str:
    """Text that can be encoded: what a candidate printed may hold lone surrogates."""
    return text.encode("utf-8", "replace").decode()
