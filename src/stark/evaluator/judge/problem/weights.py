"""A model's weights: which of them may have other values, and the model with such values.

Values are changed slightly, so that results computed from other values are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from stark.evaluator.candidate.program import seed_torch
from stark.evaluator.judge.problem.values import is_inexact
from stark.evaluator.judge.verify.errors import as_real

PERTURBATION = 0.1
"""Largest relative change of a parameter after construction, and the largest offset of one that is zero or small."""

SMALL = 1e-3
"""A parameter of several equal values below this, such as LayerScale's, is still as it was initialized: training makes it larger."""

RANDOMLY_WHOLE = 500_000
"""Of so many random numbers in float32, one may be whole by chance, which does not make a mask of them."""

COPIES = 8
"""A copy of the weights stays on a GPU that has so many times their memory free: varying them takes up to six times."""


def variable(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters by name, and those buffers whose values may change, all floating-point or complex.

    A buffer that is not saved with the model is a constant. So is one of whole numbers, such as a mask, unless all are
    the same: it may be filled later, as a memory is. A buffer with zeros among other numbers may be a mask too.
    """
    buffers = dict(model.named_buffers())
    return {
        name: weight
        for name, weight in model.state_dict().items()
        if isinstance(weight, torch.Tensor)
        and is_inexact(weight)
        and (name not in buffers or _is_statistic(model, name) or _may_change(weight))
    }


def vary(model: torch.nn.Module, seed: int) -> None:
    """Scale the model's values, which keeps their signs, and give zeros an offset.

    So a candidate that takes the statistics of a normalization for 0 and 1 fails. Small parameters as they were initialized
    get an offset too, away from zero: a residual branch that starts with a scale of 1e-6 could be left out.
    """
    seed_torch(seed)
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, state in variable(model).items():
        values = as_real(state)
        factors = torch.rand(values.shape, device=state.device)
        noise = PERTURBATION * (2 * factors - 1).to(values.dtype)
        if name in parameters and _is_small_at_first(values):
            changed = values + noise.abs().copysign(values)
        else:
            changed = values * (1 + noise)
        varied = torch.where(values == 0, noise, changed)
        state.copy_(torch.view_as_complex(varied) if state.is_complex() else varied)


@contextmanager
def other_weights(model: torch.nn.Module, seed: int) -> Iterator[None]:
    """Meanwhile the model has other weights, the same for the same seed.

    The former ones wait in the host's memory if a GPU's is short.
    """
    weights = [*variable(model).values()]
    needed, on_cpu = COPIES * sum(each.nbytes for each in weights), all(t.is_cpu for t in weights)
    beside = on_cpu or torch.cuda.mem_get_info(weights[0].device)[0] > needed
    kept = [each.clone() if beside else each.to("cpu", copy=True) for each in weights]
    try:
        vary(model, seed)
        yield
    finally:
        for state, value in zip(weights, kept, strict=True):
            state.copy_(value)


@contextmanager
def unreplaced(model: torch.nn.Module) -> Iterator[None]:
    """Afterwards the model has the saved tensors that it has now, where a call put others in their places."""
    saved = [
        (owner, name, each)
        for owner in model.modules()
        for name, each in {**owner._parameters, **owner._buffers}.items()
        if each is not None and name not in owner._non_persistent_buffers_set
    ]
    try:
        yield
    finally:
        for owner, name, each in saved:
            if getattr(owner, name, None) is not each:
                setattr(owner, name, each)


@contextmanager
def nudging(
    model: torch.nn.Module, nudge: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Meanwhile the model's weights are moved by a function."""
    weights = [*model.parameters(), *model.buffers()]
    kept = [each.data for each in weights]
    try:
        for each in weights:
            each.data = nudge(each.data)
        yield
    finally:
        for each, former in zip(weights, kept, strict=True):
            each.data = former


def _is_small_at_first(values: torch.Tensor) -> bool:
    """Whether values are those of a scale that shall count for nothing at first. A single one may be an epsilon or a step."""
    if values.numel() < 2:
        return False
    least, largest = values.aminmax()
    return bool(least == largest) and abs(float(largest)) <= SMALL


def _is_statistic(model: torch.nn.Module, buffer: str) -> bool:
    """Whether a buffer is a normalization's running mean or variance."""
    owner = model.get_submodule(buffer.rpartition(".")[0])
    return isinstance(owner, torch.nn.modules.batchnorm._NormBase)


def _may_change(buffer: torch.Tensor) -> bool:
    """Whether a buffer's values are not those of a mask."""
    values = as_real(buffer)
    if buffer.numel() > 1 and bool((values == as_real(buffer.flatten()[0])).all()):
        return True  # as before anybody has written to it, such as a scale of ones
    whole = int((values == values.round()).sum())  # so is infinity, and zero
    return whole <= values.numel() // RANDOMLY_WHOLE and bool(values.isfinite().all())
