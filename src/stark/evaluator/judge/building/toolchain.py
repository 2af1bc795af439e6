"""Finds out what builds on this machine depend on."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import distributions
from pathlib import Path

from stark.core.base import digest
from stark.core.toolchain import Toolchain
from stark.evaluator.judge.processes import processor
from stark.languages import LANGUAGES


def toolchain_of(root: Path) -> Toolchain:
    """The toolchain of this machine, for builds in the folder `root`."""
    tools = {tool.name: tool.found() for lang in LANGUAGES.values() for tool in lang.tools}
    packages = ((each.metadata["Name"], each.metadata["Version"]) for each in distributions())
    versions = {
        **{f"package {name.lower()}": found for name, found in packages if name and found},
        **{name: found for name, found in tools.items() if found is not None},
        "the C library": " ".join(platform.libc_ver()),
        "Python": f"{platform.python_version()} in {sys.prefix}",
        "the folder of builds": str(root.resolve()),
    }
    return Toolchain(versions=versions, cpu=_cpu())


def _cpu() -> str:
    """The CPU's name and a digest of everything that compilers derive instructions and tuning from."""
    kind = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU part")
    return f"{processor.name()} ({digest(*map(processor.told, kind))})"
