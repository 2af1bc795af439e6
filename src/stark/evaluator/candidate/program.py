"""Loads a program and reads what it returns or raises: the same for references and candidates, here and in the judge."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stark.evaluator.candidate.arena import TensorAt
from stark.evaluator.candidate.wire import Message

_OUT_OF_MEMORY = (
    "can't allocate memory",
    "std::bad_alloc",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""Texts of errors that mean that the host or the device ran out of memory."""

TRACEBACK_LINES = 30
MAX_ERROR_CHARS = 15_000
CAUSES = 8
"""Maximum number of chained causes of an exception that are reported."""

PASSES_FAILED = "PassManager::run failed"
"""The entire message of exceptions from Triton's later stages, which print the actual error."""


def seed_torch(seed: int) -> None:
    """Seed torch's generators as `torch.manual_seed` does, of the processor and of NVIDIA's devices.

    For other kinds of devices that function keeps each call, with its stack, for when they start. This takes a millisecond.
    """
    torch.default_generator.manual_seed(seed)
    if torch.version.cuda is not None:
        torch.cuda.manual_seed_all(seed)


def import_ahead(modules: Iterable[str]) -> None:
    """Import the modules that programs will need. One that is not installed is left out."""
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)


def import_file(name: str, path: Path) -> ModuleType:
    """Import a file under this name. Raises whatever the file's code raises."""
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    # The specification's loader would use cached bytecode, which the program's build could forge.
    exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), vars(module))
    return module


def open_device(device: torch.device, memory_fraction: float) -> None:
    """Create a GPU's context. torch may allocate this fraction of the GPU's memory."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_per_process_memory_fraction(memory_fraction, device)
        torch.zeros(1, device=device)


def built(kind: Any, arguments: Sequence[Any], device: torch.device, seed: int) -> Any:
    """A module of this class, built with a random seed on a device."""
    seed_torch(seed)
    with device:
        module = kind(*arguments)
    return module.to(device)


def give_weights(model: torch.nn.Module, given: Mapping[str, torch.Tensor]) -> Message:
    """Load the reference's weights by name, or by order if no name matches and all shapes do.

    Weights that are not contiguous in the reference, such as channels last, get its strides: a kernel finds them so where
    it takes the reference's place. Returns up to 20 missing and up to 20 unexpected names, and whether the weights were assigned by order.
    """
    renamed = names_by_order(model, given)
    if renamed:
        given = {renamed[name]: weight for name, weight in given.items()}
    found = model.load_state_dict(given, strict=False)
    own = model.state_dict(keep_vars=True)
    for name in own.keys() & given.keys():
        if not given[name].is_contiguous() and own[name].stride() != given[name].stride():
            own[name].data = given[name].to(own[name].dtype, copy=True)
    return {
        "missing": list(found.missing_keys)[:20],
        "unexpected": list(found.unexpected_keys)[:20],
        "by_order": bool(renamed),
    }


def parameters_named(
    model: torch.nn.Module, given: Mapping[str, torch.Tensor], names: Sequence[str]
) -> list[torch.nn.Parameter | None]:
    """The parameters that got the reference's weights of these names; None for those that the module lacks."""
    renamed = names_by_order(model, given)
    own = dict(model.named_parameters(remove_duplicate=False))
    return [own.get(renamed.get(name, name)) for name in names]


def names_by_order(model: torch.nn.Module, given: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The module's own name for each weight if none of the names match and all shapes do; else nothing."""
    own = model.state_dict()
    same_forms = [w.shape for w in own.values()] == [w.shape for w in given.values()]
    if not (own and own.keys().isdisjoint(given) and same_forms):
        return {}
    return dict(zip(given, own, strict=True))


def filled(arguments: list[Any], tensors: list[torch.Tensor]) -> list[Any]:
    """The argument list with tensors in place of their placeholders."""
    found: list[Any] = pytree.tree_map_only(TensorAt, lambda place: tensors[place.index], arguments)
    return found


def floats_of(arguments: list[Any]) -> list[float]:
    """The floats among the arguments, in order."""
    return [each for each in pytree.tree_leaves(arguments) if type(each) is float]


def with_floats(arguments: list[Any], floats: Iterable[float]) -> list[Any]:
    """The argument list with its floats replaced by these, in order."""
    others = iter(floats)
    found: list[Any] = pytree.tree_map(
        lambda leaf: next(others) if type(leaf) is float else leaf, arguments
    )
    return found


def leaves_of(value: object) -> list[object]:
    """Every leaf of a nested value except None. Dicts are traversed in the order of their sorted keys."""
    if isinstance(value, dict):
        value = [part for _, part in sorted(value.items(), key=lambda item: str(item[0]))]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]


def alike(leaf: object, other: torch.Tensor) -> bool:
    """Whether a leaf is a tensor of the other's type and shape, on its device."""
    return isinstance(leaf, torch.Tensor) and (leaf.dtype, leaf.shape, leaf.device) == (
        other.dtype,
        other.shape,
        other.device,
    )


def says_out_of_memory(error: BaseException) -> bool:
    """Whether the error's type or text says that memory ran out."""
    text = str(error)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in text for words in _OUT_OF_MEMORY
    )


def reported(error: BaseException, path: Path) -> Message:
    """An answer with `ok` false, the error's `kind` and text, and the full names of its types, their bases and its causes'."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and len(causes) <= CAUSES:
        causes.append(cause)
    return {
        "ok": False,
        "kind": "out_of_memory" if says_out_of_memory(error) else "raised",
        "error": _described(causes, path),
        "types": [
            f"{kind.__module__}.{kind.__qualname__}" for one in causes for kind in type(one).__mro__
        ],
    }


def _described(causes: list[BaseException], path: Path) -> str:
    """The error and those of its stack frames that lie in the program's file, cut to a few kilobytes."""
    error = causes[0]
    frames = [
        f"  line {frame.lineno}, in {frame.name}: {(frame.line or '')[:200]}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError):
        frames.append(f"  line {error.lineno}: {(error.text or '').strip()}")
    text = str(error)
    for cause in causes[1:]:  # Triton's last cause contains the reason
        raised_by = traceback.extract_tb(cause.__traceback__, limit=-1)
        said = str(cause) or str(raised_by[0].line if raised_by else "")  # as an assertion's
        if said not in text:
            text += f"\n{type(cause).__name__}: {said}"
    # A message is limited to 128 KiB, and JSON may need six bytes for a character.
    if len(text) > MAX_ERROR_CHARS:
        text = text[: MAX_ERROR_CHARS - 3_000] + "\n…\n" + text[-3_000:]
    return "\n".join([f"{type(error).__name__}: {text}", *frames[-TRACEBACK_LINES:]])
