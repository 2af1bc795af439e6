"""What a program gets of the reference's weights."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.program import give_weights, reported


def test_weights_have_the_references_strides_unless_those_are_contiguous() -> None:
    last = torch.nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)
    plain = torch.nn.Conv2d(4, 8, 3)
    first, second = torch.nn.Conv2d(4, 8, 3), torch.nn.Conv2d(4, 8, 3)
    second.to(memory_format=torch.channels_last)

    give_weights(first, last.state_dict())
    give_weights(second, plain.state_dict())

    assert last.weight.stride() == first.weight.stride()
    assert torch.equal(last.weight, first.weight)
    assert last.weight.stride() == second.weight.stride(), "its own choice"
    assert torch.equal(plain.weight, second.weight)


def test_weights_that_change_stay_in_their_place() -> None:
    given = torch.nn.Linear(4, 8).weight.detach().t().contiguous().t()
    model = torch.nn.Linear(4, 8, bias=False)
    give_weights(model, {"weight": given})
    place = model.weight.data_ptr()

    give_weights(model, {"weight": 2 * given})

    assert place == model.weight.data_ptr()
    assert torch.equal(2 * given, model.weight)


def test_a_cause_without_a_text_is_told_by_the_line_that_raised_it() -> None:
    width = 3
    try:
        try:
            assert width == 4
        except AssertionError as cause:
            cause.args = ()  # pytest writes a text into it
            raise ValueError("at 2:14") from cause
    except ValueError as error:
        told = reported(error, Path("main.py"))["error"]

    assert "ValueError: at 2:14\nAssertionError: assert width == 4" == told
