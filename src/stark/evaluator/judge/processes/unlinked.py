"""Finds deleted files that still use disk space, because processes keep them open or mapped."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_MAPPED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ ([1-9]\d*) +(?! |/memfd:|/dev/zero |/SYSV).* \(deleted\)$",
    re.MULTILINE,
)
"""A line of `/proc/PID/maps` about a deleted file: address range, offset and inode. Shared memory
looks similar and is excluded, because it counts as memory."""


def unlinked_bytes(processes: Iterable[int]) -> int:
    """Total bytes of the deleted files that the processes keep open or mapped. Each file counts once."""
    sizes: dict[int, int] = {}
    for pid in processes:
        with suppress(OSError):
            for number, size in (*_open(pid), *_mapped(pid)):
                sizes[number] = max(size, sizes.get(number, 0))
    return sum(sizes.values())


def _open(pid: int) -> Iterator[tuple[int, int]]:
    """The inode and size of each deleted file that a process has open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found = os.stat(descriptor)  # noqa: PTH116 - follows the descriptor; there is no path
            shared = os.readlink(descriptor).startswith("/memfd:")  # noqa: PTH115
            if stat.S_ISREG(found.st_mode) and not found.st_nlink and not shared:
                yield found.st_ino, found.st_size


def _mapped(pid: int) -> Iterator[tuple[int, int]]:
    """The inode of each deleted file that a process has mapped, and the offset in it where the mapping ends."""
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    for begin, end, offset, number in _MAPPED.findall(maps):
        yield int(number), int(offset, 16) + int(end, 16) - int(begin, 16)
