"""Nsight Compute: a short list of hardware counters for each kernel of one call."""

from __future__ import annotations

import csv
import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import torch

from stark.core.judging import Limits
from stark.core.profile import STALLS, KernelCounters
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.processes.output import printable
from stark.evaluator.judge.tools.running import Desk, NotRun, Ran, Target, found
from stark.languages import language
from stark.languages.tools import of_cuda

LIMIT_S = 120.0
"""Seconds that the tool may take."""

WARM = 2
"""Calls before the profiled one: the first compiles, a second may record a CUDA graph."""

MAX_LAUNCHES = 32
"""Kernel launches to profile. Each is replayed once for every few counters."""

MAX_KERNELS, MAX_NAME_CHARS = 4, 300
"""Maximum number of kernels to report, and maximum length of a kernel's name in characters."""

_PERCENT = "pct_of_peak_sustained_elapsed"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_BETWEEN = "smsp__average_warp_latency_per_inst_issued.ratio"
_TIME, _READ, _WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_SHARES = {
    "dram": f"dram__throughput.avg.{_PERCENT}",
    "issue": f"sm__throughput.avg.{_PERCENT}",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1_hits": "l1tex__t_sector_hit_rate.pct",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "loads_used": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "stores_used": "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
}

Row = dict[str, float]


class Counters:
    """Nsight Compute for the candidates of one problem. Its process is started ahead, while other work goes on."""

    def __init__(self, server: Forkserver, device: torch.device) -> None:
        self._server, self._device = server, device
        self._desk: Desk | None = None
        self._lock = threading.Lock()

    def start(self, written_in: str, limits: Limits) -> None:
        """Start the next process, unless it has been started. Does nothing on a machine without the tool.

        It imports what candidates in the language `written_in` import, and serves candidates in all languages.
        """
        with self._lock:
            if self._desk is None and self._device.type == "cuda" and of_cuda("ncu") is not None:
                self._desk = self._started(written_in, limits)

    def await_imports(self) -> None:
        """Wait until a process that was started only waits: then it disturbs no program that is timed."""
        desk = self._desk  # only the thread whose turn it is closes it, and that one is here
        if desk is not None:
            desk.await_imports()

    def of(self, target: Target) -> tuple[KernelCounters, ...]:
        """Counters of the kernels that take most time in one call, the longest first. Raises NotRun."""
        with self._lock:
            desk, self._desk = self._desk, None
        with closing(desk or self._started(target.language, target.limits)) as used:
            # Nsight Compute has a kernel's counters before the kernel's launch returns.
            ran = used.run(target, WARM, LIMIT_S, abrupt=True)
        self.start(target.language, target.limits)  # only now: it would slow this one down
        return counters_in(ran)

    def _started(self, written_in: str, limits: Limits) -> Desk:
        modules = language(written_in).preload
        return Desk(command, self._server, self._device, limits, modules=modules)


def counters_in(ran: Ran) -> tuple[KernelCounters, ...]:
    """The counters in Nsight Compute's output. Raises NotRun if there are none."""
    if "ERR_NVGPUCTRPERM" in ran.log + ran.printed:
        raise NotRun(
            "this user has no permission to read the GPU's performance counters; as root, put "
            "`options nvidia NVreg_RestrictProfilingToAdminUsers=0` into a file in "
            "/etc/modprobe.d and reload the driver"
        )
    kernels: dict[str, list[Row]] = defaultdict(list)
    try:
        for name, row in _rows(ran.log):
            kernels[name].append(row)
    except csv.Error as error:
        raise NotRun(f"its CSV output cannot be parsed: {error}") from error
    total_ns = sum(row[_TIME] for rows in kernels.values() for row in rows)
    if not total_ns:
        raise NotRun(ran.why())
    found = (_kernel(name, rows, total_ns) for name, rows in kernels.items())
    return tuple(sorted(found, key=lambda kernel: -kernel.time_ms)[:MAX_KERNELS])


def command(log: Path) -> Sequence[str]:
    """Nsight Compute's command line, without the program. Raises NotRun."""
    stalls = (_STALL.format(name) for name in STALLS)
    metrics = [_TIME, _READ, _WRITTEN, _CONFLICTS, _SHARED, _BETWEEN, *_SHARES.values(), *stalls]
    return [
        found("ncu"),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *("--metrics", ",".join(metrics)),
        *("--config-file", "off"),  # a configuration file may name code to load
        *("--profile-from-start", "off"),
        *("--launch-count", str(MAX_LAUNCHES)),
        *("--clock-control", "none"),  # leave the machine's clocks as they are
        *("--target-processes", "application-only"),
    ]


def _rows(log: str) -> Iterator[tuple[str, Row]]:
    """For each launch, the kernel's name and the counters. Skips the line of units in the table."""
    lines = log.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    for values in csv.DictReader(lines[begin:]):
        numbers = {name: _number(value) for name, value in values.items()}
        row = {name: number for name, number in numbers.items() if number is not None}
        if row.get(_TIME):
            name = " ".join(printable(values.get("Kernel Name") or "").split())
            yield name[:MAX_NAME_CHARS], row


def _number(text: object) -> float | None:
    try:
        number = float(str(text).replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _kernel(name: str, rows: list[Row], total_ns: float) -> KernelCounters:
    longest = max(rows, key=lambda row: row[_TIME])
    time_ns = sum(row[_TIME] for row in rows)
    moved = [row[_READ] + row[_WRITTEN] for row in rows if _READ in row and _WRITTEN in row]
    conflicts, accesses = longest.get(_CONFLICTS), longest.get(_SHARED)
    between = longest.get(_BETWEEN)
    percent = {field: longest.get(metric) for field, metric in _SHARES.items()}
    return KernelCounters(
        name=name,
        time_ms=time_ns / 1e6,
        share=time_ns / total_ns,
        dram_bytes=sum(moved) if moved else None,
        bank_conflicts=conflicts / accesses if conflicts is not None and accesses else None,
        stalls={
            stall: min(waited / between, 1.0)
            for stall in STALLS
            if between and (waited := longest.get(_STALL.format(stall))) is not None
        },
        **{field: min(value / 100, 1.0) for field, value in percent.items() if value is not None},
    )
