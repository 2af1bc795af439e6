"""A PostgreSQL server in a temporary folder, for tests and benchmarks.

It can be stopped, killed and started again. It ends with the process that started it, even if that process is killed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ACCOUNT = "nobody"
"""Runs the server for root, which it refuses to run as."""

GUARD = '"$@" & cat >/dev/null; kill -INT $! 2>/dev/null; wait $!'
"""Runs a command until standard input ends, then stops it."""

OPTIONS = "-c listen_addresses= -c logging_collector=off -c autovacuum=off -c shared_buffers=32MB"
NOT_DURABLE = "-c fsync=off -c full_page_writes=off"
LIMIT_S = 30.0


def programs() -> Path | None:
    """The folder of PostgreSQL's programs; None if they are not installed."""
    on_path = shutil.which("initdb")
    found = (
        [Path(on_path).resolve()]
        if on_path
        else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    )
    return found[-1].parent if found else None


class Server:
    """A server that runs until it is stopped."""

    def __init__(self, programs: Path, folder: Path, durable: bool) -> None:
        """`durable` makes commits wait for the disk. They survive a kill of the server in any case."""
        self._programs, self._folder, self._data = programs, folder, folder / "data"
        self._options = [
            *OPTIONS.split(),
            "-k",
            str(folder),
            *(() if durable else NOT_DURABLE.split()),
        ]
        self._schemas = itertools.count(1)
        self._guard: subprocess.Popen[bytes] | None = None
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._account = {"user": ACCOUNT, "extra_groups": []}
            shutil.chown(folder, ACCOUNT)
        initial = "--auth=trust --username=stark --encoding=UTF8 --locale=C --no-sync --pgdata"
        command = [str(programs / "initdb"), *initial.split(), str(self._data)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **self._account)
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        command = [str(self._programs / "postgres"), "-D", str(self._data), *self._options]
        until = time.monotonic() + LIMIT_S
        with (self._folder / "log").open("ab") as log:
            while not self._accepts():
                if self._guard is None or self._guard.poll() is not None:
                    # After a kill, the server refuses to start until its other processes are gone, too.
                    self._guard = subprocess.Popen(
                        ["sh", "-c", GUARD, "sh", *command],
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=log,
                        cwd=self._folder,
                        start_new_session=True,
                        **self._account,
                    )
                if time.monotonic() > until:
                    raise RuntimeError((self._folder / "log").read_text()[-2000:])
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server, as an administrator does: connections are closed, open transactions are undone."""
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        self.stop()

    def url(self) -> str:
        """An empty database's address: a schema of its own in the server's database."""
        name = f"test_{next(self._schemas)}"
        self._execute(f"CREATE SCHEMA {name}")
        return f"postgresql+psycopg://stark@/postgres?host={self._folder}&options=-csearch_path%3D{name}"

    def _accepts(self) -> bool:
        from psycopg import OperationalError

        with suppress(OperationalError):
            self._execute("SELECT 1")
            return True
        return False

    def _execute(self, statement: str) -> None:
        import psycopg  # a tenth of a second that other tests need not take

        where = f"host={self._folder} user=stark dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def server(durable: bool = False) -> Iterator[Server]:
    """A server that is stopped and removed when the block ends. Raises FileNotFoundError if there are no programs."""
    found = programs()
    if found is None:
        raise FileNotFoundError("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="stark-postgres-") as folder:
        started = Server(found, Path(folder), durable)
        try:
            yield started
        finally:
            started.stop()
