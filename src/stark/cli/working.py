"""`stark worker`: the judging side of a shared folder."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from stark.cli import consoles
from stark.cli.interrupt import run_interruptibly
from stark.cli.requests import limits
from stark.cli.settings import Settings
from stark.core.counted import counted
from stark.core.errors import UsageError
from stark.evaluator.executors import open_executor, require_requests, serve_folder
from stark.evaluator.executors.stdio import StdioExecutor


def work(folder: Path, once: bool, settings: Settings) -> int:
    """Serve the folder until nothing waits (`once`) or the process is interrupted."""
    if settings.executor.startswith("folder:"):
        raise UsageError("a worker judges by itself; give it --executor local or command:LINE")
    require_requests(folder)
    console = consoles.results()

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    async def serve() -> int:
        executor = open_executor(settings.executor, limits(settings))
        try:
            if isinstance(executor, StdioExecutor):  # one that cannot work must not look idle
                await executor.start()
            return await serve_folder(folder, executor, once, say)
        finally:
            await executor.close()

    say(f"serving {folder} with {settings.executor}")
    answered = run_interruptibly(serve())
    say(f"answered {counted(answered, 'request')}; nothing waits")
    return 0
