"""Runs a program under a tool, without the judge. The tool (a profiler or memory checker) starts this process, or is
loaded into it (AddressSanitizer).

Run as `python -m stark.evaluator.candidate.under_tool REQUEST [MODULE…]`. It imports the modules, creates a file
named like REQUEST with the suffix `READY`, and waits for REQUEST, a JSON file with
`problem` and `program` (paths), `device`, `memory_fraction`, `seed`, `warm` (calls before the
profiled one), `guarded` (whether to surround inputs with memory that AddressSanitizer guards), `layers`,
`gradients` (null, or the fields of `Gradients`), `cotangents` (their shapes and types), `abrupt` (whether to exit
without cleaning up), and the program's `folder`, `scratch` and `environment` (null removes a variable).

Inputs come from the problem's `get_inputs()`, and no memory is shared with the judge. So every tensor
is a separate allocation, and a memory checker knows where each tensor ends. The problem's file is trusted,
because the user provided it. Once the device is open and the tool's threads are running, the process
locks its sandbox. Then it imports the program.

For AddressSanitizer, each input is copied to a block of memory of its own. The program may not touch what lies before and
after it. The names of the program's libraries that were built without the sanitizer's checks are printed for the judge. This
works only if the sanitizer's own library was loaded into this process first.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stark.evaluator.candidate import confine
from stark.evaluator.candidate.arena import Slot
from stark.evaluator.candidate.backward import ForwardBackward, Gradients, as_leaves
from stark.evaluator.candidate.confine import Place
from stark.evaluator.candidate.program import (
    built,
    give_weights,
    import_ahead,
    import_file,
    open_device,
    parameters_named,
)

POLL_S = 0.005
"""Seconds between two looks for the request."""

READY = ".ready"
"""Suffix of the file that says that this process only waits for the request."""

LEAST_BYTES, MOST_BYTES = 64 << 10, 64 << 20
"""Bounds of the stretch before and after a tensor, in bytes. Between them it is as long as the tensor, so that an index
that is wrong by a row or by an image is noticed too."""

GUARDED, UNCHECKED = "guarded input", "unchecked library"
"""First words of the lines that are printed for the judge. A guarded tensor's address, bytes and form follow, or a
library's name."""

_kept: list[mmap.mmap] = []
"""The memory, which stays to the end: where AddressSanitizer forbids it, nothing else may come to lie."""


def main() -> None:
    """Draw the inputs, lock the sandbox, load the program and call it."""
    _, path, *modules = sys.argv
    import_ahead(modules)
    asked = Path(path)
    asked.with_suffix(READY).touch()
    while not asked.exists():  # this process may have been started long before
        time.sleep(POLL_S)
    request: dict[str, Any] = json.loads(asked.read_text())
    device = torch.device(request["device"])
    os.environ["TMPDIR"] = request["scratch"]  # the tool's library in this process writes there
    torch.set_grad_enabled(False)
    open_device(device, request["memory_fraction"])
    problem = import_file("problem", Path(request["problem"]))
    from_these = list(problem.get_init_inputs()), device, request["seed"]
    weights = built(problem.Model, *from_these).state_dict()
    given = _arguments(problem, device, request)
    _lock(request)
    module = built(import_file("candidate", Path(request["program"])).ModelNew, *from_these)
    give_weights(module, weights)
    call = _call(module, *given, weights, request)
    for _ in range(request["warm"]):
        call()
    _profiled_call(call, device)
    if request["guarded"]:
        print_unchecked(Path(request["folder"]))
    if request["abrupt"]:
        sys.stdout.flush()
        os._exit(0)  # torch takes half a second to be taken apart


def _arguments(problem: Any, device: torch.device, request: dict[str, Any]) -> tuple[Any, Any]:
    """The problem's own inputs, and cotangents; none unless the problem asks for gradients. All are on the device."""
    torch.manual_seed(request["seed"])
    with device:
        inputs = list(problem.get_inputs())
    cotangents = [
        torch.randn(shape, dtype=getattr(torch, dtype), device=device)
        for shape, dtype in request["cotangents"]
    ]
    copies: dict[int, torch.Tensor] = {}

    def placed(tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on the device, in guarded memory if that was asked for. One that is given twice stays one."""
        if id(tensor) not in copies:
            there = tensor.to(device)
            copies[id(tensor)] = guarded(there) if request["guarded"] else there
        return copies[id(tensor)]

    found: tuple[Any, Any] = pytree.tree_map_only(torch.Tensor, placed, (inputs, cotangents))
    return found


def _lock(request: dict[str, Any]) -> None:
    """Move from the tool's folder, which candidates cannot access, to the program's folder, and lock the sandbox."""
    # Keep the variables that the tool has set: its library in this process reads them.
    for name, value in request["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.chdir(request["folder"])
    tempfile.tempdir = None
    place = Place(
        folder=request["folder"],
        environment=dict(os.environ),
        readable=(request["program"],),
        writable=(request["scratch"],),
    )
    layers = frozenset(request["layers"])
    confine.close(layers, place)
    confine.lock(layers)


def _call(
    module: Any,
    arguments: list[Any],
    cotangents: list[torch.Tensor],
    weights: dict[str, torch.Tensor],
    request: dict[str, Any],
) -> Callable[[], object]:
    """Calls the module forward, or forward and backward if the problem asks for gradients."""
    if request["gradients"] is None:
        return partial(module, *arguments)
    wanted = Gradients(**request["gradients"])
    tensors = {id(each): each for each in pytree.tree_leaves(arguments) if torch.is_tensor(each)}
    leaves = dict(zip(tensors, as_leaves(list(tensors.values()), wanted), strict=True))
    given = pytree.tree_map_only(torch.Tensor, lambda tensor: leaves[id(tensor)], arguments)
    chosen = [each for number, each in enumerate(leaves.values()) if number in wanted.inputs]
    parameters = parameters_named(module, weights, wanted.parameters)
    return partial(ForwardBackward(module, parameters, wanted), *given, [cotangents, chosen])


def _profiled_call(call: Callable[[], object], device: torch.device) -> None:
    """Make the one call that a profiler records."""
    if device.type != "cuda":
        call()
        return
    torch.cuda.synchronize(device)
    runtime: Any = torch.cuda.cudart()
    runtime.cudaProfilerStart()
    call()
    torch.cuda.synchronize(device)
    runtime.cudaProfilerStop()


def guarded(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a CPU tensor with the same strides, in guarded memory, whose place is printed.

    A tensor whose elements share memory becomes a full one. A tensor without elements is returned as it is.
    """
    if tensor.numel() == 0:
        return tensor
    place = Slot.of(torch.empty_like(tensor, device="meta"))
    size, page = place.size, mmap.PAGESIZE
    guard = -(-min(max(size, LEAST_BYTES), MOST_BYTES) // page) * page
    memory = mmap.mmap(-1, guard + size + guard)
    _kept.append(memory)
    block = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=guard)
    start, copy = block.data_ptr(), place.view(block).copy_(tensor)
    poison = ctypes.CDLL(None).__asan_poison_memory_region
    poison.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    poison(start - guard, guard)
    poison(start + size, guard)
    dtype = str(place.dtype).removeprefix("torch.")
    _say(f"{GUARDED} {start:#x} {size} {dtype}{list(place.shape)}")
    return copy


def print_unchecked(folder: Path) -> None:
    """Print the name of each library in a program's folder that it has loaded and that was built without the checks."""
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    files = {Path(parts[5]) for parts in mapped if len(parts) == 6 and "x" in parts[1]}
    for file in sorted(file for file in files if file.is_relative_to(folder.resolve())):
        if not file.is_file() or b"__asan_" not in file.read_bytes():
            _say(f"{UNCHECKED} {file.name}")


def _say(line: str) -> None:
    """Print a line at once: the process may end without flushing."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
