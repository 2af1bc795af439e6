"""A build service: builds candidates for judges on other machines, as they would build them themselves.

It has the same sandbox, limits and cache of builds as a judge, needs no device, and answers each request with a stream
(`packing.py`). If a build fails, even with a compiler's error, there is no answer, and the judge builds by itself: this
machine may lack memory, disk space or a header.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

from pydantic import ValidationError

from stark.core.errors import StarkError
from stark.core.toolchain import Toolchain
from stark.evaluator.judge.building.builds import Builds
from stark.evaluator.judge.building.cache import BuildCache
from stark.evaluator.judge.building.packing import Unusable, Wanted, send
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.processes.failures import ChildFailed, SandboxFailed
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.protocol import LONGEST_REQUEST


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

    def answer(self, wanted: Wanted, patience: Patience, out: IO[bytes]) -> None:
        """Make a build and write its stream. Raises what a build raises, and Unusable if it fails or would be another."""
        builds = Builds(self._cache, wanted.architecture, self._toolchain, self._forkserver)
        if builds.key(wanted.candidate) != wanted.key:
            raise Unusable("the judge has another toolchain")
        with self._slots, builds.in_use(wanted.candidate):
            patience.left_s = wanted.limits.build_s
            built = builds.build(wanted.candidate, wanted.limits, patience)
            if built.error is not None:
                raise Unusable(built.error)
            send(built.output, built.kept, out)


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
        try:
            cast(BuildService, self.server).answer(wanted, patience, cast(IO[bytes], self.wfile))
        except (Unusable, ChildFailed, SandboxFailed, StarkError, OSError) as reason:
            first_line = printable(str(reason)).partition("\n")[0]
            sys.stderr.write(f"the build {wanted.key} is not made: {first_line}\n")


def _watch(connection: socket.socket, patience: Patience) -> None:
    """End the patience for a build when the other side closes the connection."""
    with suppress(OSError):
        connection.recv(1)
    patience.ended = True
