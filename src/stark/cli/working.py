"""`stark worker`: judges the requests in a shared folder."""

from __future__ import annotations

from pathlib import Path

from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.evaluator.executors import open_judges, require_requests, serve_folder
from stark.explain.numbers import counted


def work(folder: Path, once: bool, executor: str) -> None:
    """Serve the folder until the process is interrupted or, with `once`, until no request is waiting."""
    judges = open_judges(executor)
    require_requests(folder)

    async def serve() -> int:
        try:
            await judges.start()  # fails now if no judge can work, not at the first request
            return await serve_folder(folder, judges, once, consoles.say, lambda: judges.ready)
        finally:
            await judges.close()

    consoles.say(f"serving {folder} with {executor}")
    answered = run_interruptibly(serve())
    consoles.say(f"answered {counted(answered, 'request')}; no request is waiting")
