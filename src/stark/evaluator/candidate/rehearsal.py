"""Compiles a program's Triton kernels before it has a device: calls it once on tensors without memory.

A kernel and the C code that launches it are compiled at the first call. That takes a third of a second, or minutes for an
autotuned kernel, and meanwhile no other program can use the device. Here the kernels go into the program's folder.
Whatever this call cannot do, such as ask for the number of multiprocessors, ends it: the rest is compiled later. Errors of
Triton are reported, since they would be the same with a device.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from stark.evaluator.candidate.program import PASSES_FAILED, import_file, reported
from stark.evaluator.candidate.wire import Message

DEVICE = torch.device("cuda", 0)
_GETTERS = {torch.Tensor.is_cuda.__get__: True, torch.Tensor.device.__get__: DEVICE}  # type: ignore[attr-defined]
_MOVES = (torch.Tensor.cuda, torch.Tensor.to)


def rehearse(kind: Any, path: Path, problem: Path, gpu: Message, limit_s: float) -> Message:
    """Call a class like `ModelNew` of the file `path` on the problem's inputs. Returns Triton's error, if there is one.

    `gpu` has the `capability` to compile for, such as 90, and `shared`, the bytes of shared memory that a block may have.
    Another process makes the call, for at most `limit_s` seconds: what fails without a device may be right with one.
    """
    processes = multiprocessing.get_context("fork")
    ours, theirs = processes.Pipe(duplex=False)
    child = processes.Process(target=lambda: theirs.send(_error(kind, path, problem, gpu)))
    child.start()
    theirs.close()
    error: Message = {}
    with suppress(EOFError, OSError):  # it ended before
        if ours.poll(limit_s):
            error = ours.recv()
    child.kill()
    child.join()
    return error


def _error(kind: Any, path: Path, problem: Path, gpu: Message) -> Message:
    try:
        _call(kind, problem, gpu)
    except Exception as error:
        from triton.errors import TritonError

        if isinstance(error, TritonError) or str(error) == PASSES_FAILED:
            return reported(error, path)
    return {}


def _call(kind: Any, problem: Path, gpu: Message) -> None:
    _compile_only(gpu["capability"], gpu["shared"])
    _leave_dynamo_out()
    module = import_file("problem", problem)
    with torch.device("meta"), torch.no_grad():
        model = kind(*module.get_init_inputs())
        inputs = pytree.tree_map_only(
            torch.Tensor, lambda each: each.detach().to("meta"), module.get_inputs()
        )
    with torch.no_grad(), _AsOnDevice():
        model(*inputs)


class _AsOnDevice(TorchFunctionMode):
    """Lets tensors without memory say that they are on a GPU, and makes those without memory that should be there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        on_device = bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_meta
        if on_device and func in _GETTERS:
            return _GETTERS[func]
        if on_device and func is torch.Tensor.get_device:
            return DEVICE.index
        if kwargs.get("device") is not None:
            kwargs["device"] = "meta"
        if func in _MOVES:
            args = tuple("meta" if isinstance(each, str | torch.device) else each for each in args)
            func = torch.Tensor.to
        return func(*args, **kwargs)


def _leave_dynamo_out() -> None:
    """Do not import torch's compiler, which takes over a second, only because some operators ask it not to trace them."""
    if "torch._dynamo" not in sys.modules:
        stub: Any = ModuleType("torch._dynamo")
        stub.disable = lambda function, *_, **__: function
        torch._dynamo = sys.modules["torch._dynamo"] = stub


def _compile_only(capability: int, shared: float) -> None:
    """Let Triton's kernels only be compiled when they are called. Raises ImportError without Triton."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaLauncher
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.errors import OutOfResources
    from triton.runtime.jit import JITFunction

    def once(call: Callable[[], object], quantiles: Sequence[float], **_: object) -> list[float]:
        call()
        return [1.0 for _ in quantiles]

    asked = SimpleNamespace(  # what Triton asks about its device, as far as compiling needs it
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("cuda", capability, 32),
        get_benchmarker=lambda: once,
        launcher_cls=CudaLauncher,
    )
    driver.set_active(asked)
    run = JITFunction.run

    def compiled(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        if kernel.metadata.shared > shared:  # Triton itself looks when it loads the kernel
            raise OutOfResources(kernel.metadata.shared, shared, "shared memory")
        CudaLauncher(kernel.src, kernel.metadata)
        return kernel

    def tuned(self: Any, key: Any, configs: Any, benchmark: Callable[[], None]) -> bool:
        benchmark()
        return False

    JITFunction.run = compiled
    Autotuner.check_disk_cache = tuned  # or the first configuration would be kept as the best
