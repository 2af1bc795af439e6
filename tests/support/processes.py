"""Whether processes have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def eventually(happens: Callable[[], bool]) -> bool:
    """Whether something happens within ten seconds."""
    deadline = time.monotonic() + 10
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def pids(file: Path) -> list[int]:
    """The processes that a program wrote to a file."""
    return [int(word) for word in file.read_text().split()] if file.exists() else []
