"""What the judge makes of the results of calls that it times on a CPU, with programs that run in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.evaluation import Incorrect
from stark.core.precision import floor_of
from stark.core.problem import Problem
from stark.evaluator.judge import visit_contents
from stark.evaluator.judge.attempt import Verdict
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.inputs import Drawn
from stark.evaluator.judge.processes.memory import addresses
from stark.evaluator.judge.running import RunningReference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.trial import Called, Trial
from stark.evaluator.judge.visit_contents import VisitContents
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

CALLS = 4

Forward = Callable[[Any], Any]
Answer = dict[str, Any]


class Program:
    """Stands for a process: what it returned lies in this one's memory."""

    def __init__(self, shared: SharedSet, forward: Forward) -> None:
        self.shared, self.forward = shared, forward
        self.returned: list[Any] = []
        """All results so far, none of which moves."""

        self.runner_pid = os.getpid()
        self.state_at: list[int] = []

    def call(self) -> Answer:
        self.returned.append(self.forward(self.shared.inputs[0][0]))
        return {"at": [self.returned[-1].data_ptr()], "odd": None}


class Window:
    """A candidate and a reference, their contents, and how often the oracle was asked."""

    def __init__(self, folder: Path, body: str, honest: Forward) -> None:
        forkserver: Any = SimpleNamespace(folder=folder)
        problem = Problem(name="made_up", source=SOURCE.format(body=body))
        self.prepared = PreparedReference(problem, torch.device("cpu"), CPU, forkserver)
        self.candidate = Program(self.prepared.shared, honest)
        self.reference = Program(self.prepared._new_shared_set("eager"), honest)
        self.asked = 0
        results = len(self.prepared.signature.outputs) + len(self.prepared.program.changes)
        self.contents = VisitContents(
            self.prepared,
            self.candidate,
            [RunningReference(self.reference, self.reference.shared)],
            [floor_of("fp32-split", "float32")] * results,
            "search",
        )
        self._ask_oracle = self.contents._results.ask_oracle
        self.contents._results.ask_oracle = self.ask_oracle  # type: ignore[method-assign]
        self.unused = list(self.contents._unused)
        self.contents._unused.clear()
        self.contents.turn(CALLS)

    def ask_oracle(self, called: Called, drawn: Drawn, trial: Trial) -> None:
        self.asked += 1
        assert all(not self._shared(each) for each in called.results), (
            "the candidate could change them"
        )
        self._ask_oracle(called, drawn, trial)

    def _shared(self, tensor: torch.Tensor) -> bool:
        block = self.candidate.shared.arena.block
        return 0 <= tensor.data_ptr() - block.data_ptr() < block.numel()

    def visit(self, place: int, change: Callable[[Answer], Answer] = lambda answer: answer) -> None:
        """Every call of a program in a round; `change` is what becomes of its answers."""
        program = (self.candidate, self.reference)[place]
        for number in range(CALLS + 1):
            self.contents.write(place, number)
            answer = change(program.call())
            if number:
                self.contents.read(place, number, answer)

    def round(self) -> None:
        for place in (1, 0):
            self.visit(place)


@pytest.fixture(autouse=True)
def all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit_contents, "COMPARED_SHARE", 1.0)
    shares = dict.fromkeys(visit_contents.VERIFIED_SHARE, 0.0)
    monkeypatch.setattr(visit_contents, "VERIFIED_SHARE", shares)


@pytest.fixture
def window(tmp_path: Path) -> Window:
    return Window(tmp_path, "return x * 2 + 1", lambda x: x * 2 + 1)


def refusal(decide: Callable[..., None], *given: object) -> str:
    """With what words the candidate is found wrong."""
    with pytest.raises(Verdict) as raised:
        decide(*given)
    assert isinstance(raised.value.evaluation, Incorrect)
    return raised.value.evaluation.error.removeprefix("while the candidate was timed, ")


def test_the_oracle_is_not_asked_about_right_results(window: Window) -> None:
    for _ in range(3):
        window.round()
        window.contents.turn(CALLS)
    window.round()
    window.contents.end()

    assert 0 == window.asked


def test_every_call_has_new_inputs_which_are_the_same_for_all(window: Window) -> None:
    seen: list[list[Any]] = [[], []]
    for _ in range(2):
        for place, program in ((0, window.candidate), (1, window.reference)):
            for number in range(CALLS + 1):
                window.contents.write(place, number)
                seen[place].append(tuple(program.shared.inputs[0][0].flatten().tolist()))
        window.contents.turn(CALLS)

    assert seen[0] == seen[1]
    assert 2 * (CALLS + 1) == len(set(seen[0]))


@pytest.mark.parametrize("when", ["in the next round", "at the end"])
def test_one_wrong_result_is_found(window: Window, when: str) -> None:
    window.visit(1)
    window.candidate.forward = lambda x: (
        x * 2 + (1.01 if len(window.candidate.returned) == 2 else 1)
    )
    window.visit(0)

    finish = window.contents.end if when == "at the end" else lambda: window.contents.turn(CALLS)

    assert refusal(finish).startswith("output 0: wrong")
    assert 1 == window.asked


def test_a_part_of_the_calls_is_compared_and_chance_says_which(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit_contents, "COMPARED_SHARE", 0.5)
    chosen = set()
    for _ in range(40):
        window.contents.turn(CALLS)
        chosen.add(frozenset(window.contents._compared))

    assert {2} == set(map(len, chosen))
    assert 3 < len(chosen)


def test_large_results_are_compared_less_often(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit_contents, "KEPT_BYTES", 1)

    window.contents.turn(CALLS)

    assert 1 == len(window.contents._compared)


def test_a_call_that_the_reference_did_not_make_is_compared_with_the_oracle(window: Window) -> None:
    window.visit(0)

    window.contents.turn(CALLS)

    assert CALLS == window.asked


@pytest.mark.parametrize("at", [[], None, [0], [1 << 64], ["here"]])
def test_who_does_not_say_where_results_lie_has_none(window: Window, at: object) -> None:
    window.round()
    window.contents.turn(CALLS)
    window.visit(1)
    window.visit(0, lambda answer: {**answer, "at": at})

    assert "forward returned a result that cannot be read" in refusal(window.contents.turn, CALLS)


def test_shared_memory_is_cleared_with_what_nothing_uses(window: Window) -> None:
    shared = window.prepared.shared
    shared.arena.block.fill_(7)

    shared.renew()

    assert not shared.arena.block.any()


def test_results_left_from_an_earlier_call_are_wrong(window: Window) -> None:
    window.visit(1)
    first: list[Answer] = []

    def earlier(answer: Answer) -> Answer:
        first.append(answer)
        return first[0]

    window.visit(0, earlier)

    assert "output 0: wrong" in refusal(window.contents.turn, CALLS)


def test_an_odd_form_is_told(window: Window) -> None:
    window.visit(1)
    window.visit(0, lambda answer: {"at": [], "odd": ["float32[3] on cpu"]})

    said = refusal(window.contents.turn, CALLS)

    assert said.startswith("forward returned float32[3] on cpu; expected ")


def test_an_input_that_the_candidate_changed_is_found(window: Window) -> None:
    window.candidate.forward = lambda x: x.mul_(2) + 1
    window.visit(0)

    assert "forward changed its input 0 in place" in refusal(window.contents.turn, CALLS)


def test_inputs_that_the_reference_changes_are_results(tmp_path: Path) -> None:
    changing = Window(tmp_path, "return x.mul_(2) + 1", lambda x: x.mul_(2) + 1)
    changing.round()
    changing.contents.turn(CALLS)
    assert 0 == changing.asked
    changing.candidate.forward = lambda x: x * 2 + 1
    changing.round()

    said = refusal(changing.contents.turn, CALLS)

    assert said.startswith("input 0 after the call: wrong")


def test_results_in_strange_memory_are_refused(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit_contents, "strange_memory", lambda *_: "a mapped file")

    assert "its results lay in a mapped file" in refusal(window.visit, 0)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ([2, 3], [2, 3]),
        ([2, 3, 4], [2, 3]),
        ([], [0, 0]),
        (None, [0]),
        ("0x1000", [0]),
        ({"1": [2]}, [0]),
        ([-1, (1 << 64) - 1, 1 << 64, 10**400], [0, (1 << 64) - 1, 0, 0]),
        ([2.0, "3", None, [4]], [0, 0, 0, 0]),
    ],
)
def test_an_address_is_a_word_or_nowhere(at: object, expected: list[int]) -> None:
    assert expected == addresses(at, len(expected))


def visit_verified(window: Window, trials: list[Any]) -> list[int]:
    """A round with one more call, on inputs of verification. Returns the numbers of calls that do not count."""
    window.contents._unused = trials
    last = window.contents.turn(CALLS)
    assert last == CALLS + 1
    for place in (1, 0):
        for number in range(last + 1):
            window.contents.write(place, number)
            answer = (window.candidate, window.reference)[place].call()
            if number:
                window.contents.read(place, number, answer)
    return [number for number in range(1, last + 1) if number in window.contents.uncounted]


def test_calls_on_inputs_of_verification_are_among_the_timed_ones(window: Window) -> None:
    assert len(window.unused) > 2, "usual inputs and regimes"
    for trial in window.unused:
        assert len(visit_verified(window, [trial])) == 1

    window.contents.turn(CALLS)

    assert window.asked == len(window.unused), "the oracle is asked about each of them"


def test_who_is_careful_only_where_it_is_verified_is_found(tmp_path: Path) -> None:
    window = Window(tmp_path, "return torch.softmax(x, dim=-1)", lambda x: torch.softmax(x, dim=-1))
    window.candidate.forward = lambda x: torch.softmax(x.clamp(0, 1), dim=-1)
    large = next(trial for trial in window.unused if trial.regime == "large")

    visit_verified(window, [large])

    assert "wrong" in refusal(window.contents.turn, CALLS)


def test_a_candidate_cannot_know_the_call_that_the_oracle_judges(window: Window) -> None:
    """It may have seen all inputs of verification."""
    trials = window.prepared.trials
    seen = {tuple(trials.drawn(each).tensors[0].flatten().tolist()) for each in trials.always}

    (number,) = visit_verified(window, trials.kinds[:1])
    window.contents.write(0, number)

    assert tuple(window.candidate.shared.inputs[0][0].flatten().tolist()) not in seen
    window.contents.turn(CALLS)
    assert 1 == window.asked


def test_small_columns_that_are_left_out_once_timed_are_found(tmp_path: Path) -> None:
    def falling(x: Any) -> Any:
        return x * torch.exp(-2.0 * torch.arange(8))

    def careless(x: Any) -> Any:
        return falling(x) * (torch.arange(8) < 6)

    window = Window(tmp_path, "return x * torch.exp(-2.0 * torch.arange(8))", falling)
    window.round()
    window.contents.turn(CALLS)
    assert 0 == window.asked
    window.candidate.forward = careless
    window.round()

    assert "2 columns, the first being 6, are wrong" in refusal(window.contents.turn, CALLS)


def test_inputs_of_verification_that_nobody_read_come_again(window: Window) -> None:
    window.contents._unused = [window.unused[0]]
    window.contents.turn(CALLS)
    assert not window.contents._unused

    assert window.contents.turn(CALLS) == CALLS + 1
    assert window.contents._verified
