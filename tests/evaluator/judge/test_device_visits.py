"""What the judge makes of a program's answers and times on a GPU, with stand-ins for both."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge import device_results, device_visits
from stark.evaluator.judge.device_calls import DeviceCalls, NotQueued
from stark.evaluator.judge.device_results import Places
from stark.evaluator.judge.device_visits import DeviceVisits, _calls_for
from stark.evaluator.judge.processes.child import Child
from stark.evaluator.judge.processes.failures import ChildFailed, ReferenceDied
from stark.evaluator.judge.trial import Trial

EMPTY_MS = 0.33


class Scripted:
    """Answers what it is given, or not in time."""

    failed = Child.failed

    def __init__(self, answer: dict[str, Any] | None, is_reference: bool = False) -> None:
        self._answer, self.is_reference = answer, is_reference
        self.asked: list[str] = []

    def answered(self, nonce: str, limit_s: float) -> dict[str, Any] | None:
        return self._answer

    def answer(self, nonce: str, limit_s: float) -> dict[str, Any]:
        return {}

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self.asked.append(request["do"])
        return {}


def program(answer: dict[str, Any] | None = None, is_reference: bool = False, **more: Any) -> Any:
    opened: list[int] = []
    block = torch.zeros(4096, dtype=torch.uint8)
    output = block[1024 : 1024 + 64].view(torch.float32).view(4, 4)
    shared = SimpleNamespace(
        arena=SimpleNamespace(block=block, handle="ab"),
        outputs=[[output]],
        inputs=[[]],
        orders=[(1, 4)],
        program=SimpleNamespace(changes=(), device=torch.device("cpu")),
    )
    given = {
        "depth": 16,
        "copies": False,
        "copied": False,
        "late": Counter(),
    } | more
    return SimpleNamespace(
        child=Scripted(answer, is_reference),
        shared=shared,
        limit_s=1.0,
        host_ms=[],
        gate=SimpleNamespace(open=opened.append, opened=opened),
        **given,
    )


@pytest.fixture
def visits() -> Any:
    found: Any = object.__new__(DeviceVisits)
    found._empty_ms, found._effort, found._per_sample = [EMPTY_MS], "search", 1.0
    found._prepared = SimpleNamespace(
        signature=SimpleNamespace(bytes_out=4_000_000_000),
        sheet=SimpleNamespace(bandwidth_gb_s=4000.0),
    )
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    found: Any = object.__new__(DeviceCalls)
    theirs = torch.zeros(4096, dtype=torch.uint8)
    found.theirs = theirs
    driver = SimpleNamespace(
        import_=lambda handle: theirs.data_ptr() + 0 * int(handle[0]),
        allocation_of=lambda at: (at, theirs.numel()),
    )
    monkeypatch.setattr(device_results, "Driver", lambda: driver)
    monkeypatch.setattr(device_results, "bytes_at", lambda *_: theirs)
    monkeypatch.setattr(
        device_results, "_bytes_of", lambda tensor: tensor.view(-1).view(torch.uint8)
    )
    return found


def found_at(calls: Any, ours: Any, at: object) -> Any:
    return calls._found(ours, {"at": at}, [0], Places(ours.shared))


@pytest.mark.parametrize(
    ("call_ms", "own_ms"),
    [
        (EMPTY_MS + 0.05, 0.05),
        (EMPTY_MS + 0.0002, device_visits.LEAST_MS),
        (EMPTY_MS - 0.001, device_visits.LEAST_MS),
        (EMPTY_MS - 0.1, EMPTY_MS - 0.1),
    ],
    ids=["usual", "shorter than anything", "noise", "without taking turns on the device"],
)
def test_what_a_call_costs_that_does_nothing_is_taken_off(
    visits: Any, call_ms: float, own_ms: float
) -> None:
    assert own_ms == pytest.approx(visits._own_ms(program(), call_ms))


def test_only_a_references_copies_are_taken_off(visits: Any) -> None:
    took_ms = EMPTY_MS + 5.0

    assert pytest.approx(5.0) == visits._own_ms(program(copies=True), took_ms)
    assert pytest.approx(3.0) == visits._own_ms(program(copies=True, is_reference=True), took_ms)


def test_a_copy_that_both_programs_make_is_left_to_both(visits: Any) -> None:
    reference = program(copied=True, is_reference=True, calls=8)

    for copied, latency_ms in ((True, 5.0), (False, 3.0)):
        found = visits.measurement(reference, [5.0, 5.0], program(copied=copied))
        assert latency_ms == pytest.approx(found.latency_ms)


def test_a_result_without_elements_lies_nowhere(calls: Any) -> None:
    ours = program()
    ours.shared.outputs, ours.shared.orders = [[torch.zeros(0, 4)]], [(4, 1)]

    (found,) = found_at(calls, ours, [[["", 0, True]]])

    assert (0, 4) == found.tensors()[0].shape


def test_a_reference_without_kernels_is_as_fast_as_can_be(visits: Any) -> None:
    took_ms = EMPTY_MS - 0.2

    assert visits._own_ms(program(is_reference=True), took_ms) == device_visits.LEAST_MS
    assert visits._own_ms(program(), took_ms) == took_ms


def test_a_program_that_cannot_queue_ahead_is_asked_for_fewer_calls_and_then_one(
    calls: Any,
) -> None:
    waiting = program(answer=None)
    depths = []
    while waiting.depth:
        with pytest.raises(NotQueued):
            calls._queued(waiting, "nonce", waiting.depth, False)
        depths.append(waiting.depth)

    assert [16, 4, 4, 1, 1, 0] == depths, "once may be the host's fault"
    assert [16, 16, 4, 4, 1, 1] == waiting.gate.opened, "what it has queued must go on"


def test_a_program_that_is_late_only_with_many_calls_queues_fewer(calls: Any) -> None:
    busy = program(answer={})
    for _ in range(2):
        calls._queued(busy, "nonce", 1, False)
        busy.child = Scripted(None)
        with pytest.raises(NotQueued):
            calls._queued(busy, "nonce", 16, False)
        busy.child = Scripted({})

    assert busy.depth == 4


def test_what_queueing_takes_is_the_hosts_time(calls: Any) -> None:
    ready = program(answer={"at": []})

    calls._queued(ready, "nonce", 4, False)
    calls._queued(ready, "nonce", 4, True)

    (host_ms,) = ready.host_ms
    assert 0 <= host_ms < 100


@pytest.mark.parametrize(("alike", "stride"), [(True, (1, 4)), (False, (4, 1)), ("yes", (4, 1))])
def test_a_result_is_read_where_it_lies_in_one_of_two_layouts(
    calls: Any, alike: object, stride: tuple[int, ...]
) -> None:
    ours = program()
    calls.theirs[2048 : 2048 + 64] = 7

    (found,) = found_at(calls, ours, [[["cd", 2048, alike]]])
    assert not ours.copied
    found.read[0].copy_(found.lying[0])

    assert {7} == set(found.read[0].tolist())
    assert stride == found.tensors()[0].stride()


@pytest.mark.parametrize(
    "at",
    [
        None,
        [],
        [[["cd", 4090, True]]],
        [[["cd", -8, True]]],
        [[["zz", 0, True]]],
        [[["ab", 0, True]]],
        [[["cd", 1 << 70, True]]],
        [[["cd", "far", True]]],
        [[[]]],
        [[["cd", 0, True], ["cd", 0, True]]],
    ],
    ids=[
        "nothing",
        "none",
        "past the end",
        "before the start",
        "no handle",
        "the arena",
        "huge",
        "text",
        "empty",
        "too many",
    ],
)
def test_results_that_cannot_be_read_are_copied_by_the_program(calls: Any, at: object) -> None:
    ours = program()

    with pytest.raises(NotQueued):
        found_at(calls, ours, at)
    assert ours.copies
    assert ["finish"] == ours.child.asked

    with pytest.raises(ChildFailed, match="cannot read its results"):
        found_at(calls, ours, at)


@pytest.mark.parametrize(("call_ms", "calls"), [(0.36, 64), (3.0, 20), (60.0, 8), (5000.0, 4)])
def test_a_visit_has_as_many_calls_as_fit(call_ms: float, calls: int) -> None:
    cost_s = call_ms / 1e3
    assert calls == _calls_for(call_ms, cost_s, "search") == _calls_for(call_ms, cost_s, "promote")
    assert min(calls, 8) == _calls_for(call_ms, cost_s, "race")


@pytest.mark.parametrize(("cost_s", "calls"), [(0.001, 64), (0.01, 25), (0.2, 8)])
def test_a_search_makes_fewer_calls_where_drawing_and_comparing_take_long(
    cost_s: float, calls: int
) -> None:
    assert calls == _calls_for(0.36, cost_s, "search")
    assert 64 == _calls_for(0.36, cost_s, "promote")


def test_a_visit_for_half_of_the_samples_has_half_of_the_calls(visits: Any) -> None:
    made: list[int] = []

    def time(program: Any, trials: list[Trial], compare: object) -> list[float]:
        made.append(len(trials))
        return [1.0] * len(trials)

    visits._random, visits._samples = random.SystemRandom(), 8
    visits._made = SimpleNamespace(time=time, together=64)

    for visits._per_sample in (2.5, 0.5):  # the latter of calls over a tenth of a second
        for samples in (8, 4):
            assert samples == len(visits.visit(program(depth=64), samples))

    assert [1, 2, 20, 1, 2, 10, 1, 2, 8, 1, 2, 4] == made


def test_a_visit_that_begins_again_has_other_calls_for_the_oracle(visits: Any) -> None:
    """A candidate that has seen them could be late once, and be right on them alone."""
    chosen: list[Trial] = []
    seen: list[Trial] = []

    def choose() -> list[Trial]:
        chosen.append(Trial.fresh())
        return chosen[-1:]

    def time(program: Any, trials: list[Trial], compare: object) -> list[float]:
        seen.extend(trials)
        if chosen[0] in trials:
            raise NotQueued
        return [1.0] * len(trials)

    visits._random, visits._samples, visits._per_sample = random.SystemRandom(), 4, 2.0
    visits._made = SimpleNamespace(time=time, together=16)

    taken = visits.visit(program(), 4, lambda *_: None, choose)

    assert 4 == len(taken)
    assert 2 == len(chosen) == len(set(chosen) & set(seen))
    assert len(seen) == len(set(seen)), "no inputs come again"


def test_results_without_a_place_are_in_their_slot(calls: Any) -> None:
    ours = program()

    (found,) = found_at(calls, ours, [[]])

    assert ours.copied
    assert found.lying[0].data_ptr() == ours.shared.outputs[0][0].data_ptr()


def test_a_references_failure_is_not_the_candidates(calls: Any) -> None:
    with pytest.raises(ReferenceDied, match="cannot read its results"):
        found_at(calls, program(is_reference=True, copies=True), None)
