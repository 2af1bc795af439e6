from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from region_samples import Scaled, Slow, without_gradients
from torch import nn

from stark.core.errors import UsageError
from stark.regions.comparing import compare

KERNEL = Path("kernel.py")


class Sleeping(nn.Module):
    """Takes at least a millisecond."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(1e-3)
        return x


class Fast:
    """Stands for what `stark.apply` returns: the module is replaced."""

    def __init__(self, model: nn.Sequential, kernel: Path) -> None:
        assert KERNEL == kernel
        self._model, self._original = model, model[0]
        model[0] = nn.Identity()

    def report(self) -> str:
        return "1 module, 2 calls"

    def __enter__(self) -> Fast:
        return self

    def __exit__(self, *_: object) -> None:
        self._model[0] = self._original


@pytest.fixture(autouse=True)
def applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stark.regions.comparing.apply", Fast)


def test_the_whole_model_is_timed_before_and_after_side_by_side() -> None:
    model = nn.Sequential(Sleeping(), Scaled()).eval()
    slow = model[0]
    found = compare(model, without_gradients(model, torch.ones(2, 64)), [KERNEL], rounds=8)

    assert found.before_ms > found.after_ms > 0
    assert found.before_ms > 1
    assert found.speedup.ratio > 1
    assert found.speedup.low <= found.speedup.ratio <= found.speedup.high
    assert ("1 module, 2 calls",) == found.reports
    assert slow is model[0]


def test_kernels_are_removed_if_a_run_fails() -> None:
    model = nn.Sequential(Slow(), Scaled())
    slow = model[0]
    runs: list[Callable[[], object]] = []

    def fails_later() -> None:
        runs.append(fails_later)
        if len(runs) == 3:
            raise RuntimeError("a kernel fails")

    with pytest.raises(RuntimeError, match="a kernel fails"):
        compare(model, fails_later, [KERNEL])
    assert slow is model[0]


def test_without_kernels_there_is_nothing_to_compare() -> None:
    with pytest.raises(UsageError, match="no kernel to apply"):
        compare(nn.Identity(), list, [])
