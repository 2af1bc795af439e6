"""What a judge does when the device lacks memory for a problem, and when others may build, with preparations that only say so."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import torch

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import Effort
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.judge import machine, server
from stark.evaluator.judge.attempt import Attempt
from stark.evaluator.judge.lock import Slots
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.processes.child import Patience
from stark.evaluator.judge.relay import Said
from stark.evaluator.judge.server import Judge
from stark.evaluator.protocol import AnyRequest, Describe, Evaluate


class Prepared:
    def __init__(self, number: int, short: bool) -> None:
        self.number, self.closed = number, False
        self.trials = type("Trials", (), {"short_of_memory": short})

    def close(self) -> None:
        self.closed = True


class Lonely(Judge):
    """A judge without a device. Its `n`th preparation lacks memory if `short` says so; being alone is granted at once."""

    def __init__(self, short: list[bool]) -> None:
        self.short, self.made, self.pleas = short, cast("list[Prepared]", []), 0
        self.device, self._prepared = torch.device("cpu"), None
        self._alone, self._open = threading.Event(), cast(Any, _Open())

    def _new_prepared(self, *_: object) -> PreparedReference:  # type: ignore[override]
        self.made.append(Prepared(len(self.made), self.short[len(self.made)]))
        return cast(PreparedReference, self.made[-1])

    def _say(self, said: Said) -> None:
        assert not said.line
        self.pleas += 1
        self._alone.set()


class _Open:
    def __getitem__(self, _: str) -> Any:
        return type("Patience", (), {"ended": False})


def _request() -> AnyRequest:
    return Describe(id="1", problem=Problem(name="made_up", source=""), limits=Limits())


@pytest.fixture(autouse=True)
def _works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "works", lambda _: True)


def _number(prepared: PreparedReference) -> int:
    return cast(Prepared, prepared).number


def test_a_problem_that_fits_asks_for_nothing() -> None:
    judge = Lonely([False])

    assert [0, 0] == [judge._with_memory(_request(), _number) for _ in range(2)]
    assert 0 == judge.pleas


def test_a_problem_that_is_short_of_memory_is_prepared_again_alone() -> None:
    judge = Lonely([True, False])

    assert 1 == judge._with_memory(_request(), _number)
    assert (1, True, False) == (judge.pleas, judge.made[0].closed, judge.made[1].closed)


def test_a_reference_that_lacks_memory_runs_when_the_problem_is_alone() -> None:
    judge = Lonely([False, False])

    def work(prepared: PreparedReference) -> int:
        if _number(prepared) == 0:
            raise ProblemError("the eager reference failed") from torch.OutOfMemoryError("8 GiB")
        return _number(prepared)

    assert 1 == judge._with_memory(_request(), work)
    assert (1, True) == (judge.pleas, judge.made[0].closed)


def test_another_fault_of_a_problem_is_told_at_once() -> None:
    judge = Lonely([False])

    def work(_: PreparedReference) -> int:
        raise ProblemError("forward returns no tensor")

    with pytest.raises(ProblemError, match="returns no tensor"):
        judge._with_memory(_request(), work)
    assert 0 == judge.pleas


@pytest.mark.parametrize(("effort", "while_measured"), [("promote", False), ("search", True)])
def test_others_build_while_a_final_check_compiles_references_and_not_while_it_measures(
    effort: Effort, while_measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Slots(tmp_path, "another device", 1)
    judge: Any = Lonely([False])
    judge.device, judge._build_slots = torch.device("cuda"), Slots(tmp_path, "device", 1)
    judge._turn = judge._probe = nullcontext
    judge._builds = judge._counters = judge.forkserver = MagicMock()
    could_build: dict[str, bool] = {}

    def look(when: str) -> None:
        could_build[when] = _is_free(others)

    monkeypatch.setattr(server, "build", lambda *_: None)
    monkeypatch.setattr(server, "start_references", lambda *_: look("compiles"))
    monkeypatch.setattr(judge, "_run", lambda *_: look("measures"))
    candidate = Candidate(source="", language="pytorch")
    request = Evaluate(
        id="1", problem=_request().problem, limits=Limits(), candidate=candidate, effort=effort
    )

    judge._build_and_run(Attempt(request, Patience()), None)

    assert while_measured == could_build.pop("measures")
    assert ({} if while_measured else {"compiles": True}) == could_build


def _is_free(slots: Slots) -> bool:
    """Whether a build can have a place."""
    taken = threading.Event()

    def build() -> None:
        with slots.one():
            taken.set()

    threading.Thread(target=build, daemon=True).start()
    return taken.wait(0.3)
