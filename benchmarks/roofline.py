"""Measures how much the roofline of a problem varies between judges, while other programs take cores or memory.

    python benchmarks/roofline.py [--load none|cores|memory] [--judges 10] [--own-caches] [--problem FILE]

Each judge is a `stark problem`. The load is one process per core, each working and pausing at random: on little data, or
on more than caches hold. Judges share a folder of caches that is empty at first, or with --own-caches have one each.
Exits with 1 if the known rooflines vary by 10 % or more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time

import numpy as np

from stark.core.reference import Reference

NUMBERS = {"cores": 1 << 11, "memory": 1 << 24}
"""How many float64 numbers one process of the load reads, and writes."""

WORKS_S, PAUSES_S = 4.0, 0.5
"""The longest that a process of the load works, and pauses."""

LIMIT = 0.1


def burden(kind: str, seed: int) -> None:
    """Work and pause at random, until the benchmark has ended."""
    draw = random.Random(seed)
    source = np.ones(NUMBERS[kind])
    target = np.ones_like(source)
    benchmark = multiprocessing.parent_process()
    while benchmark is not None and benchmark.is_alive():
        end_s = time.monotonic() + draw.uniform(0, WORKS_S)
        while time.monotonic() < end_s:
            np.add(source, 1.0, out=target)
        time.sleep(draw.uniform(0, PAUSES_S))


def described(problem: str, cache: str) -> Reference:
    """The problem's reference, as a fresh judge measures it."""
    command = [sys.executable, "-m", "stark", "problem", problem, "--json"]
    environment = os.environ | {"STARK_CACHE": cache}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return Reference.model_validate(json.loads(done.stdout)["reference"])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", choices=["none", *NUMBERS], default="memory")
    parser.add_argument("--judges", type=int, default=10)
    parser.add_argument("--own-caches", action="store_true")
    parser.add_argument("--problem", default="examples/gated_causal_conv.py")
    asked = parser.parse_args()
    cores = 0 if asked.load == "none" else len(os.sched_getaffinity(0))
    loads = [
        multiprocessing.Process(target=burden, args=(asked.load, seed), daemon=True)
        for seed in range(cores)
    ]
    for each in loads:
        each.start()
    known = []
    with tempfile.TemporaryDirectory() as caches:
        for judge in range(asked.judges):
            cache = f"{caches}/{judge if asked.own_caches else 0}"
            found = described(asked.problem, cache)
            roof, eager_ms = found.roofline, found.eager.latency_ms
            says = "known" if roof.is_known(eager_ms) else "unknown"
            estimate = f"{roof.floor_ms:.4g} ms, {roof.bound}-bound, {says}"
            load = os.getloadavg()[0]
            print(f"{judge + 1}: {estimate}; eager {eager_ms:.4g} ms; load {load:.1f}", flush=True)
            if says == "known":
                known.append(roof.floor_ms)
    for each in loads:
        each.terminate()
    spread = max(known) / min(known) - 1 if known else 0.0
    print(f"{len(known)} of {asked.judges} known, within {spread:.1%}")
    return int(spread >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
