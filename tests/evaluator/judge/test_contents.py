"""What a timing window makes of the results of its calls, with programs that run in this process."""

from __future__ import annotations

import ctypes
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
from stark.evaluator.judge.contents import TimedContents, _addresses, _near
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.shared import SharedSet
from stark.evaluator.judge.timing.program import Block
from stark.evaluator.judge.timing.rounds import Round
from stark.evaluator.judge.trials import Expected
from stark.evaluator.judge.verify.oracle import CHUNKS, FLOORS
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

SLOTS = [2, 0]
"""Of a round's block, in the order of its calls."""

Forward = Callable[[Any], Any]


class Program:
    """Stands for a process: what it returned lies in this one's memory."""

    def __init__(self, shared: SharedSet, forward: Forward) -> None:
        self.shared, self.forward = shared, forward
        self.returned: list[Any] = []
        """All results so far, none of which moves."""

    def copy_out(self, source: int, target: int, size: int) -> bool:
        if source:
            ctypes.memmove(target, source, size)
        return source != 0

    def call(self, slots: list[int]) -> Block:
        results = [self.forward(self.shared.inputs[slot][0]) for slot in slots]
        self.returned += results
        return Block(slots, [[result.data_ptr()] for result in results], None)


class Window:
    """A candidate and a reference, their contents, and which slots the oracle was asked about."""

    def __init__(self, folder: Path, body: str, honest: Forward) -> None:
        forkserver: Any = SimpleNamespace(folder=folder)
        problem = Problem(name="made_up", source=SOURCE.format(body=body))
        self.prepared = PreparedReference(problem, torch.device("cpu"), CPU, forkserver)
        self.candidate = Program(self.prepared.shared, honest)
        self.reference = Program(self.prepared._new_shared_set("eager"), honest)
        self.asked: list[int] = []
        results = len(self.prepared.signature.outputs) + len(self.prepared.program.changes)
        reference: Any = self.reference
        self.contents = TimedContents(
            self.prepared,
            self.candidate,
            [reference],
            10.0,
            [FLOORS[torch.float32]] * results,
            self.check,
        )
        self.contents.turn(None)

    def check(self, slot: int, drawn: Any, expected: Any, odd: object) -> None:
        self.asked.append(slot)
        check_results(self.prepared, slot, Expected(drawn, expected), odd, "")

    def write(self) -> None:
        for place in (0, 1):
            self.contents.write(place, SLOTS)

    def round(self) -> Round:
        """Inputs are written and everyone called."""
        self.write()
        return [self.candidate.call(SLOTS), self.reference.call(SLOTS)]

    def call_before(self) -> None:
        """What both make of the untimed call that precedes a block."""
        kept = [self.prepared.slots - 1]
        for place, program in enumerate((self.candidate, self.reference)):
            self.contents.take(place, program.call(kept))


@pytest.fixture(autouse=True)
def always_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "COMPARED_SHARE", 1.0)


@pytest.fixture
def never_compared(always_compared: None, monkeypatch: pytest.MonkeyPatch) -> None:
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
        last = window.round()
        window.call_before()
        window.contents.turn(last)
    last = window.round()
    window.call_before()
    assert [] == window.asked

    window.contents.end(last)

    assert 1 == len(window.asked)
    assert window.asked[0] in SLOTS


def test_every_round_has_new_inputs_which_are_the_same_for_all(window: Window) -> None:
    kept, seen = window.prepared.slots - 1, []
    for _ in range(2):
        last = window.round()
        for slot in (*SLOTS, kept):
            ours, theirs = (
                one.shared.inputs[slot][0] for one in (window.candidate, window.reference)
            )
            assert torch.equal(ours, theirs)
            seen.append(ours.clone())
        window.contents.turn(last)

    different = {tuple(one.flatten().tolist()) for one in seen}
    assert 2 * (len(SLOTS) + 1) == len(different)


def test_calls_that_are_asked_for_one_by_one_have_new_inputs_which_are_the_same_for_all(
    window: Window,
) -> None:
    kept = window.prepared.slots - 1
    seen = []
    for _ in range(2):
        last = window.round()
        for place, program in enumerate((window.candidate, window.reference)):
            for number in range(3):
                window.contents.write_alone(place, number)
                seen.append(tuple(program.shared.inputs[kept][0].flatten().tolist()))
        window.contents.turn(last)

    assert seen[:3] == seen[3:6]
    assert seen[6:9] == seen[9:]
    assert 6 == len(set(seen))


def test_one_wrong_result_of_a_block_is_found(window: Window) -> None:
    last = window.round()
    window.candidate.returned[-1][3, 3] += 0.01

    said = refusal(window.contents.turn, last)

    assert said.startswith("output 0: wrong")
    assert [SLOTS[-1]] == window.asked


def test_the_last_round_is_looked_at_whatever_chance_says(
    never_compared: None, window: Window
) -> None:
    first_is_chosen: Any = SimpleNamespace(choice=lambda slots: slots[0], random=lambda: 0.5)
    window.contents._random = first_is_chosen
    for _ in range(2):
        last = window.round()
        window.candidate.returned[-1] += 1.0
        window.contents.turn(last)
    last = window.round()
    window.candidate.returned[-1] += 1.0
    assert [] == window.asked

    assert "output 0: wrong" in refusal(window.contents.end, last)
    assert [SLOTS[-1]] == window.asked


@pytest.mark.parametrize("at", [[], None, [[0], [0]], [[1 << 64], ["here"]]])
def test_who_does_not_say_where_results_lie_has_none(window: Window, at: object) -> None:
    window.contents.turn(window.round())  # the right results of an earlier round were there
    ours, theirs = window.round()

    said = refusal(window.contents.turn, [Block(ours.slots, at, None), theirs])

    assert "NaN" in said


def test_results_left_from_an_earlier_round_are_wrong(window: Window) -> None:
    earlier = window.round()
    window.contents.turn(earlier)
    _, theirs = window.round()

    assert "output 0: wrong" in refusal(window.contents.turn, [earlier[0], theirs])


def test_an_odd_form_is_told(window: Window) -> None:
    ours, theirs = window.round()

    said = refusal(window.contents.turn, [Block(ours.slots, [], ["float32[3] on cpu"]), theirs])

    assert said.startswith("forward returned float32[3] on cpu; expected ")


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


def test_the_untimed_call_must_be_right_too(never_compared: None, window: Window) -> None:
    last = window.round()
    window.candidate.forward = lambda x: x * 2
    window.call_before()

    assert "output 0: wrong" in refusal(window.contents.turn, last)
    assert [window.prepared.slots - 1] == window.asked


def test_the_untimed_call_may_not_change_its_input(window: Window) -> None:
    window.round()
    window.candidate.forward = lambda x: x.mul_(2) + 1

    with pytest.raises(Verdict):
        window.call_before()


@pytest.mark.parametrize("wrong", ["candidate", "reference"])
def test_what_the_untimed_call_left_is_judged_with_its_own_inputs(
    never_compared: None, window: Window, wrong: str
) -> None:
    last = window.round()
    getattr(window, wrong).forward = lambda x: x * 2 + 1.01
    window.call_before()
    for place in (0, 1):
        window.contents.write_alone(place, 0)  # other inputs lie there by the time of the look

    if wrong == "candidate":
        assert "NaN" not in refusal(window.contents.turn, last)
    else:
        window.contents.turn(last)

    assert [window.prepared.slots - 1] == window.asked


def test_no_other_reference_is_taken_from(window: Window) -> None:
    last = window.round()

    window.contents.take(2, window.candidate.call([window.prepared.slots - 1]))

    window.contents.turn(last)
    assert [] == window.asked


def rounded(dtype: Any, by: float, size: int = 1000) -> tuple[Any, Any]:
    """Numbers, and the same a little larger or smaller."""
    torch.manual_seed(0)
    numbers = torch.randn(size, dtype=dtype)
    signs = torch.sign(torch.rand(size) - 0.5).to(torch.float64)
    return (numbers * (1 + by * signs)).to(dtype), numbers


@pytest.mark.parametrize(
    ("dtype", "rounding", "too_much", "limit"),
    [
        (torch.float64, 1e-15, 1e-9, 1.5e-12),
        (torch.float32, 1e-7, 1e-3, 3e-5),
        (torch.float16, 5e-4, 1e-1, 1.5e-3),
        (torch.bfloat16, 4e-3, 1e-1, 6e-3),
        (torch.complex64, 1e-7, 1e-3, 3e-5),
        (torch.complex128, 1e-15, 1e-9, 1.5e-12),
    ],
)
def test_results_are_near_up_to_rounding(
    dtype: Any, rounding: float, too_much: float, limit: float
) -> None:
    ours, theirs = rounded(dtype, rounding)
    assert not torch.equal(ours, theirs)

    assert _near(ours, theirs, limit)
    assert not _near(*rounded(dtype, too_much), limit)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_double_precision_is_not_compared_in_a_lower_one(dtype: Any) -> None:
    numbers = torch.full((100,), 1.5, dtype=dtype)

    assert not _near(numbers + 1e-9, numbers, 1.5e-12)


def test_an_imaginary_part_counts() -> None:
    numbers = torch.randn(100, dtype=torch.complex64)

    assert _near(numbers.conj(), numbers.conj().resolve_conj(), 1e-6)
    assert not _near(numbers.conj(), numbers, 1e-2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_whole_numbers_and_truth_values_are_equal(dtype: Any) -> None:
    ones, other = torch.ones(100, dtype=dtype), torch.ones(100, dtype=dtype)
    assert _near(ones, other, 1e6)

    other[7] = 0

    assert not _near(ones, other, 1e6)


def test_nan_is_near_nothing_so_that_the_oracle_is_asked() -> None:
    numbers = torch.full((100,), float("nan"))

    assert not _near(numbers, numbers, 1.0)
    assert not _near(numbers, torch.ones(100), 1.0)


def test_numbers_too_large_to_be_squared_are_near_nothing() -> None:
    large = torch.full((100,), 1e30)

    assert not _near(-large, large, 1e-5)
    assert not _near(torch.zeros(100), large, 1e-5)


def test_every_piece_is_looked_at() -> None:
    ours, theirs = rounded(torch.float32, 0.0, CHUNKS["cpu"] + 1)
    assert _near(ours, theirs, 1e-6)

    ours[-1] += 1.0

    assert not _near(ours, theirs, 1e-6)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ([[1], [2, 3]], [2, 3]),
        ([[1], []], []),
        ([[1]], []),
        ([], []),
        (None, []),
        ("0x1000", []),
        ({"1": [2]}, []),
        ([[1], 7], []),
        ([[1], [-1, (1 << 64) - 1, 1 << 64]], [0, (1 << 64) - 1, 0]),
        ([[1], [2.0, "3", None, [4]]], [0, 0, 0, 0]),
    ],
)
def test_an_address_is_a_word_or_nowhere(at: object, expected: list[int]) -> None:
    assert expected == _addresses(at, 1)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, window: Window) -> Window:
    """The same window where results are written to the slots by the programs themselves."""
    monkeypatch.setattr(window.prepared, "device", SimpleNamespace(type="cuda"))
    monkeypatch.setattr(window.prepared, "settle", lambda: None)
    return window


def call_alone(window: Window, forward: Forward) -> Block:
    """What a candidate makes of the call that comes alone."""
    kept = window.prepared.slots - 1
    window.contents.write_alone(0, 0)
    shared = window.prepared.shared
    shared.outputs[kept][0].copy_(forward(shared.inputs[kept][0]))
    return Block([kept], None, None)


def test_a_call_that_comes_alone_on_a_gpu_is_looked_at(as_on_a_gpu: Window) -> None:
    right = call_alone(as_on_a_gpu, as_on_a_gpu.candidate.forward)
    as_on_a_gpu.contents.take(0, right)
    wrong = call_alone(as_on_a_gpu, lambda x: x * 2 + 1.01)

    assert "output 0: wrong" in refusal(as_on_a_gpu.contents.take, 0, wrong)
    assert [as_on_a_gpu.prepared.slots - 1] == as_on_a_gpu.asked


def test_a_block_has_other_inputs_than_the_call_that_came_alone_before_it(
    as_on_a_gpu: Window,
) -> None:
    kept = as_on_a_gpu.prepared.slots - 1
    inputs = as_on_a_gpu.prepared.shared.inputs[kept][0]
    as_on_a_gpu.contents.write_alone(0, 0)
    alone = inputs.clone()

    as_on_a_gpu.contents.write(0, [0, kept])

    assert not torch.equal(alone, inputs)


def test_references_give_their_memory_back_where_the_oracle_lacks_it(
    monkeypatch: pytest.MonkeyPatch, window: Window
) -> None:
    last = window.round()
    window.candidate.returned[0][0, 0] += 0.01
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
