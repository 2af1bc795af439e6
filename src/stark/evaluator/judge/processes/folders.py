"""Folders that a candidate wrote: measured, copied and removed, whatever it put there.

Nothing in them is trusted: trees may be deep, locked or full of pipes, and links lead anywhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 8 << 30
MOST_FILES = 50_000
DEEPEST = 40
"""Bounds of what one child may leave in its folder; compilers and their caches stay far below."""


def excess(folder: Path, size: int = 0) -> str | None:
    """What a folder holds too much of, in a few words, or None. Stops reading once it is too much.

    `size` bytes lie elsewhere and count as well.
    """
    for files, (entry, depth) in enumerate(entries(folder), start=1):
        if depth > DEEPEST:
            return f"folders nested more than {DEEPEST} deep"
        if files > MOST_FILES:
            return f"more than {MOST_FILES:,} files"
        with suppress(OSError):
            if entry.is_file(follow_symlinks=False):
                size += entry.stat(follow_symlinks=False).st_size
        if size > MOST_BYTES:
            break
    return f"more than {MOST_BYTES / 1e9:.1f} GB" if size > MOST_BYTES else None


def copy(source: Path, target: Path) -> None:
    """The files, folders and links of a measured folder, with their times; pipes, sockets and devices stay out."""
    target.mkdir()
    for entry, _ in entries(source):
        place = target / Path(entry.path).relative_to(source)
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            place.mkdir()
        elif entry.is_file():
            with suppress(PermissionError):  # it locked its own file: then it goes without
                shutil.copy2(entry.path, place, follow_symlinks=False)


def remove(folder: Path) -> None:
    """Remove a folder whole, however deep and locked, if it is there. Raises OSError if it stays."""
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, str(folder)], capture_output=True, check=False)
    if folder.exists():
        raise OSError(f"{folder} cannot be removed; remove it and start again")


def entries(folder: Path) -> Iterator[tuple[os.DirEntry[str], int]]:
    """Everything below a folder with its depth, parents first; links are not followed."""
    waiting = [(str(folder), 1)]
    while waiting:
        path, depth = waiting.pop()
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                yield entry, depth
                if entry.is_dir(follow_symlinks=False) and depth <= DEEPEST:
                    waiting.append((entry.path, depth + 1))
