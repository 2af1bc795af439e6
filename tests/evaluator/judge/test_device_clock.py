"""In which order programs are visited on a GPU, with visits that are only noted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.core.evaluation import Effort
from stark.core.precision import floor_of
from stark.core.problem import Problem
from stark.evaluator.judge import measuring
from stark.evaluator.judge.attempt import Attempt, Verdict
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.problem.regimes import EXCHANGED, OUTLIERS, REGIMES, SIGNS
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.timed_results import TimedResults
from stark.evaluator.judge.trial import Called, Trial
from stark.evaluator.protocol import Evaluate
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.nodes import CPU, measurement

LOG: list[str] = []


class Visits:
    """Notes who is visited."""

    def __init__(self, prepared: object, samples: int, effort: Effort) -> None:
        LOG.clear()

    def measure_empty(self, reference: Any) -> None:
        LOG.append("empty")

    def visit(
        self, program: Any, samples: int, compare: object = None, among: object = ()
    ) -> tuple[float, ...]:
        LOG.append(program.name)
        return (1.0,) * samples

    def measurement(self, program: Any, samples_ms: Any, beside: object = None) -> Any:
        return measurement(1.0).model_copy(update={"samples_ms": samples_ms})


def visited(child: Any, shared: object, limit_s: float) -> Any:
    return SimpleNamespace(name=child.name, depth=16, copies=False)


def child(number: int) -> Any:
    return SimpleNamespace(
        name=f"candidate {number}",
        ask=lambda *_: {},
        close=lambda: LOG.append(f"end {number}"),
    )


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The device's free bytes, one after the other; the last one stays."""
    left = [10e9]
    monkeypatch.setattr(measuring, "DeviceVisits", Visits)
    monkeypatch.setattr(measuring, "Visited", visited)
    monkeypatch.setattr(
        measuring, "_free_bytes", lambda _: left.pop(0) if len(left) > 1 else left[0]
    )
    monkeypatch.setattr(measuring, "GONE_S", 0.05)
    return left


def clock(effort: Effort, *names: str) -> tuple[Any, Attempt]:
    request = Evaluate(
        id="1", problem=PROBLEM, candidate=as_candidate("cpp", FAULTS["honest"][0]), effort=effort
    )
    attempt = Attempt(request, Patience())
    running: Any = {
        name: SimpleNamespace(
            child=SimpleNamespace(name=name, resume=lambda: None),
            shared=None,
            give_back=lambda _: None,
        )
        for name in names
    }
    prepared: Any = SimpleNamespace(
        slack_s=0.0,
        reference_s=0.001,
        device=None,
        shared=SimpleNamespace(fill_inputs=lambda *_: None),
        settle=lambda: None,
        room=SimpleNamespace(keeps_all=True),
        precision="fp32-split",
        trials=SimpleNamespace(drawn=lambda _: None, nominal=[None], always=[None]),
    )
    return measuring.DeviceClock(attempt, running, prepared), attempt


def run(clock: Any) -> Any:
    clock.time(child(0), SimpleNamespace(budgets=()))
    LOG.append("end 0")
    started = iter(range(1, 99))
    return clock.end(lambda: closing(child(next(started))))


def test_a_search_visits_the_reference_before_and_after_the_candidate(free: list[float]) -> None:
    found, _ = clock("search", "eager")

    ours, theirs = run(found)

    assert ["empty", "eager", "candidate 0", "end 0", "eager"] == LOG
    assert len(ours.samples_ms) == len(theirs["eager"].samples_ms) == 8


def test_no_process_of_the_candidate_lives_while_a_reference_is_visited(free: list[float]) -> None:
    found, _ = clock("promote", "eager", "compile")

    ours, theirs = run(found)

    alive: set[str] = set()
    for one in LOG:
        if one.startswith("candidate"):
            alive.add(one.split()[1])
        elif one.startswith("end"):
            alive.remove(one.split()[1])
        else:
            assert not alive, f"{one} is visited beside the candidate: {LOG}"
    rounds = len(ours.samples_ms)
    assert measuring.MIN_ROUNDS <= rounds <= measuring.MAX_ROUNDS
    assert [rounds] * 2 == [len(each.samples_ms) for each in theirs.values()]
    assert rounds == len({one for one in LOG if one.startswith("candidate")}), "a process each"


def test_references_wait_until_the_candidates_memory_is_free(free: list[float]) -> None:
    found, attempt = clock("search", "eager")
    free[:] = [9e9, 9e9, 10e9]

    run(found)

    assert [10e9] == free
    assert not attempt.warnings


def test_memory_that_another_program_takes_is_a_warning(free: list[float]) -> None:
    found, attempt = clock("search", "eager")
    free[:] = [9e9]

    run(found)

    assert ["another program used the device meanwhile; times may be too long"] == attempt.warnings


SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * torch.exp(-torch.arange(32.0))

def get_inputs():
    return [torch.rand(64, 32)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def comparing(tmp_path: Path) -> Any:
    """A clock that compares results, here of a CPU."""
    forkserver: Any = SimpleNamespace(folder=tmp_path)
    found: Any = object.__new__(measuring.DeviceClock)
    found._prepared = PreparedReference(
        Problem(name="made_up", source=SOURCE), torch.device("cpu"), CPU, forkserver
    )
    found._attempt, found._running, found._child = SimpleNamespace(effort="search"), {}, None
    found._results = TimedResults(found._prepared, [floor_of("fp32-split", "float32")])
    found._choose()
    return found


def compare(clock: Any, trial: Trial, forward: Callable[[Any], Any]) -> None:
    drawn = clock._prepared.trials.drawn(trial)
    clock._compare(trial, drawn, Called([forward(drawn.tensors[0])]))


def right(x: Any) -> Any:
    return x * torch.exp(-torch.arange(32.0))


def test_right_results_of_timed_calls_pass(comparing: Any) -> None:
    for trial in (Trial.fresh(), *comparing._judged):
        compare(comparing, trial, right)


def test_calls_for_the_oracle_are_of_all_kinds_and_not_those_of_verification(
    comparing: Any,
) -> None:
    trials = comparing._prepared.trials

    assert [
        None,
        *(each for each in REGIMES if each != SIGNS),
        *(EXCHANGED, EXCHANGED, OUTLIERS),
    ] == [each.regime for each in comparing._judged]
    assert comparing._judged[0] not in trials.always


def test_any_timed_call_that_leaves_small_columns_out_is_refused(comparing: Any) -> None:
    for trial in (Trial.fresh(), comparing._judged[0]):
        with pytest.raises(Verdict) as raised:
            compare(comparing, trial, lambda x: right(x) * (torch.arange(32) < 16))

        assert "16 columns, the first being 16, are wrong" in raised.value.evaluation.error  # type: ignore[union-attr]
