"""Which files a program may read and which devices it may use, beside its own folder.

System folders, this Python with its packages, and the tools that the environment names. Nothing of the
user's home, of other candidates or of the judge is among them.
"""

from __future__ import annotations

import os
import pwd
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
"""Below /etc, where passwords and keys lie as well."""

DEVICES = "null zero full random urandom nvidia* nvidia-caps dri kfd dxg".split()

THREAD_NAMES = Path("/proc/self/task")
"""Where a program names its threads, which NVIDIA's driver insists on."""


def readable(environment: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """What a child with this environment, working in `folder`, needs to read."""
    yield from of_machine()
    home, own = _home(), folder.resolve()
    for path in _tools(environment):
        if not _would_show(path, home, own):
            yield path


@cache
def of_machine() -> tuple[Path, ...]:
    """The same for every child: system folders, this Python, its packages and STARK. Looked up once."""
    settings = (Path("/etc") / name for name in SETTINGS)
    python = map(Path, {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix})
    packages = [Path(__file__).parents[3], *(Path(entry) for entry in sys.path if entry)]
    shown = (path for path in packages if not _would_show(path, _home()))
    return (*map(Path, SYSTEM), *settings, *python, *shown)


def devices() -> Iterator[Path]:
    """Device files that are read and written; a driver makes its own when it is first asked."""
    for name in os.listdir("/dev"):  # noqa: PTH208  (a hundredth of the time of paths)
        if any(fnmatch(name, pattern) for pattern in DEVICES):
            yield Path("/dev") / name


def _tools(environment: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH"):
        entries = environment.get(variable, "").split(os.pathsep)
        yield from (Path(entry) for entry in entries if Path(entry).is_absolute())
    for variable in ("CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"):
        if environment.get(variable):
            yield Path(environment[variable])
    for variable in ("CC", "CXX", "CUDAHOSTCXX"):
        command = shlex.split(environment.get(variable, ""))
        if command and Path(command[0]).is_absolute():
            yield Path(command[0]).parent


def _would_show(path: Path, *hidden: Path | None) -> bool:
    """Whether one of these places lies in `path`, so that naming it would open them."""
    resolved = path.resolve()
    return any(place is not None and place.is_relative_to(resolved) for place in hidden)


@cache
def _home() -> Path | None:
    """The user's, whatever HOME says: here it names the candidate's own folder."""
    with suppress(KeyError):
        return Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
    return None
