"""System calls that Python does not offer, made through the C library. Linux only."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import struct
from contextlib import suppress
from pathlib import Path

NEW_MOUNTS = 0x00020000
NEW_USER = 0x10000000
NEW_PROCESSES = 0x20000000
NEW_NETWORK = 0x40000000

MOUNT_BIND = 4096
MOUNT_RECURSIVE = 16384
MOUNT_PRIVATE = 1 << 18
MOUNT_NO_SUID = 2
MOUNT_NO_DEVICES = 4
MOUNT_NO_PROGRAMS = 8

_MOUNT_SETATTR = 442
_ATTR_READ_ONLY = 1
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, (1 << 64) - 1
_PR_CAP_AMBIENT_RAISE, _PR_CAP_AMBIENT_CLEAR_ALL = 2, 4

_CAPABILITIES_VERSION_3 = struct.pack("<II", 0x20080522, 0)
"""The header of capget(2) and capset(2) for this process."""

_libc = ctypes.CDLL(None, use_errno=True)


def release() -> tuple[int, int]:
    """The version of Linux, such as (6, 18)."""
    major, minor = re.findall(r"\d+", os.uname().release)[:2]
    return int(major), int(minor)


def syscall(name: str, number: int, *arguments: int | bytes | None) -> int:
    """Make a system call by number and return its result. Bytes are passed by their address. Raises OSError with the call's name."""
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *given), name)


def unshare(flags: int) -> None:
    """Move this process into new namespaces. A process namespace applies only to its later children. Raises OSError."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(
    source: str, target: Path, kind: str | None, flags: int, options: str | None = None
) -> None:
    """Mount a file system. Raises OSError."""
    given = os.fsencode(source), os.fsencode(target), kind and kind.encode(), ctypes.c_ulong(flags)
    _checked(_libc.mount(*given, options and options.encode()), f"mount on {target}")


def set_read_only(path: Path, read_only: bool, recursive: bool = False) -> None:
    """Make the mount at `path` read-only or writable. Raises OSError."""
    wanted, cleared = (_ATTR_READ_ONLY, 0) if read_only else (0, _ATTR_READ_ONLY)
    attributes = struct.pack("<4Q", wanted, cleared, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    given = _AT_FDCWD, os.fsencode(path), flags, attributes, len(attributes)
    syscall(f"mount_setattr on {path}", _MOUNT_SETATTR, *given)


def die_with_parent() -> None:
    """Have Linux kill this process when its parent ends. Raises OSError."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """From now on, become the parent of every descendant whose own parent ends. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def allow_tracing() -> None:
    """Let other processes of this user read this process's memory, where Yama allows that only to its ancestors.

    Programs in a sandbox cannot trace others. Does nothing on a machine without Yama.
    """
    with suppress(OSError):
        _prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY)


def forbid_new_privileges() -> None:
    """Set no_new_privs, which Landlock and seccomp require: executing a file grants no privileges any more. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def keep_capabilities() -> None:
    """Keep this process's capabilities in its namespaces when it executes a program. Raises OSError."""
    sets = ctypes.create_string_buffer(24)
    _checked(_libc.capget(_CAPABILITIES_VERSION_3, sets), "capget")
    words = list(struct.unpack("<6I", sets.raw))
    # Two groups (capabilities 0 to 31 and 32 to 63) of effective, permitted and inheritable sets.
    for effective in (0, 3):
        words[effective + 2] = words[effective + 1]
    kept = ctypes.create_string_buffer(struct.pack("<6I", *words), 24)
    _checked(_libc.capset(_CAPABILITIES_VERSION_3, kept), "capset")
    permitted = words[1] | words[4] << 32
    for capability in range(64):
        if permitted >> capability & 1:
            _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


def drop_capabilities() -> None:
    """Drop all capabilities of this process and its descendants. Raises OSError."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, *map(ctypes.c_ulong, (capability, 0, 0, 0))) != 0:
            # Past the last capability, or not permitted. Clearing the sets below is enough then.
            break
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _checked(_libc.capset(_CAPABILITIES_VERSION_3, ctypes.create_string_buffer(24)), "capset")


def _prctl(option: int, value: int, more: int = 0) -> None:
    _checked(_libc.prctl(option, *map(ctypes.c_ulong, (value, more, 0, 0))), f"prctl {option}")


def _checked(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
