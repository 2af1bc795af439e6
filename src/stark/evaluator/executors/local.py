"""An executor with one judge per device of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stark.core.judging import Limits, Tools
from stark.evaluator.executors.stdio import StdioExecutor


def local(devices: str, limits: Limits, tools: Tools | None = None) -> StdioExecutor:
    """Create an executor for `devices`, a list such as `cpu` or `cuda:0,cuda:1`.

    If `devices` is empty, every visible GPU gets a judge. With fewer than two GPUs, one judge chooses its device.
    """
    names = [name.strip() for name in devices.split(",") if name.strip()] or _all_devices()
    base = [sys.executable, "-m", "stark.evaluator.judge", "--device"]
    return StdioExecutor([[*base, name] for name in names], limits, tools)


def _all_devices() -> list[str]:
    """Every visible GPU if there are several; otherwise `auto`, so that the judge chooses."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        count = len([index for index in chosen.split(",") if index.strip()])
    else:
        count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return [f"cuda:{index}" for index in range(count)] if count > 1 else ["auto"]
