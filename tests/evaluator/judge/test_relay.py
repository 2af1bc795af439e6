"""A relay with made-up problems: a problem's source says what its process does with a request."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import cast

import pytest

from stark.core.judging import Limits
from stark.core.precision import Precision
from stark.core.problem import Problem
from stark.evaluator.judge import relay
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.relay import Relay, Said
from stark.evaluator.protocol import (
    Answer,
    Describe,
    JudgeFailed,
    PreparedProblems,
    ProblemRefused,
    RequestRefused,
    answer_adapter,
)


class NoForkserver:
    def branch(self) -> NoForkserver:
        return self

    def forget(self) -> None: ...
    def close(self) -> None: ...


def serve(pipe: Connection, _: Forkserver) -> None:
    """Answers with this process's number. `dies`, `large` and `short` in a problem's source change that."""
    alone = False
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        if request == relay.LEAVE:
            return
        source = request.problem.source
        if "dies" in source:
            os._exit(9)
        if "short" in source and not alone:
            pipe.send(Said(b""))
            try:
                alone = pipe.recv() == relay.ALONE
            except EOFError:
                return
            assert alone
        if "slow" in source:
            time.sleep(2.0)
        said = ProblemRefused(id=request.id, error=f"{os.getpid()}")
        held = 0.9 if "large" in source else 0.1
        pipe.send(Said(said.model_dump_json().encode(), request.id, held))


class Executor:
    """Sends requests to a relay in another process and reads what it says."""

    def __init__(self) -> None:
        theirs, self.requests = os.pipe()
        answers, out = os.pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=self.run, args=(theirs, out)
        )
        self.process.start()
        os.close(theirs)
        os.close(out)
        self.answers = os.fdopen(answers, "rb")
        self.count = 0
        self.prepared: set[str] = set()
        """The digests that the relay last reported."""

    def run(self, requests: int, out: int) -> None:
        os.close(self.requests)
        with os.fdopen(out, "wb") as file:
            one = Relay(serve, cast(Forkserver, NoForkserver()), file, "a machine")
            one.run(requests)
            one.close()

    def send(self, *sources: str) -> None:
        for source in sources:
            self.count += 1
            problem = Problem(name=source, source=source)
            line = Describe(id=f"{self.count}: {source}", problem=problem).model_dump_json()
            os.write(self.requests, line.encode() + b"\n")

    def ask_with(self, precision: Precision) -> int:
        """The number of the process that answered for the problem `a`, judged by this precision."""
        limits, problem = Limits(precision=precision), Problem(name="a", source="a")
        line = Describe(id=precision, problem=problem, limits=limits).model_dump_json()
        os.write(self.requests, line.encode() + b"\n")
        answer = self.hear()
        assert isinstance(answer, ProblemRefused)
        return int(answer.error)

    def hear(self) -> Answer:
        answer = answer_adapter.validate_json(self.answers.readline())
        if isinstance(answer, PreparedProblems):
            self.prepared = set(answer.problems)
            return self.hear()
        return answer

    def ask(self, source: str) -> int:
        """The number of the process that answered."""
        self.send(source)
        answer = self.hear()
        assert isinstance(answer, ProblemRefused)
        return int(answer.error)


@pytest.fixture
def executor() -> Iterator[Executor]:
    one = Executor()
    yield one
    os.close(one.requests)
    one.process.join(20)
    assert one.process.exitcode == 0, "it ends with its input"


def exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110


def has_left(pid: int, executor: Executor) -> bool:
    """Whether a process ends soon. The relay looks for that when it hears something."""
    deadline = time.monotonic() + 10
    while exists(pid) and time.monotonic() < deadline:
        executor.ask("a")
    return not exists(pid)


def test_each_problem_has_its_process_and_keeps_it(executor: Executor) -> None:
    a, b = executor.ask("a"), executor.ask("b")

    assert a != b
    assert [a, b] == [executor.ask("a"), executor.ask("b")]


def test_a_problem_has_a_process_for_each_precision(executor: Executor) -> None:
    default, loose = executor.ask("a"), executor.ask_with("tf32")

    assert default != loose
    assert [default, loose] == [executor.ask_with("fp32-split"), executor.ask_with("tf32")]


def test_problems_do_not_wait_for_each_other(executor: Executor) -> None:
    executor.send("slow", "quick")

    answered = [executor.hear(), executor.hear()]

    assert ["2: quick", "1: slow"] == [cast(ProblemRefused, each).id for each in answered]


def test_when_a_process_dies_its_requests_fail_and_no_others(executor: Executor) -> None:
    other = executor.ask("a")
    executor.send("dies", "dies")

    answers = [executor.hear(), executor.hear()]

    assert all(isinstance(answer, JudgeFailed) for answer in answers)
    assert "the judge's process for the problem dies ended with code 9" in {
        cast(JudgeFailed, answer).error for answer in answers
    }
    assert other == executor.ask("a")


def test_the_least_recently_used_goes_where_all_hold_too_much(executor: Executor) -> None:
    a, b = executor.ask("a"), executor.ask("b")
    executor.ask("a")

    executor.ask("large")

    assert executor.ask("a") == a
    assert has_left(b, executor)


def test_it_reports_which_problems_it_keeps_prepared(executor: Executor) -> None:
    def digests(*sources: str) -> set[str]:
        return {Problem(name=source, source=source).digest for source in sources}

    executor.ask("a")
    executor.ask("b")
    assert digests("a", "b") == executor.prepared

    executor.ask("large")  # the least recently used makes room
    executor.ask("large")
    assert digests("b", "large") == executor.prepared

    executor.send("dies")
    executor.hear()
    executor.ask("large")
    assert digests("b", "large") == executor.prepared


def test_those_that_are_kept_end_with_the_relay() -> None:
    one = Executor()
    kept = [one.ask("x"), one.ask("y")]
    assert all(map(exists, kept))
    os.close(one.requests)
    one.process.join(20)
    assert not any(map(exists, kept))


def test_one_that_memory_is_short_for_starts_again_with_nothing_beside_it(
    executor: Executor,
) -> None:
    beside = executor.ask("a")

    short = executor.ask("short")

    assert not exists(beside)
    assert executor.ask("short") == short
    assert executor.ask("a") != beside


def test_nothing_is_lost_when_others_make_room(executor: Executor) -> None:
    executor.send("slow a", "slow b", "short")

    answers = [executor.hear() for _ in range(3)]

    wanted = {"1: slow a", "2: slow b", "3: short"}
    assert wanted == {cast(ProblemRefused, answer).id for answer in answers}


def test_it_has_one_thread(executor: Executor) -> None:
    """It forks, and a fork takes only one thread along."""
    executor.ask("a")
    assert len(os.listdir(f"/proc/{executor.process.pid}/task")) == 1  # noqa: PTH208


def test_a_request_for_another_kind_of_machine_is_refused(executor: Executor) -> None:
    problem = Problem(name="a", source="a")
    request = Describe(id="1", problem=problem, device_class="another")
    os.write(executor.requests, request.model_dump_json().encode() + b"\n")

    answer = executor.hear()

    assert isinstance(answer, RequestRefused)
    assert answer.other_class
    assert answer.error.startswith(
        "it is for a machine of kind 'another', and there is only 'a machine'"
    )
