"""Files without a name: removed, but held open or mapped by a process, so that they fill the disk and no folder lists them."""

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
"""In `/proc/PID/maps`: where a removed file is mapped, from which of its bytes on, and its number. Memory that processes
share is named like one and is none: it counts where memory does."""


def nameless_bytes(processes: Iterable[int]) -> int:
    """What processes hold of such files, each counted once."""
    sizes: dict[int, int] = {}
    for pid in processes:
        with suppress(OSError):
            for number, size in (*_open(pid), *_mapped(pid)):
                sizes[number] = max(size, sizes.get(number, 0))
    return sum(sizes.values())


def _open(pid: int) -> Iterator[tuple[int, int]]:
    """The number and the size of each that a process has open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found = os.stat(descriptor)  # noqa: PTH116 - of what it leads to, which has no path
            shared = os.readlink(descriptor).startswith("/memfd:")  # noqa: PTH115
            if stat.S_ISREG(found.st_mode) and not found.st_nlink and not shared:
                yield found.st_ino, found.st_size


def _mapped(pid: int) -> Iterator[tuple[int, int]]:
    """The number of each that a process has mapped, and where in it a mapping ends."""
    maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    for begin, end, offset, number in _MAPPED.findall(maps):
        yield int(number), int(offset, 16) + int(end, 16) - int(begin, 16)
