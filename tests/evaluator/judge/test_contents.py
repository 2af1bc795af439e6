"""What a timing window on a GPU makes of the results of its calls, with programs that run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.evaluation import Incorrect
from stark.core.problem import Problem
from stark.evaluator.judge import contents
from stark.evaluator.judge.attempt import Verdict
from stark.evaluator.judge.contents import TimedContents
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.room import Room
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.program import Block
from stark.evaluator.judge.timing.rounds import Round
from stark.evaluator.judge.trials import Expected
from stark.evaluator.judge.verify.oracle import FLOORS
from stark.evaluator.judge.verifying import check_results
from support.nodes import CPU

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        {body}

def get_inputs():
    return [torch.rand(16, 8)]

def get_init_inputs():
    return []
"""

LAST = 2
"""The slot of calls that come alone."""

SLOTS = [LAST, 0]
"""Of a round's block, in the order of its calls."""

Forward = Callable[[Any], Any]


class Program:
    """Stands for a process that writes its results into the memory that it shares with the judge."""

    def __init__(self, shared: SharedSet, forward: Forward) -> None:
        self.shared, self.forward = shared, forward

    def call(self, slots: list[int], odd: object = None) -> Block:
        for slot in slots:
            self.shared.outputs[slot][0].copy_(self.forward(self.shared.inputs[slot][0]))
        return Block(slots, odd)


class Window:
    """A candidate and a reference, their contents, and which slots the oracle was asked about."""

    def __init__(self, folder: Path, body: str, honest: Forward) -> None:
        forkserver: Any = SimpleNamespace(folder=folder)
        problem = Problem(name="made_up", source=SOURCE.format(body=body))
        self.prepared = PreparedReference(problem, torch.device("cpu"), CPU, forkserver)
        self.prepared.settle = lambda: None  # type: ignore[method-assign]
        self.candidate = Program(self.prepared.shared, honest)
        self.reference = Program(self.prepared._new_shared_set("eager"), honest)
        self.asked: list[int] = []
        results = len(self.prepared.signature.outputs) + len(self.prepared.program.changes)
        reference: Any = self.reference
        self.contents = TimedContents(
            self.prepared, [reference], 10.0, [FLOORS[torch.float32]] * results, self.check
        )
        self.contents.turn(None)

    def check(self, slot: int, drawn: Any, expected: Any, odd: object) -> None:
        self.asked.append(slot)
        check_results(self.prepared, slot, Expected(drawn, expected), odd, "")

    def round(self) -> Round:
        """Inputs are written and everyone called."""
        for place in (0, 1):
            self.contents.write(place, SLOTS)
        return [self.candidate.call(SLOTS), self.reference.call(SLOTS)]

    def call_alone(self, forward: Forward) -> Block:
        """What a candidate makes of the call that comes alone."""
        self.contents.write_alone(0)
        return Program(self.prepared.shared, forward).call([LAST])


@pytest.fixture(autouse=True)
def three_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "slots", LAST + 1)
    monkeypatch.setattr(contents, "COMPARED_SHARE", 1.0)


@pytest.fixture
def never_compared(three_slots: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "COMPARED_SHARE", 0.0)


@pytest.fixture
def window(tmp_path: Path) -> Window:
    return Window(tmp_path, "return x * 2 + 1", lambda x: x * 2 + 1)


@pytest.fixture
def changing(tmp_path: Path) -> Window:
    """The reference doubles its input in place."""
    return Window(tmp_path, "return x.mul_(2) + 1", lambda x: x.mul_(2) + 1)


def refusal(decide: Callable[[Any], None], *given: object) -> str:
    """With what words the candidate is found wrong."""
    with pytest.raises(Verdict) as raised:
        decide(*given)
    assert isinstance(raised.value.evaluation, Incorrect)
    return raised.value.evaluation.error


def test_right_results_are_asked_of_the_oracle_once_at_the_end(window: Window) -> None:
    for _ in range(3):
        window.contents.turn(window.round())
    last = window.round()
    assert [] == window.asked

    window.contents.end(last)

    assert 1 == len(window.asked)
    assert window.asked[0] in SLOTS


def test_every_round_has_new_inputs_which_are_the_same_for_all(window: Window) -> None:
    seen = []
    for _ in range(2):
        last = window.round()
        for slot in SLOTS:
            ours, theirs = (
                one.shared.inputs[slot][0] for one in (window.candidate, window.reference)
            )
            assert torch.equal(ours, theirs)
            seen.append(tuple(ours.flatten().tolist()))
        window.contents.turn(last)

    assert 2 * len(SLOTS) == len(set(seen))


def test_one_wrong_result_of_a_block_is_found(window: Window) -> None:
    last = window.round()
    window.candidate.shared.outputs[SLOTS[-1]][0][3, 3] += 0.01

    assert refusal(window.contents.turn, last).startswith("output 0: wrong")
    assert [SLOTS[-1]] == window.asked


def test_the_last_round_is_looked_at_whatever_chance_says(
    never_compared: None, window: Window
) -> None:
    for _ in range(2):
        last = window.round()
        window.candidate.shared.outputs[SLOTS[-1]][0].add_(1.0)
        window.contents.turn(last)
    last = window.round()
    window.candidate.shared.outputs[SLOTS[-1]][0].add_(1.0)
    assert [] == window.asked

    assert "output 0: wrong" in refusal(window.contents.end, last)


def test_an_odd_form_is_told(window: Window) -> None:
    _, theirs = window.round()
    window.candidate.shared.outputs[0][0].fill_(float("nan"))

    said = refusal(window.contents.turn, [Block(SLOTS, ["float32[3] on cuda"]), theirs])

    assert said.startswith("forward returned float32[3] on cuda; expected ")


def test_an_input_that_the_candidate_changed_is_found_in_every_round(
    never_compared: None, window: Window
) -> None:
    window.candidate.forward = lambda x: x.mul_(2) + 1

    said = refusal(window.contents.turn, window.round())

    assert "forward changed its input 0 in place" in said


def test_inputs_that_the_reference_changes_are_results(changing: Window) -> None:
    changing.contents.turn(changing.round())
    assert [] == changing.asked
    changing.candidate.forward = lambda x: x * 2 + 1

    said = refusal(changing.contents.turn, changing.round())

    assert said.startswith("input 0 after the call: wrong")


def test_a_call_that_comes_alone_is_looked_at(window: Window) -> None:
    window.contents.take(0, window.call_alone(window.candidate.forward))
    wrong = window.call_alone(lambda x: x * 2 + 1.01)

    assert "output 0: wrong" in refusal(window.contents.take, 0, wrong)
    assert [LAST] == window.asked


def test_a_block_has_other_inputs_than_the_call_that_came_alone_before_it(window: Window) -> None:
    inputs = window.prepared.shared.inputs[LAST][0]
    window.contents.write_alone(0)
    alone = inputs.clone()

    window.contents.write(0, [0, LAST])

    assert not torch.equal(alone, inputs)


def test_references_give_their_memory_back_where_the_oracle_lacks_it(
    monkeypatch: pytest.MonkeyPatch, window: Window
) -> None:
    last = window.round()
    window.candidate.shared.outputs[SLOTS[0]][0][0, 0] += 0.01
    expected_of, said = window.prepared.trials.expected_of, []
    free = iter([False, True])

    def scarce(drawn: Any) -> Any:
        if not next(free):
            raise torch.OutOfMemoryError("none is left")
        return expected_of(drawn)

    monkeypatch.setattr(window.prepared.trials, "expected_of", scarce)
    for name in ("resume", "give_back", "pause"):
        monkeypatch.setattr(
            Program, name, lambda self, *_, name=name: said.append(name), raising=False
        )

    assert "output 0: wrong" in refusal(window.contents.turn, last)
    assert ["resume", "give_back", "pause"] == said
