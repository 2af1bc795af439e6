"""Claims to requests in a shared folder: files that name the worker which has a request, and those who died with it."""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

STALE_S = 600.0
"""Seconds without renewal after which another worker may take over a claim."""


def take(claim: Path) -> bool:
    """Claim a request. A claim lists those who died while they had it, then its owner."""
    try:
        with claim.open("x") as file:
            file.write(f"{us()}\n")
    except FileExistsError:
        return not is_live(claim) and _take_over(claim)
    return True


def _take_over(stale: Path) -> bool:
    """Claim a dead worker's request. The mark keeps out other workers; that of one that dies here is removed later."""
    mark = stale.with_name(f"{stale.name}.taken")
    try:
        mark.hardlink_to(stale)
    except FileNotFoundError:
        return False
    except FileExistsError:
        with suppress(FileNotFoundError):
            if time.time() - mark.stat().st_ctime > STALE_S:
                mark.unlink()
        return False
    try:
        if is_live(stale):
            return False
        write_atomically(stale, "\n".join([*owners(stale), us(), ""]))
        return True
    finally:
        mark.unlink(missing_ok=True)


def release(claim: Path, asked: Path) -> None:
    """Give up our claim to the request `asked`, if we still have it. Those who died while they had it stay known."""
    with suppress(FileNotFoundError):
        *dead, owner = owners(claim) or [""]
        if owner != us():
            return
        if dead and asked.exists():
            write_atomically(claim, "\n".join([*dead, ""]), forgotten=True)
        else:
            claim.unlink()


def write_atomically(path: Path, text: str, forgotten: bool = False) -> None:
    """Write a file so that readers see all of it or none; as if it had been there for ages if it is `forgotten`."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    part.write_text(text)
    if forgotten:
        os.utime(part, (0, 0))
    part.rename(path)


def owners(claim: Path) -> list[str]:
    """Those who died while they had the request, then the one who has it."""
    return claim.read_text().splitlines()


def us() -> str:
    """The name of this process in claims."""
    return f"{socket.gethostname()}-{os.getpid()}"


def is_live(claim: Path) -> bool:
    """Whether the worker has renewed its claim within the last `STALE_S` seconds."""
    return time.time() - written_at(claim) <= STALE_S


def written_at(path: Path) -> float:
    """When a file was written; 0 if it does not exist any more."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
