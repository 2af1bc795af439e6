"""Pictures of every screen of the page, from the shipped recordings, for the documentation.

    python benchmarks/screens.py [--into docs/screens]

Needs Chromium and the packages of the extra `dev`.
"""

from __future__ import annotations

import argparse
import io
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from stark.page.server import make_app
from stark.store import Store
from support.recordings import BENCH, DEPTHWISE, RMSNORM, SAMPLING, SWIGLU, fill

CONVOLUTION = "36-convtranspose2d-min-sum-gelu-stark-1-b0ed3cac"
SCREENS = {
    "runs": "",
    "run": f"run/{CONVOLUTION}",
    "attempt": f"run/{RMSNORM}/5",
    "failure": f"run/{SWIGLU}/6",
    "compare-attempts": f"compare/{DEPTHWISE}/3/{DEPTHWISE}/6",
    "compare-runs": f"compare/{SWIGLU}/0/{SAMPLING}/0",
    "bench": f"bench/{BENCH}",
    "devices": "devices",
}
WINDOW, TALLEST = 1280, 1900


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("docs/screens"))
    folder: Path = parser.parse_args().into
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        address = f"sqlite:///{made}/stark.db"
        with Store.open(address) as store:
            fill(store)
        take_all(address, folder)


def take_all(store_url: str, folder: Path) -> None:
    """Every screen in both themes."""
    with sync_playwright() as started, serving(store_url) as site:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for name, screen in SCREENS.items():
                take(browser, f"{site}#/{screen}", theme, folder / f"{name}-{theme}.png")
        browser.close()


def take(browser: Browser, address: str, theme: str, path: Path) -> None:
    """One picture, cut off at the bottom if the screen is very tall."""
    page = browser.new_page(
        viewport={"width": WINDOW, "height": 800},
        color_scheme="dark" if theme == "dark" else "light",
    )
    page.goto(address)
    page.locator("main h1").wait_for()
    page.evaluate("document.fonts.ready")
    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)
    page.set_viewport_size({"width": WINDOW, "height": height})
    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )  # a third of the size
    page.close()


@contextmanager
def serving(store_url: str) -> Iterator[str]:
    """The address of the page."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(store_url), log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True


if __name__ == "__main__":
    main()
