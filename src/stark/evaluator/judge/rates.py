"""Keeps the highest rates that judges have measured on a kind of device, and how many judges have reached each.

Other programs slow a measurement down and never speed it up. So the highest rate counts, once several judges have reached
it: what one judge measures beside other programs may be half of it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import torch
from pydantic import Field

from stark.core.base import Frozen, digest
from stark.core.device import MEMORY, NEAR, Device
from stark.evaluator.judge.problem.peaks import measure_device
from stark.evaluator.judge.processes import processor

ENOUGH = 3
"""A rate is confirmed once so many judges have reached it."""

REACHED = 0.9
"""A judge that measures this share of a rate has reached it. One that measures more than the rate by `NEAR` refutes it."""

PATIENT = 10
"""So many judges take long to measure, unless all rates are confirmed before."""

VALID_S = 7 * 24 * 3600
"""A rate that no judge has reached for so long is forgotten: clocks, and a virtual machine's share of its host, change."""

QUIET = 0.2
"""Most load per core of a machine that is quiet."""


class Rate(Frozen):
    """A rate in GB/s or TFLOP/s."""

    highest: float = Field(0.0, ge=0, allow_inf_nan=False)
    judges: int = 0
    """How many have reached it."""

    reached_s: float = 0.0
    """When one reached it last, in seconds since 1970."""

    def after(self, measured: float, judges: int, now_s: float) -> Rate:
        """The rate after another measurement, which counts as that of so many judges."""
        is_valid = now_s - self.reached_s <= VALID_S
        if is_valid and measured < REACHED * self.highest:
            return self
        if is_valid and measured <= (1 + NEAR) * self.highest:
            measured, judges = max(measured, self.highest), judges + self.judges
        return Rate(highest=measured, judges=judges, reached_s=now_s)


class Rates(Frozen):
    """The rates of one kind of device by name, as in `Device.unconfirmed`."""

    judges: int = 0
    """How many have measured."""

    by_name: dict[str, Rate] = Field(default_factory=dict)

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """The names of the rates that too few judges have reached."""
        return tuple(name for name, rate in self.by_name.items() if rate.judges < ENOUGH)

    @property
    def are_doubtful(self) -> bool:
        """Whether it is worth while to measure long."""
        return self.judges == 0 or (self.judges < PATIENT and bool(self.unconfirmed))

    def after(self, found: Device, judges: int, now_s: float) -> Rates:
        """The rates after another judge's measurements."""
        measured = {MEMORY: found.bandwidth_gb_s, **found.peak_tflop_s}
        measured |= {str(size): gb_s for size, gb_s in found.bandwidths_gb_s.items()}
        by_name = {
            name: self.by_name.get(name, Rate()).after(rate, judges, now_s)
            for name, rate in measured.items()
        }
        return Rates(judges=self.judges + 1, by_name=by_name)

    def of(self, found: Device) -> Device:
        """The device with these rates."""
        highest = {name: rate.highest for name, rate in self.by_name.items()}
        return found.model_copy(
            update={
                "bandwidth_gb_s": highest[MEMORY],
                "bandwidths_gb_s": {size: highest[str(size)] for size in found.bandwidths_gb_s},
                "peak_tflop_s": {kind: highest[kind] for kind in found.peak_tflop_s},
                "unconfirmed": self.unconfirmed,
            }
        )


def measured(device: torch.device, cache: Path) -> Device:
    """Measure the device, and return it with the highest rates that judges with this folder of caches have measured."""
    path = cache / "devices" / f"{_kind(device)}.json"
    weight = _weight(device)
    found = measure_device(device, long=_read(path).are_doubtful)
    rates = _read(path).after(found, weight, time.time())
    with suppress(OSError):  # then later judges do not know
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(rates.model_dump_json())
        part.replace(path)
    return rates.of(found)


def _read(path: Path) -> Rates:
    try:
        return Rates.model_validate_json(path.read_text())
    except (OSError, ValueError):  # no judge before, or a file of another version
        return Rates()


def _kind(device: torch.device) -> str:
    """Names the devices that have the same rates."""
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        return digest(found.name, str(found.multi_processor_count), torch.__version__)
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    return digest(processor.name(), str(cores), str(threads), torch.__version__)


def _weight(device: torch.device) -> int:
    """As those of how many judges the measurements of this one count.

    Enough on a GPU, which this judge has locked, and on a quiet machine without neighbours. None where other programs can
    move data all the time, because the judge uses only some cores of a busy machine.
    """
    cores = os.cpu_count() or 1
    quiet = os.getloadavg()[0] < QUIET * cores
    if device.type == "cuda" or (quiet and not processor.is_virtual()):
        return ENOUGH
    return int(quiet or torch.get_num_threads() >= cores)
