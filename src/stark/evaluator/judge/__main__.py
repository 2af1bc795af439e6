"""Starts a judge: `python -m stark.evaluator.judge --device cuda:0`.

The judge reads requests from standard input and writes answers to standard output. To run the judge
on another machine, use any command that forwards these two streams, such as ssh, srun or docker.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from pathlib import Path

from stark.core.errors import UsageError
from stark.evaluator.candidate.sandbox.layers import left_out
from stark.evaluator.judge.building.cache import (
    FOLDER,
    GIGABYTES,
    cache_folder,
    make_folder,
    most_gb,
)

DEVICES = re.compile(r"auto|(cpu|cuda)(:[0-9]+)?")


def main() -> None:
    """Redirect the streams, start the forkserver, import torch meanwhile, and answer requests."""
    options = _options()
    _check_settings(options.cache, options.device)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator handles Ctrl-C
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library or a reference prints must not mix with the answers

    from stark.evaluator.judge.processes.forkserver import Forkserver
    from stark.languages import LANGUAGES

    preload = dict.fromkeys(m for language in LANGUAGES.values() for m in language.preload)
    forkserver = Forkserver(preload)

    # Idle threads of the judge must not spin on cores that a timed program needs.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    from stark.evaluator.judge.server import Judge

    device = _device(options.device)
    judge = Judge(device, forkserver, options.cache, options.cache_gb, options.builds, answers)
    judge.serve(sys.stdin.buffer)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stark.evaluator.judge", description=__doc__)
    parser.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda:0, cuda:1, ..., or auto (the first GPU, or the CPU if there is no GPU)",
    )
    parser.add_argument(
        "--builds",
        type=int,
        default=max(1, (os.cpu_count() or 2) // 2),
        help="largest number of concurrent builds",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=cache_folder(),
        help=f"folder of the build cache; the environment variable {FOLDER} sets it too",
    )
    parser.add_argument(
        "--cache-gb",
        type=float,
        default=_most_gb(),
        help="size limit of the build cache in GB; the environment variable "
        f"{GIGABYTES} sets it too",
    )
    return parser.parse_args()


def _check_settings(cache: Path, device: str) -> None:
    """Exit with a message if an option or setting is invalid. Runs before torch is imported."""
    if not DEVICES.fullmatch(device):
        sys.exit(f"{device!r} is not a device; use cpu, or cuda:0 for the first GPU")
    try:
        make_folder(cache)
        left_out()
    except (UsageError, ValueError) as error:
        sys.exit(str(error))


def _most_gb() -> float:
    try:
        return most_gb()
    except UsageError as error:
        sys.exit(str(error))


def _device(name: str):  # type: ignore[no-untyped-def]
    import torch

    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        found = f"PyTorch finds {count} GPUs" if count else "PyTorch finds no GPU"
        sys.exit(
            f"{name} does not exist: {found}; choose a device that exists, such as --device cpu, "
            "or run `stark doctor` to see what this machine lacks"
        )
    device = torch.device("cuda", int(index or 0))
    torch.cuda.set_device(device)
    return device


if __name__ == "__main__":
    main()
