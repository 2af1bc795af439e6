"""Starts a judge on standard input and output: `python -m stark.evaluator.judge --device cuda:0`.

Any command that carries these two streams makes the judge remote: ssh, srun, docker.
"""

from __future__ import annotations

import argparse
import os
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


def main() -> None:
    """Take over the two streams, start the forkserver while torch is imported here, and serve."""
    options = _options()
    _check(options.cache)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the orchestrator's to handle
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library or a reference prints must not mix with the answers

    from stark.evaluator.judge.processes.forkserver import Forkserver
    from stark.languages import LANGUAGES

    preload = dict.fromkeys(m for language in LANGUAGES.values() for m in language.preload)
    forkserver = Forkserver(preload)

    # The judge's own threads must not wait in a loop on the cores that a timed program needs.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    from stark.evaluator.judge.server import Judge

    device = _device(options.device)
    judge = Judge(device, forkserver, options.cache, options.cache_gb, options.builds, answers)
    judge.serve(sys.stdin.buffer)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stark.evaluator.judge", description=__doc__)
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda:0 …, or auto for the first GPU or else the CPU"
    )
    parser.add_argument(
        "--builds", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="builds at once"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=cache_folder(),
        help=f"where builds are kept; {FOLDER} sets it too",
    )
    parser.add_argument(
        "--cache-gb",
        type=float,
        default=_most_gb(),
        help=f"how much of them is kept, those used last; {GIGABYTES} sets it too",
    )
    return parser.parse_args()


def _check(cache: Path) -> None:
    """What a person set is refused here, before anything is started that it would break."""
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
    if kind not in ("cpu", "cuda") or not (index.isdecimal() or name == kind):
        sys.exit(f"{name!r} is no device; use cpu, or cuda:0 for the first GPU")
    if kind == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(index or 0) >= count:
        there = f"PyTorch finds {count} here" if count else "no CUDA device is available to PyTorch"
        sys.exit(
            f"there is no {name}: {there}; use another, or --device cpu, or see `stark doctor`"
        )
    device = torch.device("cuda", int(index or 0))
    torch.cuda.set_device(device)
    return device


if __name__ == "__main__":
    main()
