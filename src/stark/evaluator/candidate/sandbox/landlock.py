"""Landlock: restricts which files may be accessed and which processes may be signalled.

Rules only grant access: a path that no rule covers is inaccessible. A restriction is permanent and
needs no privilege. It applies to all threads of the process if Linux supports that, otherwise only to
the calling thread. Processes and threads that are started later inherit it. Landlock does not restrict
changes of file modes and owners; the read-only mounts in `namespaces` do.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stark.evaluator.candidate.sandbox import kernel

MIN_VERSION = 2
"""The first usable version. Version 1 forbids moving files between folders, which compilers need to do."""

KNOWS_TRUNCATE = 3
"""From this version on, Landlock can restrict truncate(2)."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ONLY_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE = 1 << 14
_ALL_SINCE = ((1, (1 << 13) - 1), (2, 1 << 13), (KNOWS_TRUNCATE, _TRUNCATE))
_FIELDS_SINCE = ((4, 0b11), (6, 0b11))
"""Block TCP; then signals to outside processes, and connections to their abstract sockets."""

_EVERY_THREAD_SINCE, _EVERY_THREAD = 8, 1 << 3

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FOR_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE


def version() -> int:
    """The Landlock version that Linux offers. Raises OSError if Landlock is missing or disabled."""
    return kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _ONLY_VERSION)


def restrict(readable: Iterable[Path], writable: Iterable[Path]) -> None:
    """Allow reading only below `readable` and `writable`, and writing only below `writable`.

    Paths that do not exist are ignored. Needs `kernel.forbid_new_privileges`. Raises OSError.
    """
    offered = version()
    if offered < MIN_VERSION:
        raise OSError("Linux offers Landlock version 1, but version 2 (Linux 5.19) is needed")
    handled = sum(rights for since, rights in _ALL_SINCE if offered >= since)
    later = [field for since, field in _FIELDS_SINCE if offered >= since]
    fields = struct.pack(f"<{1 + len(later)}Q", handled, *later)
    ruleset = kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, fields, len(fields), 0)
    try:
        for path in readable:
            _allow(ruleset, path, handled & _READ)
        for path in writable:
            _allow(ruleset, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK))
        every_thread = _EVERY_THREAD if offered >= _EVERY_THREAD_SINCE else 0
        kernel.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, every_thread)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= _FOR_FILES
            rule = struct.pack("<QI", rights, place)
            name = f"landlock_add_rule for {path}"
            kernel.syscall(name, _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        finally:
            os.close(place)
