"""Uses a device in bursts until it is killed: `neighbour.py cuda:0`. Prints `at work` once it runs.

Bursts and pauses take 50 to 500 ms each, at random with a fixed seed. On a CPU it uses one thread.
"""

from __future__ import annotations

import random
import sys
import time

import torch


def main() -> None:
    """Work until killed."""
    device = torch.device(sys.argv[1])
    torch.set_num_threads(1)
    chance = random.Random(0)
    side = 512 if device.type == "cpu" else 4096
    matrix = torch.ones(side, side, device=device)
    work(matrix)
    print("at work", flush=True)
    while True:
        end = time.monotonic() + chance.uniform(0.05, 0.5)
        while time.monotonic() < end:
            work(matrix)
        time.sleep(chance.uniform(0.05, 0.5))


def work(matrix: torch.Tensor) -> None:
    """Compute a matrix product and wait for it."""
    float((matrix @ matrix)[0, 0])


if __name__ == "__main__":
    main()
