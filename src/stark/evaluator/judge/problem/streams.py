"""Measures how fast a CPU's cores move bytes together, also while other programs want the cores.

Each core has a thread of its own. All threads move data in short rounds, which begin at the same moments, each after a
pause: Linux soon gives a core to a thread that has slept, for longer than a round. So in some rounds no other program
runs on these cores, and the fastest round counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle, pairwise
from threading import Barrier

import torch

from stark.evaluator.judge.processes.placing import one_thread

TOGETHER_BYTES = 1 << 20
"""Less is moved by one thread: several would mostly wait for Python."""

ROUND_S, PAUSE_S = 0.002, 0.004

LEAST_ROUNDS = 4

Pair = tuple[torch.Tensor, torch.Tensor]
Move = Callable[[torch.Tensor, torch.Tensor], object]

MOVES: tuple[Move, ...] = (
    lambda source, target: target.copy_(source),
    lambda source, target: torch.clamp(source, min=0, out=target),
)

Round = tuple[float, float, int]
"""When one thread began and ended one round, in seconds of the clock that all threads share, and the bytes it moved."""


def streamed_gb_s(moved_bytes: int, seconds: float, piece_bytes: int | None = None) -> float:
    """Measure the bandwidth, reads plus writes, of moving `moved_bytes` again and again for about `seconds`.

    A thread moves `piece_bytes` in one call, or all of its part of the data. The bandwidth may be too low on a busy
    machine, never too high.
    """
    threads = torch.get_num_threads() if moved_bytes >= TOGETHER_BYTES else 1
    cores = sorted(os.sched_getaffinity(0))[:threads]
    numbers = max(moved_bytes // 8 // len(cores), 1)  # float32, each read and written by one thread
    memory = [(torch.empty(numbers), torch.empty(numbers)) for _ in cores]
    begins: list[float] = []
    rounds = max(int(seconds / (ROUND_S + PAUSE_S)), LEAST_ROUNDS)
    ready = Barrier(len(cores), lambda: begins.extend(_begins(rounds)))

    def work(core: int, pair: Pair) -> list[Round]:
        torch.set_num_threads(1)
        with suppress(OSError):  # the core was taken away
            os.sched_setaffinity(0, {core})
        pieces = cycle(_pieces(pair, piece_bytes))
        ready.wait()
        return [_round(pieces, MOVES[k % len(MOVES)], begin) for k, begin in enumerate(begins)]

    with one_thread(), ThreadPoolExecutor(len(cores)) as pool:
        return max(map(_gb_s, zip(*pool.map(work, cores, memory), strict=True)))


def _begins(rounds: int) -> Iterator[float]:
    first_s = time.perf_counter() + PAUSE_S
    return (first_s + k * (ROUND_S + PAUSE_S) for k in range(rounds))


def _pieces(pair: Pair, piece_bytes: int | None) -> list[Pair]:
    """Fill the memory, and cut it into pieces of one size."""
    for tensor in pair:
        tensor.fill_(1)
    numbers = len(pair[0])
    size = min(numbers, piece_bytes // 8) if piece_bytes else numbers
    bounds = pairwise(range(0, numbers + 1, size))
    return [(pair[0][begin:end], pair[1][begin:end]) for begin, end in bounds]


def _round(pieces: Iterator[Pair], move: Move, begin_s: float) -> Round:
    time.sleep(max(begin_s - time.perf_counter(), 0))
    source, target = next(pieces)
    move(source, target)  # what caches hold is there from now on
    started_s, count = time.perf_counter(), 0
    while (now_s := time.perf_counter()) < started_s + ROUND_S:
        move(*next(pieces))
        count += 1
    return started_s, now_s, 2 * source.nbytes * count


def _gb_s(threads: tuple[Round, ...]) -> float:
    begins_s, ends_s, moved_bytes = zip(*threads, strict=True)
    return float(sum(moved_bytes) / (max(ends_s) - min(begins_s)) / 1e9)
