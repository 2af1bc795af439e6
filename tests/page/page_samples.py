"""A page on a free port, and a browser whose pages may report no error."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from stark.page.server import make_app

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SHIPPED = sorted(RESULTS.rglob("*.json.gz"))


@contextmanager
def serving(store_url: str, **options: Any) -> Iterator[str]:
    """The address of a page over the store."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = make_app(store_url, **options)
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Browser:
    """Chromium, driven by Playwright."""

    chromium: Any

    @contextmanager
    def page(self, expected: str | None = None, **options: Any) -> Iterator[Any]:
        """A page in a context of its own.

        Errors of scripts, requests that its policy blocks, and answers other than the `expected` status fail the test.
        """
        context = self.chromium.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(10_000)
        errors: list[str] = []
        page.errors = errors
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        try:
            yield page
        finally:
            context.close()
        found = [each for each in errors if expected is None or expected not in each]
        assert [] == found, found


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; skips the test where it or Playwright is missing.

    It must be closed before asynchronous tests run in this process, since Playwright keeps an event loop.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield Browser(launched)
        launched.close()


def opened(page: Any, address: str) -> Any:
    """Open a screen and wait until it is drawn, in a page that may show another one; returns the page."""
    if page.url == address:
        page.goto("about:blank")
    page.evaluate("document.querySelector('main > *')?.setAttribute('data-old', '')")
    page.goto(address)
    page.locator("main > :not([data-old]) h1").wait_for()
    return page
