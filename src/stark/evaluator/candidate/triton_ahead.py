"""Does Triton's once-per-process work before the fork, which saves each child about a second.

Triton hashes its own code for its cache keys, asks for its tools' versions, and compiles a C module
for the driver. That module is the same for every candidate, but each candidate would
compile it again, since it starts with an empty cache of its own. The first call of a kernel also
imports Gluon, and the first shape without data, as in a rehearsal (`rehearsal.py`), imports SymPy.
Importing this file does the work and uses no device. If a step fails with the installed version of
Triton, each child does that step itself.
"""

from __future__ import annotations

import importlib
import sysconfig
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from triton import knobs
from triton.backends.nvidia import driver
from triton.runtime import build


def build_driver_ahead() -> None:
    """Compile the driver's C module now, and make Triton reuse it instead of compiling it again."""
    source = (Path(driver.__file__).parent / "driver.c").read_text()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cuda_utils.c"
        path.write_text(source)
        given = driver.library_dirs(), driver.include_dirs, driver.libraries
        built = Path(compile_module("cuda_utils", str(path), folder, *given)).read_bytes()
    knobs.build.impl = prebuilt_hook(source, built)


def prebuilt_hook(source: str, built: bytes) -> Callable[..., str]:
    """A hook for Triton that returns the prebuilt module for this source and compiles every other source."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")

    def build_module(name: str, src: str, srcdir: str, *how: Any) -> str:
        if Path(src).read_text() != source:
            return compile_module(name, src, srcdir, *how)
        place = Path(srcdir) / f"{name}{suffix}"
        place.write_bytes(built)
        return str(place)

    return build_module


def compile_module(name: str, src: str, srcdir: str, *how: Any) -> str:
    """Compile a C module with Triton itself and return its path. Raises what Triton raises.

    `how` contains the library folders, header folders, libraries and, in newer Triton versions, flags. Triton's -O3 would
    take a tenth of a second longer for code that only passes arguments on.
    """
    how = (*how[:3], [*(how[3] if len(how) > 3 else ()), "-O1"])
    hook, knobs.build.impl = knobs.build.impl, None
    try:
        path: str = build._build(name, src, srcdir, *how)
    finally:
        knobs.build.impl = hook
    return path


for module, function in (  # which cache the hash of Triton's own code and the versions of its tools
    ("triton.runtime.cache", "triton_key"),
    ("triton.compiler.compiler", "triton_key"),
    ("triton.runtime.build", "platform_key"),
    ("triton.backends.nvidia.driver", "library_dirs"),
    ("triton.backends.nvidia.compiler", "get_ptxas"),
):
    with suppress(Exception):  # the installed Triton has no such function, or no driver
        getattr(importlib.import_module(module), function)()
with suppress(Exception):
    build_driver_ahead()
with suppress(Exception):
    torch.empty_like(torch.empty(1, device="meta"))
    importlib.import_module("triton.experimental.gluon.nvidia.hopper")
