"""The process that runs the user's model for the command line, which imports no torch.

    python -m stark.regions capture package.module:Block --inputs package.module:example --output answer.json
    python -m stark.regions find package.module:Model --inputs … --output answer.json
    python -m stark.regions compare package.module:Model --inputs … --output answer.json kernel.py …

The answer is a `stark.regions.results.Answer`. Standard output belongs to the user's code.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from stark.capturing.calls.loading import load_examples, load_module, record
from stark.capturing.calls.recording import Calls
from stark.capturing.entry import ModeWarning, capture
from stark.core.errors import StarkError
from stark.regions.capturing import capture_regions
from stark.regions.comparing import compare
from stark.regions.finding import COMPILE_S, hotspots
from stark.regions.results import Answer


def main() -> int:
    """Write the answer; returns 2 if it is an error."""
    arguments = _arguments()
    warnings.simplefilter("ignore", ModeWarning)  # the command line prints the mode itself
    try:
        answer = WORKS[arguments.work](arguments)
    except StarkError as error:
        answer = Answer(error=str(error))
    arguments.output.write_text(answer.model_dump_json(), encoding="utf-8")
    return 2 if answer.error else 0


def captured(arguments: argparse.Namespace) -> Answer:
    """Write the module as a problem."""
    module, _, calls = _prepared(arguments)
    return Answer(problem=capture(module, calls, arguments.name, backward=arguments.backward))


def find(arguments: argparse.Namespace) -> Answer:
    """Rank the regions and, if asked for, capture the best ones."""
    module, run, calls = _prepared(arguments)
    found = hotspots(module, run=run, compile=arguments.compile, compile_s=arguments.compile_s)
    captured = capture_regions(
        module, calls, found.regions, arguments.capture, arguments.folder, arguments.backward
    )
    return Answer(hotspots=found, captured=tuple(captured))


def compared(arguments: argparse.Namespace) -> Answer:
    """Time the model with and without the kernels."""
    module, run, _ = _prepared(arguments)
    return Answer(comparison=compare(module, run, arguments.kernels))


WORKS = {"capture": captured, "find": find, "compare": compared}


def _prepared(
    arguments: argparse.Namespace,
) -> tuple[nn.Module, Callable[[], object], Calls]:
    """The module, a run of all its examples, and what was recorded of one run."""
    backward = arguments.backward
    module = load_module(arguments.module, backward)
    examples = load_examples(arguments.inputs)
    calls = record(module, examples, arguments.inputs, backward)

    def run() -> None:
        with torch.set_grad_enabled(module.training or backward):
            for args, kwargs in examples:
                module(*args, **kwargs)

    return module, run, calls


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m stark.regions", description=__doc__)
    works = parser.add_subparsers(dest="work", required=True)
    for name in WORKS:
        work = works.add_parser(name)
        work.add_argument("module")
        work.add_argument("--inputs", required=True)
        work.add_argument("--output", type=Path, required=True)
        work.add_argument("--backward", action="store_true")
        if name == "capture":
            work.add_argument("--name")
        elif name == "compare":
            work.add_argument("kernels", type=Path, nargs="+")
        else:
            work.add_argument("--compile", type=int, default=0)
            work.add_argument("--compile-s", type=float, default=COMPILE_S)
            work.add_argument("--capture", type=int, default=0)
            work.add_argument("--folder", type=Path, default=Path(".stark/problems"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
