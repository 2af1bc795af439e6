"""Measures how far times and ratios can be trusted: the judge on identical programs, and compared with usual methods.

    python benchmarks/measuring.py --device cpu --minutes 40                       # writes docs/notes/measuring/cpu.*
    python benchmarks/measuring.py --device cuda:0 --name h200 --kernelbench PATH --minutes 9 --into FOLDER --document none
    python benchmarks/measuring.py --parts none --name h200                        # redraws docs/notes/measuring/h200.json

`identical`: the judge times a program against itself repeatedly at each size. A win is an interval above 1, and none is
expected. `methods`: times the same programs with `triton.testing.do_bench`, KernelBench's `cuda_event` (with
--kernelbench) and the judge, on a quiet device and beside a process that uses the device in bursts. On a CPU the
methods are `torch.utils.benchmark`, the mean of 100 calls and the judge. Each part takes at most half of the minutes.

Writes NAME.json after every row, then NAME-*.csv, NAME-*.svg, and the tables between the marks of the document.
`--more` adds to the rows of the same machine in NAME.json. Sizes are powers of two of float32 elements: `28x8` computes
the ReLU of 2^28 elements eight times, and `cat24` joins two tensors of 2^24.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import platform
import shlex
import sys
import time
from pathlib import Path

from clocks import alike, methods, pictures, tables
from clocks.findings import Findings, read
from clocks.programs import COMPARED, SIZES, sizes

from stark.core.judging import Limits
from stark.evaluator.executors import Executor, open_executor
from support.candidates import PROBLEM

DOCS = Path(__file__).parents[1] / "docs" / "notes"


def main() -> None:
    """Measure, then write tables and pictures."""
    options = _options()
    options.into.mkdir(parents=True, exist_ok=True)
    path = options.into / f"{options.name}.json"
    parts = [] if options.parts == ["none"] else options.parts
    if parts:
        findings = read(path) if options.more and path.exists() else Findings(path)
        try:
            asyncio.run(_measure(options, parts, findings))
        finally:
            draw(findings, options.document)
    else:
        draw(read(path), options.document)


def command(arguments: list[str]) -> str:
    """The command that repeats the measurement, without this machine's paths."""
    parts = [
        half for part in arguments for half in (part.split("=", 1) if part[:2] == "--" else [part])
    ]
    for option in ("--into", "--document"):
        while option in parts:
            at = parts.index(option)
            del parts[at : at + 2]
    if "--kernelbench" in parts:
        parts[parts.index("--kernelbench") + 1] = "KernelBench"
    return shlex.join(["python", "benchmarks/measuring.py", *parts])


async def _measure(options: argparse.Namespace, parts: list[str], findings: Findings) -> None:
    executor = open_executor(f"local:{options.device}", Limits(timing_budget_s=options.seconds))
    part_s = 60 * options.minutes / len(parts)
    try:
        machine = await _machine(executor, options.device)
        if findings.machine not in ("", machine):
            sys.exit(
                f"{findings.path} was measured on {findings.machine}, not on {machine}; omit --more"
            )
        findings.machine = machine
        findings.command = "; ".join(filter(None, [findings.command, command(sys.argv[1:])]))
        findings.date = datetime.date.today().isoformat()
        print(findings.machine, flush=True)
        if "identical" in parts:
            await alike.measure(
                executor,
                options.device,
                options.sizes,
                options.repeats,
                options.effort,
                time.monotonic() + part_s,
                findings,
            )
        if "methods" in parts:
            await methods.measure(
                executor,
                options.device,
                options.compared,
                options.runs,
                time.monotonic() + part_s,
                findings,
                options.kernelbench,
            )
    finally:
        await executor.close()


async def _machine(executor: Executor, device: str) -> str:
    """The device and the versions that the judge reports, as one line."""
    found = await executor.describe(PROBLEM)
    name = _processor() if device == "cpu" else found.device.name
    versions = [f"{key} {value}" for key, value in found.versions.items() if key != "driver"]
    return f"{name}, {os.cpu_count()} cores, {', '.join(versions)}"


def _processor() -> str:
    """The name of the CPU, or its architecture if the system does not report it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def draw(findings: Findings, document: Path | None) -> None:
    """Print the tables, and write them and the pictures to their files."""
    findings.write_csv()
    for name, picture in pictures.pictures(findings).items():
        findings.path.with_name(name).write_text(picture)
    for part, rows, table in (
        ("identical", findings.alike, tables.identical),
        ("methods", findings.compared, tables.methods),
    ):
        if not rows:
            continue
        text = table(findings)
        print(f"\n{text}")
        if document is not None:
            name = f"{findings.path.stem} {part}"
            document.write_text(tables.placed(document.read_text(), name, text))
    for failure in dict.fromkeys(findings.failures):
        print(f"failed: {failure}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", default="", help="name of the files (default: cpu or cuda)")
    parser.add_argument(
        "--parts", type=lambda text: text.split(","), default=["identical", "methods"]
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="for all parts together")
    parser.add_argument("--sizes", type=sizes, help="for `identical`, such as 14,22,24x7,cat22")
    parser.add_argument("--repeats", type=int, default=60, help="windows per size, at most")
    parser.add_argument("--effort", choices=["search", "promote"], default="search")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="the judge's timing budget per window"
    )
    parser.add_argument("--compared", type=sizes, help="sizes for `methods`")
    parser.add_argument("--runs", type=int, default=10, help="runs per method, at most")
    parser.add_argument("--kernelbench", type=Path, help="a checkout, for its cuda_event")
    parser.add_argument("--into", type=Path, default=DOCS / "measuring")
    parser.add_argument(
        "--document", default=str(DOCS / "measuring.md"), help="document for the tables, or none"
    )
    parser.add_argument("--more", action="store_true", help="add to the rows in NAME.json")
    options = parser.parse_args()
    kind = "cpu" if options.device == "cpu" else "cuda"
    options.name = options.name or kind
    options.sizes = options.sizes or sizes(SIZES[kind])
    options.compared = options.compared or sizes(COMPARED[kind])
    options.document = None if options.document == "none" else Path(options.document)
    return options


if __name__ == "__main__":
    main()
