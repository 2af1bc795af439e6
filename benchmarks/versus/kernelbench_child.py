"""Runs `eval_kernel_against_ref` of a KernelBench checkout once: `kernelbench_child.py ASKED.json`.

Writes `answer.json` beside the request, and catches the same exceptions as KernelBench's own script.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

UNUSED = ("openai", "litellm", "dotenv", "tqdm", "requests")
"""Modules that KernelBench imports but does not use to evaluate."""

PRELOADED = {
    "triton": ("triton", "triton.language"),
    "cuda": ("tvm_ffi.cpp",),
    "load_inline": ("torch.utils.cpp_extension",),
}

ARCHITECTURES = {8: "Ampere", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}
"""KernelBench's names of GPU architectures, by major compute capability."""


def main() -> None:
    """Evaluate and write the answer."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    sys.path.insert(0, str(Path(asked["checkout"], "src")))
    import torch

    evaluation, set_gpu_arch = imported()
    for name in PRELOADED[asked["route"]]:
        importlib.import_module(name)
    device = torch.device(asked["device"])
    torch.zeros(1, device=device)
    major, minor = torch.cuda.get_device_capability(device)
    set_gpu_arch(["Ada" if (major, minor) == (8, 9) else ARCHITECTURES[major]])
    # Otherwise tvm-ffi calls nvidia-smi, which some machines lack.
    os.environ["TVM_FFI_CUDA_ARCH_LIST"] = f"{major}.{minor}{'a' if major >= 9 else ''}"
    begin = time.monotonic()
    compiled, correct, errors, said = _evaluated(evaluation, asked, device)
    answer = {
        "seconds": time.monotonic() - begin,
        "compiled": compiled,
        "correct": correct,
        "errors": errors,
        "said": said,
    }
    part = Path(asked["folder"], "answer.part")
    part.write_text(json.dumps(answer))
    part.rename(Path(asked["folder"], "answer.json"))


def absent() -> list[str]:
    """The unused modules that are not installed."""
    return [name for name in UNUSED if importlib.util.find_spec(name) is None]


def imported() -> tuple[Any, Callable[[list[str]], None]]:
    """KernelBench's evaluation module, and its function that sets the target architecture."""
    missing = absent()
    for name in missing:
        sys.modules[name] = _Absent(name)
    evaluation = importlib.import_module("kernelbench.eval")
    set_gpu_arch = importlib.import_module("kernelbench.utils").set_gpu_arch
    for name in missing:
        del sys.modules[name]
    return evaluation, set_gpu_arch


def _evaluated(
    evaluation: Any, asked: dict[str, Any], device: torch.device
) -> tuple[bool, bool, list[str], str]:
    """Whether the candidate compiled and was correct, the names of its errors, and the end of the first."""
    try:
        found = evaluation.eval_kernel_against_ref(
            original_model_src=asked["problem"],
            custom_model_src=asked["candidate"],
            measure_performance=True,
            timing_method="cuda_event",
            verbose=False,
            num_correct_trials=5,
            num_perf_trials=100,
            build_dir=str(Path(asked["folder"], "build")),
            device=device,
            backend=asked["backend"],
            precision=evaluation.get_torch_dtype_from_string("fp32"),
        )
    except Exception as error:  # the boundary: as in their evaluate_single_sample
        kind = "cuda_error" if "CUDA error" in str(error) else "other_error"
        return False, False, [kind], "".join(traceback.format_exception(error))[-1000:]
    if found is None:
        return (
            False,
            False,
            ["lock_error"],
            "KernelBench found a lock file and must be called again",
        )
    errors = [name for name in found.metadata if "error" in name or "issue" in name]
    messages = [str(found.metadata[name]) for name in errors if not name.endswith("_name")]
    said = messages[0] if messages else f"{found.runtime} ms"
    return bool(found.compiled), bool(found.correctness), errors, said[-1000:]


class _Absent(types.ModuleType):
    """Stands in for a module that is not installed. Its functions fail when called."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: object, **__: object) -> object:
            if (self.__name__, name) == ("dotenv", "load_dotenv"):
                return False  # called at import
            raise ImportError(f"{self.__name__} is not installed here, and {name} was used")

        return missing


if __name__ == "__main__":
    main()
