"""Measures, copies and removes folders that a candidate wrote.

Nothing in them is trusted: trees may be deep, unreadable or full of pipes, and links may lead anywhere.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_BYTES = 8 << 30
MAX_FILES = 50_000
MAX_DEPTH = 40
"""Maximum size, number of files and depth of nesting in a child's folder. Compilers stay far below."""

HIDES = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
"""Errors by which a folder hides what it contains: no permission, which the candidate took away, or too long a path.
With other errors, the entry is gone."""


def excess(folder: Path, elsewhere: int = 0, most: int | None = None) -> str | None:
    """The first limit that a folder exceeds, in a few words; None if it exceeds none. No folder may hide its files.

    `elsewhere` is the number of bytes that are stored elsewhere and count too, `most` a limit in place of `MAX_BYTES`.
    """
    most = most or MAX_BYTES
    try:
        for files, (entry, depth) in enumerate(entries(folder, strict=True), start=1):
            if depth > MAX_DEPTH:
                return f"folders nested more than {MAX_DEPTH} deep"
            if files > MAX_FILES:
                return f"more than {MAX_FILES:,} files"
            elsewhere += _bytes(entry, strict=True)
            if elsewhere > most:
                break
    except OSError as error:
        return f"folders that cannot be read ({os.strerror(error.errno or 0)})"
    return f"more than {most / 1e9:.1f} GB" if elsewhere > most else None


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(_bytes(entry) for entry, _ in entries(folder))


def copy(source: Path, target: Path) -> None:
    """Copy the files (with their times), folders and links of a folder that is within the limits."""
    target.mkdir()
    for entry, _ in entries(source):
        place = target / Path(entry.path).relative_to(source)
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            place.mkdir()
        elif entry.is_file():
            with suppress(PermissionError):  # the candidate made its own file unreadable
                shutil.copy2(entry.path, place, follow_symlinks=False)


def remove(folder: Path) -> None:
    """Remove a folder if it exists, however deep or unreadable. Raises OSError if it remains."""
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, str(folder)], capture_output=True, check=False)
    if folder.exists():
        raise OSError(f"the judge cannot remove {folder}; remove it by hand and start again")


def entries(folder: Path, strict: bool = False) -> Iterator[tuple[os.DirEntry[str], int]]:
    """Everything below a folder, each entry with its depth. Parents come first; links are not followed.

    With `strict`, raises OSError for a folder that hides what it contains.
    """
    waiting = [(str(folder), 1)]
    while waiting:
        path, depth = waiting.pop()
        with _forgiving(strict), os.scandir(path) as entries:
            for entry in entries:
                yield entry, depth
                if entry.is_dir(follow_symlinks=False) and depth <= MAX_DEPTH:
                    waiting.append((entry.path, depth + 1))


@contextmanager
def _forgiving(strict: bool) -> Iterator[None]:
    """Ignore errors of entries that are gone and, unless `strict`, of those that are hidden."""
    try:
        yield
    except OSError as error:
        if strict and error.errno in HIDES:
            raise


def _bytes(entry: os.DirEntry[str], strict: bool = False) -> int:
    with _forgiving(strict):
        if entry.is_file(follow_symlinks=False):
            return entry.stat(follow_symlinks=False).st_size
    return 0
