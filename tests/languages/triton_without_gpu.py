"""Runs or compiles Triton candidates on a machine without a GPU.

`python triton_without_gpu.py interpret|compile FOLDER` takes every `NAME.problem.py` with its
`NAME.candidate.py` in the folder, and prints what it found as JSON by name. `interpret` runs the kernels by
Triton's interpreter and gives the relative RMS error against float64; `compile` compiles every launch for
Hopper instead of launching it, on tensors without data, and gives each kernel's PTX.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
if MODE == "interpret":
    os.environ["TRITON_INTERPRET"] = "1"  # is read when a kernel is defined

import torch
import triton

torch.manual_seed(0)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem.replace(".", "_"), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Example(NamedTuple):
    """A problem and its candidate, with the same weights."""

    reference: torch.nn.Module
    candidate: torch.nn.Module
    inputs: list[torch.Tensor]


def example(name: str) -> Example:
    problem = loaded(FOLDER / f"{name}.problem.py")
    arguments, inputs = problem.get_init_inputs(), problem.get_inputs()
    reference = problem.Model(*arguments)
    candidate = loaded(FOLDER / f"{name}.candidate.py").ModelNew(*arguments)
    candidate.load_state_dict(reference.state_dict())
    return Example(reference, candidate, inputs)


def relative_error(name: str) -> float:
    given = example(name)
    with torch.no_grad():
        ours = given.candidate(*given.inputs)
        exact = given.reference.double()(*(tensor.double() for tensor in given.inputs))
    return float((ours - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def let_the_interpreter_loop() -> None:
    """NumPy 2.5 makes no number of an array of one element, which is what a loop's bound is there."""
    from triton.runtime import interpreter

    before = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def kernels_compiled() -> Callable[[str], dict[str, str]]:
    """A function that gives the PTX of every kernel that a candidate launches, by the kernel's name."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    class Hopper:
        """Stands in for the driver of a device."""

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    triton.runtime.driver.set_active(Hopper())
    run, found = JITFunction.run, dict[str, str]()

    def only_compile(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *arguments, grid=grid, warmup=True, **options)
        assert kernel.asm["cubin"]
        found[kernel.name] = kernel.asm["ptx"]
        return kernel

    JITFunction.run = only_compile

    def compiled(name: str) -> dict[str, str]:
        found.clear()
        with torch.no_grad(), torch.device("meta"):
            given = example(name)
            given.candidate(*given.inputs)
        return dict(found)

    return compiled


if MODE == "interpret":
    let_the_interpreter_loop()
examine = relative_error if MODE == "interpret" else kernels_compiled()
names = sorted(path.name.removesuffix(".problem.py") for path in FOLDER.glob("*.problem.py"))
sys.stdout.write(json.dumps({name: examine(name) for name in names}))
