"""Speed and memory of the page with 1,000 attempts in one run and 200 runs in the store, in a real browser.

    python benchmarks/page.py [--attempts 1000] [--runs 200]

Needs Chromium and the packages of the extra `dev`. Prints the figures; exits 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from stark.core.node import Selection
from stark.core.run import Run
from stark.core.usage import Budget, Cost
from stark.recorded import Recording, keep, read_recording
from stark.store import Store
from support.nodes import failing, working
from support.recordings import RESULTS

PAINT_MS, UPDATE_S, MEMORY_MB, IDLE = 300.0, 1.0, 80.0, 0.01
UPDATES, IDLE_S = 10, 20.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def main() -> int:
    """Print every figure beside its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = f"sqlite:///{folder}/stark.db"
        with Store.open(address) as store:
            asyncio.run(store.retried(fill, store, asked.runs, asked.attempts))
            with served(address) as (site, server):
                figures = measured(store, site, server.pid, asked.attempts)
    broken = False
    for name, (value, bound, unit) in figures.items():
        broken |= bound is not None and value > bound
        limit = "" if bound is None else f" (bound {bound:g})"
        print(f"{name:<58}{value:8.3g} {unit}{limit}")
    return int(broken)


Figures = dict[str, tuple[float, float | None, str]]
"""By name: the value, its bound and its unit."""


def measured(store: Store, site: str, pid: int, attempts: int) -> Figures:
    """All figures, with a browser."""
    figures: Figures = {}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, screen in (("runs", ""), ("run", "run/large"), ("attempt", "run/large/7")):
            paints, contents = zip(
                *(painted(browser.new_page(), f"{site}#/{screen}") for _ in range(5)), strict=True
            )
            figures[f"{name}: first paint, median of 5"] = median(paints), PAINT_MS, "ms"
            figures[f"{name}: its figures painted, median of 5"] = median(contents), None, "ms"
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{site}#/run/large")
        page.locator(".row").nth(attempts - 1).wait_for(state="attached")
        delays = [update(store, page, attempts + each) for each in range(1, UPDATES + 1)]
        figures[f"update visible after its commit, worst of {UPDATES}"] = max(delays), UPDATE_S, "s"
        time.sleep(2)
        began, before = time.monotonic(), cpu_s(pid)
        time.sleep(IDLE_S)
        idle = (cpu_s(pid) - before) / (time.monotonic() - began)
        figures["server's share of a core, one idle page"] = idle, IDLE, ""
        for name, (value, bound) in memory_mb(pid).items():
            figures[f"server's memory, {name}"] = value, bound, "MB"
        browser.close()
    return figures


def painted(page: Page, address: str) -> tuple[float, float]:
    """Milliseconds until the first paint, and until the screen with its figures is painted."""
    page.add_init_script(
        "addEventListener('DOMContentLoaded', () => new MutationObserver((_, watching) => {"
        "if (!document.querySelector('main h1')) return; watching.disconnect();"
        "requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));"
        "}).observe(document.body, {childList: true, subtree: true}))"
    )
    page.goto(address)
    page.locator("main h1").wait_for()
    page.wait_for_timeout(300)
    first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    content = page.evaluate("window.painted")
    page.close()
    return first, content


def update(store: Store, page: Page, attempt: int) -> float:
    """Seconds from the commit of a finished attempt until its row is there."""
    store.begin_attempt("large", attempt, Selection(parent=0, action="improve"))
    time.sleep(1)
    store.add_node("large", working(attempt), 1e5)
    committed = time.monotonic()
    row = page.locator(f".row[data-id='{attempt}']:not(.running)")
    row.wait_for(state="attached")
    return time.monotonic() - committed


def cpu_s(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> dict[str, tuple[float, float | None]]:
    """Resident memory, and the part that is not shared files of the system and of Python."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
    return {"resident": (found["Rss"], MEMORY_MB), "its own part": (found["Pss_Anon"], None)}


@contextmanager
def served(store_url: str) -> Iterator[tuple[str, subprocess.Popen[Any]]]:
    """`stark ui` in a process of its own: its address and the process."""
    command = [sys.executable, "-m", "stark", "ui", "--store", store_url, "--port", "18765"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().split()[0], server
    finally:
        server.terminate()
        server.wait()


def fill(store: Store, runs: int, attempts: int) -> None:
    """One large run, and shipped recordings over and over under other names."""
    recordings = [read_recording(path) for path in sorted(RESULTS.rglob("*.json.gz"))]
    for number in range(runs - 1):
        found = recordings[number % len(recordings)]
        keep(found.model_copy(update={"run": renamed(found.run, f"run-{number}")}), store)
    [source] = [each for each in recordings if each.run.id.startswith("masked-softmax-stark")]
    enlarge(store, source, attempts)


def renamed(run: Run, name: str, attempts: int | None = None) -> Run:
    """The run under another name."""
    budget = run.config.budget if attempts is None else Budget(attempts=attempts)
    config = run.config.model_copy(update={"budget": budget})
    return run.model_copy(update={"id": name, "config": config})


def enlarge(store: Store, source: Recording, attempts: int) -> None:
    """A run called `large`: the attempts and calls of a recording over and over, a third of them failures."""
    chance = random.Random(1)
    store.create_run(renamed(source.run, "large", 2 * attempts))
    store.set_reference("large", source.reference)
    for id in range(1, attempts + 1):
        parent = 0 if id < 4 or chance.random() < 0.1 else chance.randrange(max(1, id - 40), id)
        copied = source.nodes[id % len(source.nodes)]
        node = copied.model_copy(
            update={"id": id, "parent": parent, "action": "improve", "duplicate_of": None}
        )
        if chance.random() < 0.3:
            node = failing(id, parent=parent)
        store.begin_attempt("large", id, Selection(parent=parent, action=node.action))
        calls = [call for call in source.calls if call.attempt == copied.id]
        for turn, call in enumerate(calls):
            asked = store.begin_call("large", id, call.role, call.reply.model, Cost())
            changed = {"attempt": id, "turn": turn}
            store.add_call("large", call.model_copy(update=changed), asked, id * 10.0)
        store.add_node("large", node, id * 10.0)


if __name__ == "__main__":
    sys.exit(main())
