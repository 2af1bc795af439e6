"""What is measured: one run of the model, as a function that can be called again and again.

Each repetition draws the same random numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from stark.capturing.calls import values
from stark.capturing.calls.recording import Calls, Form, in_modes
from stark.core.errors import UsageError

SEED = 0


@dataclass(frozen=True)
class Step:
    """A part of a run."""

    prepare: Callable[[], Callable[[], object]]
    """Makes fresh inputs, and returns the call that is timed."""

    weight: int = 1
    """How often a run makes this call."""


def device_of(model: nn.Module) -> torch.device:
    """The one device of a model's parameters and buffers; the CPU without any.

    Raises UsageError for several devices, and for a device that is neither a CPU nor a CUDA device.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise UsageError(
            f"the model is on {names}; hot spots measures one device, so move the model to one"
        )
    device = next(iter(devices), torch.device("cpu"))
    if device.type not in ("cpu", "cuda"):
        raise UsageError(
            f"the model is on {device}; hot spots measures a CPU or a CUDA device, so move the model there"
        )
    return device


@contextmanager
def seeded(device: torch.device) -> Iterator[None]:
    """Every run draws the same random numbers; the user's generators are left as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(SEED)
        yield


def steps_of(model: nn.Module, calls: Calls | None, run: Callable[[], object] | None) -> list[Step]:
    """The parts of one run: `run` itself, or each recorded form of the model's call, as often as it was recorded.

    Raises UsageError unless exactly one of both is given, and if the recorded calls of the model cannot be repeated.
    """
    if (calls is None) == (run is None):
        raise UsageError(
            "hotspots needs something to run: recorded calls, or run=, a function without arguments"
        )
    if run is not None:
        ready = run
        return [Step(lambda: ready)]
    assert calls is not None
    forms = [form for form in calls.of(model) if form.counts.get("")]
    if not forms:
        raise UsageError(
            "the recorded calls have none of the model itself; record a call of it, or pass run=, a function that "
            "runs it"
        )
    for form in forms:
        if form.example is None:
            raise UsageError(f"a recorded call of the model cannot be repeated: {form.note}")
        if form.training != model.training:
            mode = "train" if form.training else "eval"
            raise UsageError(f"the calls were recorded in {mode} mode; call model.{mode}() first")
    return [Step(partial(_repeated, model, form), form.counts[""]) for form in forms]


def _repeated(model: nn.Module, form: Form) -> Callable[[], object]:
    assert form.example is not None
    args, kwargs = copied(form.example)

    def call() -> object:
        with in_modes(form.grad, form.autocast):
            return model(*args, **kwargs)

    return call


def copied(value: Any) -> Any:
    """A copy of arguments that shares no memory with them, objects such as caches included."""
    return tree_map_only(
        lambda leaf: not isinstance(leaf, torch.Tensor), copy.deepcopy, values.copied(value)
    )
