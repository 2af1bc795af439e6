"""Finds the device that a judge serves, measures it, and says whether it still works."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from stark.core.device import Device
from stark.evaluator.judge import rates
from stark.evaluator.judge.problem.peaks import synchronize
from stark.evaluator.judge.processes import processor
from stark.languages import LANGUAGES, ready_for


@dataclass(frozen=True)
class Machine:
    """A device and the software that uses it."""

    device: torch.device
    sheet: Device
    versions: dict[str, str]


def find(name: str) -> tuple[torch.device, str]:
    """The device with this name, and a name of it that no other has, also where hosts share a cache folder.

    `auto` stands for the first GPU, or the CPU if there is no GPU. Exits with a sentence if there is no such device.
    """
    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return torch.device("cpu"), f"cpu-{platform.node()}"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        found = f"PyTorch finds {count} GPUs" if count else "PyTorch finds no GPU"
        sys.exit(
            f"{name} does not exist: {found}; choose a device that exists, such as --device cpu, "
            "or run `stark doctor` to see what this machine lacks"
        )
    device = torch.device("cuda", int(index or 0))
    return device, str(torch.cuda.get_device_properties(device).uuid)


def measure(device: torch.device, cache: Path) -> Machine:
    """Measure the device. The caller must hold the device lock. `cache` is the folder of caches."""
    use(device)
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        versions["cuda"] = torch.version.cuda or "none"
        versions["driver"] = _driver_version()
        versions["host CPU"] = processor.name()
    tools = dict.fromkeys(tool for language in LANGUAGES.values() for tool in language.tools)
    found_tools = dict.fromkeys(filter(None, (tool.found() for tool in tools)))
    versions["compilers"] = ", ".join(found_tools)
    versions["languages"] = ", ".join(ready_for("cuda" if device.type == "cuda" else "cpu"))
    return Machine(device, rates.measured(device, cache), versions)


def use(device: torch.device) -> None:
    """Make a GPU's context current in this thread, because direct driver calls need a current context."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # Setting a device that is already set makes no context current; synchronizing does.
        torch.cuda.synchronize(device)


def works(device: torch.device) -> bool:
    """Whether this process can still use the device: it cannot after a failed assertion in a GPU kernel."""
    if device.type == "cuda" and not torch.cuda.is_initialized():
        return True
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True


def _driver_version() -> str:
    path = Path("/proc/driver/nvidia/version")
    words = path.read_text().split() if path.exists() else []
    return next((word for word in words if word.count(".") == 2 and word[0].isdigit()), "unknown")
