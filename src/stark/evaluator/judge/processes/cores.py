"""The number of cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
GROUP = Path("/proc/self/cgroup")


def usable() -> int:
    """Cores of this process's affinity, or fewer if its control groups give it less processor time than those have."""
    return max(1, int(min([len(os.sched_getaffinity(0)), *_quotas()])))


def _quotas() -> Iterator[float]:
    """The cores' worth of processor time that each control group around this process has (version 2 of cgroups)."""
    with suppress(OSError):
        lines = GROUP.read_text().splitlines()
        path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::")), "")
        for group in (GROUPS / path, *(GROUPS / path).parents):
            with suppress(OSError, ValueError):  # the outermost group has no limit
                quota_us, period_us = (group / "cpu.max").read_text().split()
                yield float(quota_us) / float(period_us)
