"""Measures how long `stark --help` takes, and checks that the package imports no torch.

    python benchmarks/startup.py

Exits with 1 if the median is half a second or more, or torch was imported.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

LIMIT_S = 0.5
RUNS = 9
IMPORTED = "stark.api, stark.loop, stark.strategies, stark.recorded, stark.cli.app"


def main() -> int:
    """Measure and print."""
    stark = Path(sys.executable).with_name("stark")
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        subprocess.run([stark, "--help"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begin)
    probe = f"import sys, {IMPORTED}; print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    torch_imported = found.stdout.strip() == "True"
    print(f"stark --help: median {median(times):.3f} s of {RUNS} runs (limit {LIMIT_S} s)")
    print(f"torch imported: {'yes' if torch_imported else 'no'}")
    return int(median(times) >= LIMIT_S or torch_imported)


if __name__ == "__main__":
    sys.exit(main())
