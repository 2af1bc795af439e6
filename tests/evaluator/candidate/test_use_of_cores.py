"""Profiles of short functions on a CPU, taken in this process."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.profiling import profiled

THREADS = 2


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # as a candidate's folder, which has no libraries
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def profile(call: Callable[[], object]) -> dict[str, Any]:
    return profiled(call, lambda: None, torch.device("cpu"), calls=2)


def test_new_memory_is_counted_in_pages() -> None:
    """The memory is the system's own: what other tests have freed may come back without a fault."""
    small = torch.ones(16)

    def new() -> None:
        torch.frombuffer(mmap.mmap(-1, 40 << 20), dtype=torch.float32).fill_(1.0)

    assert profile(new)["page_faults"] > 10
    assert profile(lambda: small.add_(1.0))["page_faults"] < 1


def test_a_program_that_waits_keeps_no_core_busy() -> None:
    found = profile(lambda: time.sleep(0.01))

    assert found["busy_cores"] < 0.5
    assert 0.5 < found["alone"] < 2


def test_calls_with_one_thread_change_the_number_only_for_a_while() -> None:
    seen = set()

    def call() -> None:
        seen.add(torch.get_num_threads())

    profile(call)

    assert {1, THREADS} == seen
    assert torch.get_num_threads() == THREADS


def test_slow_calls_are_not_repeated_with_one_thread() -> None:
    assert profile(lambda: time.sleep(0.1))["alone"] is None
