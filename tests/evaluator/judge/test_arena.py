from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.arena import Arena, lay_out, open_arena  # noqa: E402


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
