"""Which processes there are, and whether they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

ENDING_S = 60.0


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


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if the process has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def family(roots: Iterable[int]) -> list[int]:
    """These processes and all their descendants."""
    found = list(roots)
    for pid in found:
        with suppress(OSError):  # it ends
            for listed in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, listed.read_text().split())
    return found


def outlived_s(kill: Callable[[], object], parents: Collection[int], limit_s: float) -> float:
    """Call `kill`. Returns how many seconds the last process below these parents outlived the last of them.

    Raises AssertionError if it takes longer than `limit_s`, or if a parent has not ended after a minute.
    """
    known = set(family(parents))
    kill()
    begin = ended = time.monotonic()
    while left := [pid for pid in known if not is_gone(pid)]:
        now = time.monotonic()
        if any(pid in left for pid in parents):
            ended = now
        assert ended < begin + ENDING_S, f"{parents} have not ended after {ENDING_S:g} s"
        assert now < ended + limit_s, f"left {limit_s:g} s later: {', '.join(map(_named, left))}"
        known.update(family(left))  # those that are started meanwhile
        time.sleep(0.02)
    return time.monotonic() - ended


def _named(pid: int) -> str:
    with suppress(OSError):
        return f"{pid} {Path(f'/proc/{pid}/cmdline').read_text()}".replace("\0", " ")
    return str(pid)


def pids(file: Path) -> list[int]:
    """The processes that a program wrote to a file."""
    return [int(word) for word in file.read_text().split()] if file.exists() else []
