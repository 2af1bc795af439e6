"""How far measured times and ratios can be trusted: the judge on identical programs, and beside the usual methods.

    python benchmarks/measuring.py --device cpu --minutes 40                       # writes docs/measuring/cpu.*
    python benchmarks/measuring.py --device cuda:0 --name h200 --kernelbench PATH --minutes 9 --into FOLDER --document none
    python benchmarks/measuring.py --parts none --name h200                        # draws docs/measuring/h200.json again

`identical`: the judge times a program against itself, again and again at each size; a win is an interval above 1, and there
should be none. `methods`: the same programs by `triton.testing.do_bench`, KernelBench's `cuda_event` (with --kernelbench)
and ours, with a quiet device and with a neighbour that uses it in bursts; on a CPU by `torch.utils.benchmark`, the
mean of 100 calls and ours. Each part takes half of the minutes, or less when its repeats are done.

Writes NAME.json after every row, then NAME-*.csv, NAME-*.svg, and the tables between the marks of the document. With
`--more` it adds to the rows that NAME.json has of the same machine. Sizes are powers of two of float32 elements; `28x8` goes over 2^28 eight times.
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
from stark.testing.candidates import PROBLEM

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Measure, then draw."""
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
    """How to measure the same elsewhere: the command without this machine's own paths."""
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
                f"{findings.path} is of {findings.machine}; here is {machine}: leave out --more"
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
    """The device and the versions as the judge found them, in a line."""
    found = await executor.describe(PROBLEM)
    name = _processor() if device == "cpu" else found.device.name
    versions = [f"{key} {value}" for key, value in found.versions.items() if key != "driver"]
    return f"{name}, {os.cpu_count()} cores, {', '.join(versions)}"


def _processor() -> str:
    """The CPU's own name where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def draw(findings: Findings, document: Path | None) -> None:
    """Tables to the terminal, and with the pictures to where they belong."""
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
    parser.add_argument("--name", default="", help="of the files (default: cpu, or cuda)")
    parser.add_argument(
        "--parts", type=lambda text: text.split(","), default=["identical", "methods"]
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="for all parts together")
    parser.add_argument("--sizes", type=sizes, help="for `identical`, such as 14,22,24x7")
    parser.add_argument("--repeats", type=int, default=60, help="of each size, at most")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="the judge's budget for a window"
    )
    parser.add_argument("--compared", type=sizes, help="sizes for `methods`")
    parser.add_argument("--runs", type=int, default=10, help="of each method, at most")
    parser.add_argument("--kernelbench", type=Path, help="a checkout, for its cuda_event")
    parser.add_argument("--into", type=Path, default=DOCS / "measuring")
    parser.add_argument("--document", default=str(DOCS / "measuring.md"), help="or none")
    parser.add_argument("--more", action="store_true", help="add to what NAME.json has")
    options = parser.parse_args()
    kind = "cpu" if options.device == "cpu" else "cuda"
    options.name = options.name or kind
    options.sizes = options.sizes or sizes(SIZES[kind])
    options.compared = options.compared or sizes(COMPARED[kind])
    options.document = None if options.document == "none" else Path(options.document)
    return options


if __name__ == "__main__":
    main()
