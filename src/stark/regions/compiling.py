"""Measures what `torch.compile` gains for one region: the library's answer that a kernel must beat."""

from __future__ import annotations

import copy
import signal
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from stark.capturing.calls.recording import autocast_now, in_modes
from stark.capturing.cannot import reason_of
from stark.regions.clocks import HostClock
from stark.regions.results import Compiled
from stark.regions.workload import copied

SAMPLES = 15


@dataclass(frozen=True)
class Example:
    """One recorded call of a module, with the modes in which it was made."""

    module: nn.Module
    args: Any
    kwargs: Any
    grad: bool
    inference: bool
    autocast: str | None


class Examples:
    """As `regions.watching.Watcher`, watches one run and keeps a copy of the arguments of the calls with the given numbers."""

    def __init__(self, wanted: Collection[int]) -> None:
        """Calls are numbered from 0 in the order in which they begin."""
        self._wanted = wanted
        self._number = 0
        self.found: dict[int, Example] = {}

    def enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A call begins."""
        if self._number in self._wanted:
            self.found[self._number] = Example(
                module=module,
                args=copied(args),
                kwargs=copied(kwargs),
                grad=torch.is_grad_enabled(),
                inference=torch.is_inference_mode_enabled(),
                autocast=autocast_now(),
            )
        self._number += 1

    def leave(self, result: Any) -> None:
        """The innermost call ends."""


class _TimeUp(BaseException):
    """Not an Exception, so that the compiler does not take it for a failure of its own."""


def compile_gain(example: Example, clock: HostClock, most_s: float) -> Compiled:
    """Compile a copy of the module, and time it beside the original on the recorded call.

    Compiling is stopped after `most_s` seconds; only the main thread can be stopped. A failure is returned as the
    reason.
    """
    if most_s <= 0:
        return Compiled(reason="not measured, since the time for compiling is used up")
    try:
        modes = in_modes(example.grad, example.autocast, example.inference)
        with _stopped_after(most_s), warnings.catch_warnings(), modes:
            warnings.simplefilter("ignore")
            compiled = torch.compile(copy.deepcopy(example.module))
            return Compiled(speedup=_gain(example, compiled, clock))
    except _TimeUp:
        return Compiled(reason=f"not compiled within {most_s:.0f} s")
    except Exception as error:  # the user's module, and the compiler, can raise anything
        return Compiled(reason=f"fails with {reason_of(error)}")


def _gain(example: Example, compiled: Callable[..., object], clock: HostClock) -> float:
    for _ in range(2):  # a second call may compile again, for dynamic shapes
        _sample(example, compiled, clock)
        _sample(example, example.module, clock)
    pairs = [
        (_sample(example, example.module, clock), _sample(example, compiled, clock))
        for _ in range(SAMPLES)
    ]
    return median(eager for eager, _ in pairs) / median(ours for _, ours in pairs)


def _sample(example: Example, called: Callable[..., object], clock: HostClock) -> float:
    """Seconds of one call, without what it takes to copy arguments that the call may change."""
    args, kwargs = example.args, example.kwargs
    if any(_is_mutable(leaf) for leaf in tree_leaves((args, kwargs))):
        args, kwargs = copied((args, kwargs))
    clock.wait()
    begin = clock.mark()
    called(*args, **kwargs)
    end = clock.mark()
    clock.wait()
    return clock.between(begin, end)


def _is_mutable(leaf: object) -> bool:
    return not isinstance(leaf, torch.Tensor | bool | int | float | str | None)


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Raise `_TimeUp` in the main thread when the time is up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
