"""`stark doctor --executor …`: what each judge says about its machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stark.cli import consoles
from stark.cli.doctor import DoctorDocument, Finding, table
from stark.cli.interrupt import run_interruptibly
from stark.core.device import Device
from stark.core.errors import JudgeUnavailable
from stark.core.toolchain import Toolchain
from stark.evaluator.candidate.sandbox.layers import gaps
from stark.evaluator.executors import open_judges
from stark.evaluator.protocol import Hello
from stark.languages.tools import CPP_COMPILER, NVCC


def examine_judges(executor: str, as_json: bool) -> int:
    """Start the judges and print what they say; returns 0 if all of them work and confine candidates entirely."""
    findings = list(_findings(run_interruptibly(_asked(executor))))
    ready = all(each.mark == "ok" for each in findings)
    if as_json:
        consoles.print_json(
            DoctorDocument(ready=ready, usable=(), models=(), findings=tuple(findings))
        )
    else:
        consoles.console().print(table(findings))
    return 0 if ready else JudgeUnavailable.exit_code


async def _asked(executor: str) -> Mapping[str, Hello | Toolchain | str]:
    judges = open_judges(executor)
    judges.on_notice = consoles.say
    try:
        return await judges.hellos()
    finally:
        await judges.close()


def _findings(hellos: Mapping[str, Hello | Toolchain | str]) -> Iterator[Finding]:
    for judge, said in hellos.items():
        if isinstance(said, str):
            yield Finding(judge, judge.partition(" ")[0], "broken", said)
            continue
        if isinstance(said, Toolchain):
            tools = (said.versions.get(tool.name) for tool in (CPP_COMPILER, NVCC))
            yield Finding(judge, "builder", "ok", ", ".join(filter(None, tools)))
            continue
        software = ", ".join(f"{name} {version}" for name, version in said.versions.items())
        yield Finding(judge, "device", "ok", _described(said.device))
        yield Finding(judge, "software", "ok", software)
        yield Finding(judge, "device class", "ok", said.device_class)
        active = [layer for layer, reason in said.sandbox.items() if reason is None]
        open_ = gaps(active)
        detail = f"candidates can {', '.join(open_)}" if open_ else "candidates are confined"
        yield Finding(judge, "sandbox", "broken" if open_ else "ok", detail)
        for layer, reason in said.sandbox.items():
            if reason is not None:
                yield Finding(judge, layer, "missing", reason)


def _described(device: Device) -> str:
    """The device and its measured limits."""
    peaks = [f"{kind} {rate:.3g} TFLOP/s" for kind, rate in device.peak_tflop_s.items()]
    size = f"{device.memory_gb:.0f} GB"
    return ", ".join(
        [device.name, device.architecture, size, f"{device.bandwidth_gb_s:.0f} GB/s", *peaks]
    )
