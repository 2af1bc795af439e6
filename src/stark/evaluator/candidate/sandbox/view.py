"""The files that a program may read and the devices that it may use, besides its own folder.

These are system folders, this Python with its packages, and the tools that the environment names.
They do not include the user's home, other candidates' files or the judge's files.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

SYSTEM = (
    "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /nix/store /run/opengl-driver /sys /proc "
    "/var/lib/nvidia"
).split()

SETTINGS = (
    "ld.so.cache ld.so.conf ld.so.conf.d ld.so.preload alternatives localtime timezone passwd group "
    "nsswitch.conf hosts host.conf mime.types os-release lsb-release debian_version terminfo ssl/openssl.cnf "
    "pki/tls/openssl.cnf crypto-policies OpenCL nvidia nvidia-container-runtime"
).split()
"""The entries of /etc that a program may read. Some of the other entries contain passwords or keys."""

PRIVATE = ("pip.conf",)
"""Entries of a Python environment that a program may not read: an address in them may contain a password."""

DEVICES = "null zero full random urandom nvidia* nvidia-caps dri kfd dxg".split()
"""Names and name patterns of the files in /dev that a program may use."""

GPUS = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver describes the machine's GPUs."""

THREAD_NAMES = Path("/proc/self/task")
"""Folder of the files that set thread names. NVIDIA's driver has to write them."""


def readable(environment: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """What a child with this environment, working in `folder`, may read."""
    yield from of_machine()
    hidden = _home(), folder.resolve()
    yield from (path for path in _tools(environment) if not _would_reveal(path, *hidden))


@cache
def of_machine() -> tuple[Path, ...]:
    """What every child may read: system folders, this Python, its packages and STARK. Cached."""
    settings = (Path("/etc") / name for name in SETTINGS)
    prefixes = map(Path, {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix})
    python = (path for prefix in prefixes for path in _entries(prefix))
    packages = [Path(__file__).parents[3], *(Path(entry) for entry in sys.path if entry)]
    shown = (path for path in packages if not _would_reveal(path, _home()))
    return (*map(Path, SYSTEM), *settings, *python, *shown)


def devices(environment: Mapping[str, str]) -> Iterator[Path]:
    """Device files that may be read and written. A driver may create some of them only on first use.

    Of several GPUs, only the one is among them that this environment shows by its UUID.
    """
    own = gpus().get(environment.get("CUDA_VISIBLE_DEVICES", ""))
    others = set(gpus().values()) - {own} if own is not None else set()
    for name in os.listdir("/dev"):  # noqa: PTH208  (a hundred times faster than Path.iterdir)
        if any(fnmatch(name, pattern) for pattern in DEVICES) and name not in others:
            yield Path("/dev") / name


@cache
def gpus() -> dict[str, str]:
    """The name in /dev of each of NVIDIA's GPUs by its UUID, as far as the driver tells. Cached."""
    found = {}
    for told in GPUS.glob("*/information"):
        fields = dict(
            re.findall(r"^(GPU UUID|Device Minor):\s*(\S+)", told.read_text(), re.MULTILINE)
        )
        if len(fields) == 2:
            found[fields["GPU UUID"]] = f"nvidia{fields['Device Minor']}"
    return found


def _tools(environment: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH"):
        entries = environment.get(variable, "").split(os.pathsep)
        yield from (Path(entry) for entry in entries if Path(entry).is_absolute())
    for variable in ("CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"):
        if environment.get(variable):
            yield from _entries(Path(environment[variable]))
    for variable in ("CC", "CXX", "CUDAHOSTCXX"):
        command = shlex.split(environment.get(variable, ""))
        if command and Path(command[0]).is_absolute():
            yield Path(command[0]).parent


def _entries(folder: Path) -> Iterator[Path]:
    """What lies in a folder, without what is private."""
    with suppress(OSError):
        yield from (path for path in folder.iterdir() if path.name not in PRIVATE)


def _would_reveal(path: Path, *hidden: Path | None) -> bool:
    """Whether a hidden place lies at or below `path`, so that access to `path` would reveal it."""
    resolved = path.resolve()
    return any(place is not None and place.is_relative_to(resolved) for place in hidden)


@cache
def _home() -> Path | None:
    """The user's home according to the password database, because HOME may name the candidate's folder."""
    with suppress(KeyError):
        return Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
    return None
