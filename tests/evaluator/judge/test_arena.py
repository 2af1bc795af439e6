from __future__ import annotations

import ctypes
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.arena import Arena, lay_out, open_arena
from stark.evaluator.candidate.driver import Driver as CudaDriver


def test_slots_keep_form_and_do_not_overlap() -> None:
    forms = [
        torch.empty(3, 5),
        torch.empty(7, dtype=torch.bfloat16),
        torch.empty(4, 6).t(),
        torch.empty(0, 3),
        torch.tensor(2),
    ]
    slots, end = lay_out(forms)
    arena = Arena(end, torch.device("cpu"))
    views = [slot.view(arena.block) for slot in slots]

    for number, view in enumerate(views):
        view.fill_(number)

    assert [(f.shape, f.stride(), f.dtype) for f in forms] == [
        (v.shape, v.stride(), v.dtype) for v in views
    ]
    assert all(bool((view == number).all()) for number, view in enumerate(views))


def test_both_sides_see_the_same_memory() -> None:
    arena = Arena(1000, torch.device("cpu"))

    other = open_arena(arena.size, torch.device("cpu"), arena.handle, arena.descriptor)
    arena.block[:4] = torch.tensor([1, 2, 3, 4], dtype=torch.uint8)

    assert [1, 2, 3, 4] == other[:4].tolist()


class Driver:
    """A CUDA driver whose calls answer with these codes, one after the other."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.codes.pop(0)

    def cuGetErrorString(self, code: int, said: Any) -> int:
        ctypes.cast(said, ctypes.POINTER(ctypes.c_char_p))[0] = b"invalid device context"
        return 0


def test_a_call_of_the_driver_that_fails_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver(201))

    with pytest.raises(RuntimeError, match=r"cuMemFree_v2 .* error 201, invalid device context"):
        CudaDriver().free(1)


def test_memory_that_torch_keeps_is_given_back_before_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, emptied = Driver(2, 0, 2, 2), []
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(len(driver.codes)))

    assert 0 == CudaDriver().allocate(1)
    with pytest.raises(torch.OutOfMemoryError):
        CudaDriver().allocate(1)
    assert [3, 1] == emptied
