"""`stark ui`: serves the page until Ctrl-C."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stark.cli import consoles
from stark.cli.settings import Settings
from stark.core.errors import UsageError
from stark.recorded import keep, read_recording
from stark.store import Store

HOST = "127.0.0.1"
TRIED = 20
"""The number of ports that are tried, beginning with the one asked for."""


def serve_page(recordings: list[Path], settings: Settings, port: int, controls: bool) -> int:
    """Serve the store, or a store made of recordings, until the process is stopped."""
    try:
        import uvicorn

        from stark.page.control import Control
        from stark.page.memory import share_one_heap
        from stark.page.server import make_app
    except ImportError as error:
        raise UsageError(
            f'the page needs the Python package {error.name}: pip install "stark-kernels[web]"'
        ) from error
    share_one_heap()
    with _store(recordings, settings) as (store, files), _listening(port) as listening:
        taken = listening.getsockname()[1]
        if taken != port:
            consoles.say(f"port {port} is busy, so the page is on port {taken}", stderr=True)
        control = Control(store) if controls else None
        token = f"#token={control.token}" if control else ""
        consoles.say(f"http://{HOST}:{taken}/{token}  (Ctrl-C ends it)")
        config = uvicorn.Config(
            make_app(store, control, files),
            loop="asyncio",
            http="h11",
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run([listening])
    return 0


@contextmanager
def _store(recordings: list[Path], settings: Settings) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The address of the store to serve, and the names of the recordings by run."""
    if not recordings:
        yield settings.store, {}
        return
    with TemporaryDirectory(prefix="stark-ui-") as folder:
        address = f"sqlite:///{folder}/stark.db"
        files: dict[str, str] = {}
        with Store.open(address) as store:
            for path in recordings:
                recording = read_recording(path)
                if recording.run.id not in files:
                    files[recording.run.id] = path.name
                    keep(recording, store)
        yield address, files


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """A socket on this port or, if it is busy, on one of the next."""
    for each in range(port, min(port + TRIED, 65536)):
        with socket.socket() as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                opened.bind((HOST, each))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise UsageError(
                        f"port {each} cannot be used: {error.strerror}; choose another --port"
                    ) from error
                continue
            yield opened
            return
    raise UsageError(f"the ports {port} to {port + TRIED - 1} are all busy; choose another --port")
