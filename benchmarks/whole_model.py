"""Whole models: where their time goes, and their throughput with kernels put back.

    python benchmarks/whole_model.py regions llama --folder problems
    python benchmarks/whole_model.py times llama --kernels layer.py norm.py --json llama.json

`regions` prints the model's hot spots, writes the regions that `whole/models.py` names as problems, and says how long both
took. `times` runs the model in turns as it is, with the kernels, compiled by `torch.compile`, compiled with the kernels,
and with the kernels of a library where `whole/models.py` names one. It prints tokens or images per second with 95 %
intervals of the speedups.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from whole.models import MODELS, Whole

import stark
from stark.capturing.calls.repeating import unchanged
from stark.core.measurement import speedup
from stark.regions.clocks import clock_of, wall_s
from stark.regions.comparing import measurement
from stark.regions.workload import device_of, seeded

ROUNDS = 15
WARM_UPS = 3


@dataclass
class Row:
    """One way to run the model."""

    name: str
    per_second: float
    ms: float
    speedup: float
    low: float
    high: float
    reports: list[str]


def main() -> None:
    options = _options()
    whole = MODELS[options.model]
    torch.manual_seed(0)
    begin = time.monotonic()
    model, run = whole.made()
    print(f"{options.model}: made in {time.monotonic() - begin:.1f} s", flush=True)
    if options.work == "regions":
        regions(options.model, whole, model, options.folder, options.compile)
        return
    rows = times(whole, model, run, options.kernels, options.rounds)
    if options.json:
        found = {"model": options.model, "unit": whole.unit, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(found, indent=1))


def regions(name: str, whole: Whole, model: nn.Module, folder: Path, compile: int) -> None:
    """Print the hot spots and write the problems."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with stark.recording(model) as calls, torch.set_grad_enabled(whole.trains):
        whole.call(model)
    print(stark.hotspots(model, calls, compile=compile), flush=True)
    print(f"hot spots took {time.monotonic() - begin:.1f} s", flush=True)
    for path in whole.regions:
        begin = time.monotonic()
        try:
            problem = stark.capture(model.get_submodule(path), calls, backward=whole.trains)
        except stark.StarkError as error:
            print(f"{path}: {error}", flush=True)
            continue
        file = folder / f"{name}-{path.replace('.', '-')}.py"
        file.write_text(problem.source)
        print(f"{path}: {file} in {time.monotonic() - begin:.1f} s", flush=True)


def times(
    whole: Whole,
    model: nn.Module,
    run: Callable[[], object],
    kernels: list[Path],
    rounds: int,
) -> list[Row]:
    """Run all ways in turns; the first is the model as it is."""
    device = device_of(model)
    clock = clock_of(device)
    reports: dict[str, list[str]] = {}

    @contextmanager
    def applied(name: str) -> Iterator[None]:
        with ExitStack() as stack:
            bound = [stack.enter_context(stark.apply(model, kernel)) for kernel in kernels]
            yield
            # Only the first turn's: a graph is traced once.
            reports.setdefault(name, [str(each.report()) for each in bound])

    @contextmanager
    def compiled(name: str) -> Iterator[None]:
        model.compile()
        try:
            with applied(name) if "kernels" in name else nullcontext():
                yield
        finally:
            model._compiled_call_impl = None

    ways: dict[str, Callable[[str], AbstractContextManager[object]]] = {
        "as it is": lambda _: nullcontext(),
        "kernels": applied,
        "torch.compile": compiled,
        "torch.compile with kernels": compiled,
    }
    if whole.library is not None:
        ways[whole.library_name] = lambda _: whole.library(model)  # type: ignore[misc]
    samples: dict[str, list[float]] = {name: [] for name in ways}
    with unchanged(model, trains=model.training):
        for turn in range(rounds + 1):
            for name, way in list(ways.items()):
                try:
                    with way(name):
                        for _ in range(WARM_UPS if turn == 0 else 1):
                            with seeded(device):
                                run()
                        with seeded(device):
                            samples[name].append(wall_s(run, clock) * 1e3)
                except Exception as error:
                    print(f"{name}: left out: {type(error).__name__}: {str(error)[:300]}")
                    del ways[name], samples[name]
        for each in samples.values():
            del each[0]
    return [
        _row(name, whole, samples["as it is"], taken, reports.get(name, []))
        for name, taken in samples.items()
    ]


def _row(
    name: str, whole: Whole, base_ms: list[float], taken_ms: list[float], reports: list[str]
) -> Row:
    base, ours = measurement(base_ms), measurement(taken_ms)
    found = speedup("the model as it is", base, ours)
    row = Row(
        name,
        whole.count / ours.latency_ms * 1e3,
        ours.latency_ms,
        found.ratio,
        found.low,
        found.high,
        reports,
    )
    print(
        f"{name:28} {row.ms:9.3f} ms {row.per_second:12,.0f} {whole.unit}/s "
        f"{row.speedup:.3f} [{row.low:.3f}, {row.high:.3f}]",
        flush=True,
    )
    for report in reports:
        print("    " + report.replace("\n", "\n    "), flush=True)
    return row


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("regions", "times"))
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--folder", type=Path, default=Path("problems"))
    parser.add_argument("--compile", type=int, default=4)
    parser.add_argument("--kernels", type=Path, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
