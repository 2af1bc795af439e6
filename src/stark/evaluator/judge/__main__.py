"""Starts a judge: `python -m stark.evaluator.judge --device cuda:0`.

The judge reads requests from standard input and writes answers to standard output. To run the judge
on another machine, use any command that forwards these two streams, such as ssh, srun or docker.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import resource
import signal
import sys
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from stark.core.errors import UsageError
from stark.evaluator.candidate.sandbox.layers import left_out
from stark.evaluator.judge.building.cache import BuildCache, cache_folder, locks_below
from stark.evaluator.protocol import SERVICE, Hello, Notice

if TYPE_CHECKING:
    from stark.evaluator.judge.processes.forkserver import Forkserver

DEVICES = re.compile(r"auto|(cpu|cuda)(:[0-9]+)?")


def main() -> None:
    """Redirect the streams, start the forkserver, import torch meanwhile, measure the device, and relay requests."""
    try:
        device, cache = _device(), BuildCache.opened()
        left_out()  # raises ValueError if the setting is invalid
    except (UsageError, ValueError) as error:
        sys.exit(str(error))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator handles Ctrl-C
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each process of a candidate
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library or a reference prints must not mix with the answers

    from stark.evaluator.judge.processes import cores
    from stark.evaluator.judge.processes.forkserver import Forkserver
    from stark.languages import preloaded

    # References would keep to a smaller number, and candidates need not. The forkserver and its children inherit it.
    os.environ["OMP_NUM_THREADS"] = str(cores.usable())
    forkserver = Forkserver.start(preloaded())

    # Idle threads of the judge must not spin on cores that a timed program needs.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    from stark.evaluator.judge.building.builds import Builds
    from stark.evaluator.judge.building.toolchain import toolchain_of
    from stark.evaluator.judge.lock import Slots
    from stark.evaluator.judge.relay import Relay
    from stark.evaluator.judge.running import FEW_QUEUES
    from stark.evaluator.judge.server import Judge

    os.environ.update(FEW_QUEUES)
    ours, theirs = Pipe()
    # In another process, because a CUDA context does not survive a fork.
    given = device, answers.fileno(), theirs
    measuring = get_context("fork").Process(target=_measure, args=given)
    measuring.start()
    measuring.join()
    if measuring.exitcode != 0:
        sys.exit(1)
    found, name = ours.recv()
    slots = Slots(locks_below(cache_folder()), name, max(1, (os.cpu_count() or 2) // 2))
    toolchain, service = toolchain_of(cache.root), os.environ.get(SERVICE)
    gpu = found.sheet.architecture if found.sheet.kind == "cuda" else None
    shared_bytes = 1024 * (found.sheet.shared_memory_kb or math.inf)

    def serve(pipe: Connection, branch: Forkserver) -> None:
        place = None if service is None else Path(service)
        yields = gpu is not None  # on a GPU's host, programs are timed while others are built
        builds = Builds(cache, gpu, toolchain, branch, place, yields, shared_bytes)
        Judge(pipe, branch, found, name, builds, slots).serve()

    has = {"versions": found.versions, "sandbox": {**forkserver.sandbox}, "toolchain": toolchain}
    hello = Hello(device=found.sheet, **has)
    relay = Relay(serve, forkserver, answers, hello.device_class)
    relay.say(hello)
    relay.run(sys.stdin.fileno())
    relay.close()
    os._exit(0)


def _measure(device: str, answers: int, told: Connection) -> None:
    """Measure the device, and tell it with a name that no other has. Exits if there is no such device."""
    from stark.evaluator.judge import machine
    from stark.evaluator.judge.lock import DeviceLock

    def announce(waits: bool) -> None:
        text = f"waiting for another judge on {device}" if waits else ""
        os.write(answers, Notice(text=text).model_dump_json().encode() + b"\n")

    cache, (found, name) = cache_folder(), machine.find(device)
    with DeviceLock(locks_below(cache), name, os.getppid(), announce).turn():
        told.send((machine.measure(found, cache), name))


def _device() -> str:
    """The device to serve. Raises UsageError if it cannot be one."""
    parser = argparse.ArgumentParser(prog="python -m stark.evaluator.judge", description=__doc__)
    parser.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda:0, cuda:1, ..., or auto (the first GPU, or the CPU if there is no GPU)",
    )
    device: str = parser.parse_args().device
    if not DEVICES.fullmatch(device):
        raise UsageError(f"{device!r} is not a device; use cpu, or cuda:0 for the first GPU")
    return device


if __name__ == "__main__":
    main()
