"""What Triton does once in every process, done ahead: importing it before forking spares each child about a second.

It hashes its own code, which goes into the keys of its cache; it asks for the tools' versions; and it compiles its
C module for the driver, which is the same for every candidate but would be missing in each one's own cache. Knows no
candidate, and touches no device. A part that this version of Triton does not have is left for the child to do.
"""

from __future__ import annotations

import importlib
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from triton import knobs
from triton.backends.nvidia import driver
from triton.runtime import build

NOT_AHEAD = (
    AttributeError,
    AssertionError,
    ImportError,
    OSError,
    RuntimeError,
    TypeError,
    subprocess.SubprocessError,
)
"""What a part raises that is not there, or not as it is known here: no driver on this machine, above all."""


def hash_compiler() -> None:
    """Have it remember the hash of its own code, and the versions of what it calls."""
    for module, function in (
        ("triton.runtime.cache", "triton_key"),
        ("triton.compiler.compiler", "triton_key"),
        ("triton.runtime.build", "platform_key"),
        ("triton.backends.nvidia.driver", "library_dirs"),
        ("triton.backends.nvidia.compiler", "get_ptxas"),
    ):
        with suppress(*NOT_AHEAD):
            getattr(importlib.import_module(module), function)()


def build_driver_ahead() -> None:
    """Compile the module for the driver now, and hand it out whenever it is to be compiled."""
    source = (Path(driver.__file__).parent / "driver.c").read_text()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cuda_utils.c"
        path.write_text(source)
        given = driver.library_dirs(), driver.include_dirs, driver.libraries
        built = Path(compiled("cuda_utils", str(path), folder, *given)).read_bytes()
    knobs.build.impl = handing_out(source, built)


def handing_out(source: str, built: bytes) -> Callable[..., str]:
    """Triton's hook for building C modules: this source is built already, every other is compiled as ever."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")

    def build_module(name: str, src: str, srcdir: str, *how: Any) -> str:
        if Path(src).read_text() != source:
            return compiled(name, src, srcdir, *how)
        place = Path(srcdir) / f"{name}{suffix}"
        place.write_bytes(built)
        return str(place)

    return build_module


def compiled(name: str, src: str, srcdir: str, *how: Any) -> str:
    """A C module compiled by Triton itself; returns its path. Raises what Triton raises.

    `how` are lists of folders of libraries and of headers, of libraries and, in versions that give them to a hook, flags.
    """
    if len(how) == 3:
        how = (*how, [])
    hook, knobs.build.impl = knobs.build.impl, None
    try:
        path: str = build._build(name, src, srcdir, *how)
    finally:
        knobs.build.impl = hook
    return path


hash_compiler()
with suppress(*NOT_AHEAD):
    build_driver_ahead()
