from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stark.core.candidate import Candidate
from stark.core.errors import DeadlyRequest, JudgeUnavailable, ProblemError, UsageError
from stark.core.evaluation import Evaluation
from stark.core.judging import Limits
from stark.core.precision import CLASSES
from stark.core.problem import Problem
from stark.evaluator.executors import claims, folder, open_executor, worker
from stark.evaluator.executors.claims import STALE_S
from stark.evaluator.executors.folder import FolderExecutor
from stark.evaluator.executors.worker import serve_folder
from stark.evaluator.protocol import (
    Answer,
    AnyRequest,
    Describe,
    Evaluate,
    Evaluated,
    ProblemRefused,
    refusal,
    request_adapter,
    request_id,
)
from support.nodes import correct

PROBLEM = Problem(name="p", source="source")


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for side in (folder, worker):
        monkeypatch.setattr(side, "POLL_S", (0.02, 0.1))


class Counting:
    """Judges that count what they were asked, and how much at once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.limits: list[Limits] = []
        self.now = self.most = 0

    async def answer(self, request: AnyRequest) -> Answer:
        if isinstance(request, Describe):
            return ProblemRefused(id="7", error=f"{request.problem.name} is bad")
        self.asked.append(request.candidate.source)
        self.limits.append(request.limits)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.05)
        self.now -= 1
        return Evaluated(id="7", evaluation=correct(2.0))


def candidates(count: int) -> list[Candidate]:
    return [Candidate(language="cpp", source=str(n)) for n in range(count)]


async def ask(
    folder: Path, count: int, on_notice: Callable[[str], None] | None = None
) -> list[asyncio.Task[Evaluation]]:
    executor = FolderExecutor(folder, Limits())
    executor.on_notice = on_notice or executor.on_notice
    tasks = [asyncio.create_task(executor.evaluate(PROBLEM, c)) for c in candidates(count)]
    await asyncio.sleep(0.05)
    return tasks


async def test_one_worker_answers_all_that_waits_several_at_once(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 5)
    judge, said = Counting(), list[str]()

    answered = await serve_folder(tmp_path, judge, once=True, report=said.append)

    assert 5 == answered == len(said)
    assert judge.most > 1
    assert [correct(2.0)] * 5 == await asyncio.gather(*waiting)


async def test_each_request_is_judged_within_its_own_limits(tmp_path: Path) -> None:
    (candidate,) = candidates(1)
    asked = [Limits(build_s=12.0), Limits(memory_gb=1.0)]
    waiting = [
        asyncio.create_task(FolderExecutor(tmp_path, limits).evaluate(PROBLEM, candidate))
        for limits in asked
    ]
    await asyncio.sleep(0.05)
    judge = Counting()

    assert 2 == await serve_folder(tmp_path, judge, once=True, report=str)

    assert asked == sorted(judge.limits, key=lambda limits: limits.build_s)
    await asyncio.gather(*waiting)


async def test_a_copied_folder_may_lack_its_empty_subfolders(tmp_path: Path) -> None:
    waiting = await ask(tmp_path / "there", 1)
    shutil.copytree(tmp_path / "there" / "requests", tmp_path / "here" / "requests")

    assert 1 == await serve_folder(tmp_path / "here", Counting(), once=True, report=str)

    shutil.copytree(
        tmp_path / "here" / "results", tmp_path / "there" / "results", dirs_exist_ok=True
    )
    assert [correct(2.0)] == await asyncio.gather(*waiting)


@pytest.mark.slow
async def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    judge = Counting()
    first = await ask(tmp_path, 2)
    await serve_folder(tmp_path, judge, once=True, report=str)
    await asyncio.gather(*first)

    again = await ask(tmp_path, 3)
    await serve_folder(tmp_path, judge, once=True, report=str)
    await asyncio.gather(*again)

    assert ["0", "1", "2"] == sorted(judge.asked)


def test_an_answer_by_another_precision_is_not_used() -> None:
    asked = {
        request_id(Describe(id="", problem=PROBLEM, limits=Limits(precision=each)))
        for each in CLASSES
    }

    assert 4 == len(asked)


async def test_two_workers_share_the_work(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 12)
    one, two = Counting(), Counting()

    await asyncio.gather(
        *(serve_folder(tmp_path, judge, once=True, report=str) for judge in (one, two))
    )
    await asyncio.gather(*waiting)

    assert sorted(map(str, range(12))) == sorted(one.asked + two.asked)


async def test_a_dead_workers_claim_becomes_free(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 1)
    (request,) = (tmp_path / "requests").glob("*.json")
    claim = tmp_path / "claims" / request.stem
    claim.write_text("dead 1")

    assert 0 == await serve_folder(tmp_path, Counting(), once=True, report=str)
    long_ago = time.time() - STALE_S - 1
    os.utime(claim, (long_ago, long_ago))
    assert 1 == await serve_folder(tmp_path, Counting(), once=True, report=str)
    await asyncio.gather(*waiting)


async def test_a_bad_problem_travels_back(tmp_path: Path) -> None:
    executor = FolderExecutor(tmp_path, Limits())
    waiting = asyncio.create_task(executor.describe(PROBLEM))
    await asyncio.sleep(0.05)

    await serve_folder(tmp_path, Counting(), once=True, report=str)

    with pytest.raises(ProblemError, match="p is bad"):
        await waiting
    left = [*(tmp_path / "results").iterdir(), *(tmp_path / "requests").iterdir()]
    assert [] == left, "it is asked again next time: the machine may be mended"


async def test_a_folder_without_requests_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no requests"):
        await serve_folder(tmp_path / "nowhere", Counting(), once=True, report=str)


@pytest.mark.parametrize("place", ["/proc/queue", "~nobody-of-that-name/queue"])
def test_a_place_that_can_be_no_folder_is_refused(place: str) -> None:
    with pytest.raises(UsageError):
        open_executor(f"folder:{place}")


@pytest.mark.slow
async def test_a_worker_that_is_to_end_answers_what_follows_from_its_answers(
    tmp_path: Path,
) -> None:
    executor = FolderExecutor(tmp_path, Limits())

    async def one_after_the_other() -> list[Evaluation]:
        return [await executor.evaluate(PROBLEM, candidate) for candidate in candidates(3)]

    waiting = asyncio.create_task(one_after_the_other())
    await asyncio.sleep(0.05)

    assert 3 == await serve_folder(tmp_path, Counting(), once=True, report=str)
    assert [correct(2.0)] * 3 == await waiting


@pytest.mark.slow
async def test_who_waits_for_a_worker_is_told_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folder, "NOTICE_AFTER_S", 0.0)
    waiting = await ask(tmp_path, 3)
    await asyncio.sleep(0.3)

    said = capsys.readouterr().err
    assert 1 == said.count("\n")
    assert f"run `stark worker {tmp_path}`" in said

    await serve_folder(tmp_path, Counting(), once=True, report=str)
    await asyncio.gather(*waiting)


@pytest.mark.slow
async def test_who_waits_while_a_worker_works_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folder, "NOTICE_AFTER_S", 0.2)
    waiting = await ask(tmp_path, 1)
    (request,) = (tmp_path / "requests").glob("*.json")
    (tmp_path / "claims" / request.stem).write_text("busy 1")
    await asyncio.sleep(0.5)
    (tmp_path / "claims" / request.stem).unlink()

    await serve_folder(tmp_path, Counting(), once=True, report=str)
    await asyncio.gather(*waiting)

    assert "" == capsys.readouterr().err


async def test_who_asked_what_a_worker_cannot_read_is_told_so(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 1)
    (request,) = (tmp_path / "requests").glob("*.json")
    request.write_text('{"kind": "of tomorrow"}')

    await serve_folder(tmp_path, Counting(), once=True, report=str)

    with pytest.raises(
        JudgeUnavailable, match=f"request {request.stem} was written by another version"
    ):
        await waiting[0]
    left = [*(tmp_path / "results").iterdir(), *(tmp_path / "requests").iterdir()]
    assert [] == left, "it is asked again next time"


async def test_a_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (waiting,) = await ask(tmp_path, 1)
    (request,) = (tmp_path / "requests").glob("*.json")
    (tmp_path / "results" / request.name).write_text("garbage")

    with pytest.raises(
        JudgeUnavailable, match=f"results/{request.name} was written by another version"
    ):
        await waiting


async def test_a_request_that_is_withdrawn_meanwhile_ends_no_worker_and_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await ask(tmp_path, 1)
    (request,) = (tmp_path / "requests").glob("*.json")
    claim, said = claims.take, list[str]()

    def claimed(path: Path) -> bool:
        (tmp_path / "requests" / "gone.json").unlink(missing_ok=True)
        return claim(path)

    monkeypatch.setattr(worker, "take", claimed)
    (tmp_path / "requests" / "gone.json").write_text("soon withdrawn")

    assert 1 == await serve_folder(tmp_path, Counting(), once=True, report=said.append)

    assert sorted(["gone was withdrawn", f"{request.stem} correct"]) == sorted(said)
    await asyncio.gather(*waiting)


async def test_a_fault_of_the_judge_is_no_fault_of_the_request(tmp_path: Path) -> None:
    (waiting,) = await ask(tmp_path, 1)
    (request,) = (tmp_path / "requests").glob("*.json")

    class Broken(Counting):
        async def answer(self, request: AnyRequest) -> Answer:
            raise FileNotFoundError("the judge's own")

    with pytest.raises(FileNotFoundError, match="the judge's own"):
        await asyncio.wait_for(serve_folder(tmp_path, Broken(), once=True, report=str), 10)

    assert request.exists()
    assert not (tmp_path / "claims" / request.stem).exists()
    waiting.cancel()


async def test_a_request_of_which_workers_die_is_refused(tmp_path: Path) -> None:
    (waiting,) = await ask(tmp_path, 1)
    (request,) = (tmp_path / "requests").glob("*.json")
    claim = tmp_path / "claims" / request.stem
    claim.write_text("one-1\ntwo-2\n")
    long_ago = time.time() - STALE_S - 1
    os.utime(claim, (long_ago, long_ago))
    judges = Counting()

    await serve_folder(tmp_path, judges, once=True, report=str)

    with pytest.raises(JudgeUnavailable, match=r"2 workers died .*: one-1, two-2"):
        await waiting
    assert [] == judges.asked


class OfKind(Counting):
    """Judges of one kind of machine."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    async def answer(self, request: AnyRequest) -> Answer:
        if (request.device_class or "") not in self._kind:
            return refusal(request, [self._kind])
        return await super().answer(request)


async def test_a_worker_leaves_what_is_for_another_kind_of_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folder, "NOTICE_AFTER_S", 0.3)
    whole, small, large = FolderExecutor(tmp_path, Limits()), OfKind("A10"), OfKind("H200")
    whole.bind("A10")
    own, other = candidates(2)
    waiting = [
        asyncio.create_task(whole.on("H200").evaluate(PROBLEM, other, "promote")),
        asyncio.create_task(whole.evaluate(PROBLEM, own)),
    ]
    await asyncio.sleep(0.05)
    said = list[str]()

    assert 1 == await serve_folder(tmp_path, small, once=True, report=said.append)
    await asyncio.sleep(0.4)
    assert [False, True] == [task.done() for task in waiting]
    assert 1 == await serve_folder(tmp_path, large, once=True, report=said.append)

    assert [correct(2.0)] * 2 == await asyncio.gather(*waiting)
    assert [[own.source], [other.source]] == [small.asked, large.asked]
    (left,) = (line for line in said if "is left to another worker" in line)
    assert left.endswith(
        "it is for a machine of kind 'H200', and there is only 'A10'; times of different kinds are not comparable, "
        "so start a judge on such a machine, or another run"
    )
    assert "on a machine of kind 'H200' that should judge candidates" in capsys.readouterr().err


async def test_a_request_on_which_judges_die_ends_no_worker(tmp_path: Path) -> None:
    deadly, harmless = await ask(tmp_path, 2)

    class Dying(Counting):
        async def answer(self, request: AnyRequest) -> Answer:
            if isinstance(request, Evaluate) and request.candidate.source == "0":
                raise DeadlyRequest("the judge died 3 times on the same request")
            return await super().answer(request)

    assert 2 == await serve_folder(tmp_path, Dying(), once=True, report=str)

    with pytest.raises(JudgeUnavailable, match="died 3 times on the same request"):
        await deadly
    assert "correct" == (await harmless).status


async def test_a_stale_claim_is_taken_over_once(tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    claim.write_text("dead-1\n")
    long_ago = time.time() - STALE_S - 1
    os.utime(claim, (long_ago, long_ago))

    with ThreadPoolExecutor(16) as pool:
        taken = list(pool.map(claims.take, [claim] * 64))

    assert 1 == sum(taken)
    assert ["dead-1", claims.us()] == claim.read_text().split()


async def test_a_worker_gives_up_what_nobody_waits_for(tmp_path: Path) -> None:
    (waiting,) = await ask(tmp_path, 1)
    given_up = asyncio.Event()

    class Slow(Counting):
        async def answer(self, request: AnyRequest) -> Answer:
            waiting.cancel()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                given_up.set()
                raise
            raise AssertionError

    said: list[str] = []
    assert 0 == await serve_folder(tmp_path, Slow(), once=True, report=said.append)

    assert given_up.is_set()
    assert "was withdrawn" in said[0]


async def test_an_old_answer_is_not_used(tmp_path: Path) -> None:
    (first,) = await ask(tmp_path, 1)
    await serve_folder(tmp_path, Counting(), once=True, report=str)
    await first
    (result,) = (tmp_path / "results").glob("*.json")
    os.utime(result, (0, 0))
    (again,) = await ask(tmp_path, 1)
    judges = Counting()

    await serve_folder(tmp_path, judges, once=True, report=str)

    assert "correct" == (await again).status
    assert ["0"] == judges.asked


async def test_what_a_dead_worker_had_is_judged_beside_nothing(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 6)
    beside: dict[str, int] = {}

    class Watching(Counting):
        async def answer(self, request: AnyRequest) -> Answer:
            assert isinstance(request, Evaluate)
            found = await super().answer(request)
            beside[request.candidate.source] = self.now
            return found

    for path in (tmp_path / "requests").iterdir():
        if request_adapter.validate_json(path.read_bytes()).candidate.source in "0123":
            claim = tmp_path / "claims" / path.stem
            claim.write_text("dead-1\n")
            os.utime(claim, (1, 1))
    judges = Watching()

    await serve_folder(tmp_path, judges, once=True, report=str)

    assert [correct(2.0)] * 6 == await asyncio.gather(*waiting)
    assert ["0", "1", "2", "3"] == sorted(judges.asked[:4])
    assert [0] * 4 == [beside[source] for source in "0123"]
    assert 2 == judges.most


async def test_neighbours_of_a_request_that_ends_machines_are_judged(tmp_path: Path) -> None:
    (deadly, *neighbours) = await ask(tmp_path, 4)
    (first,) = [
        path.stem
        for path in (tmp_path / "requests").iterdir()
        if request_adapter.validate_json(path.read_bytes()).candidate.source == "0"
    ]
    for path in (tmp_path / "requests").iterdir():
        claim = tmp_path / "claims" / path.stem
        claim.write_text("dead-1\n")
        os.utime(claim, (1, 1))

    class EndsWorkers(Counting):
        async def answer(self, request: AnyRequest) -> Answer:
            assert isinstance(request, Evaluate)
            if request.candidate.source == "0":
                raise SystemError("this machine goes down")
            return await super().answer(request)

    with pytest.raises(SystemError):
        await serve_folder(tmp_path, EndsWorkers(), once=True, report=str)
    claim = tmp_path / "claims" / first
    assert ["dead-1"] == claim.read_text().split(), (
        "who gave it up is no death, and the others stay"
    )
    claim.write_text("dead-1\ndead-2\n")
    os.utime(claim, (1, 1))
    await serve_folder(tmp_path, EndsWorkers(), once=True, report=str)

    with pytest.raises(JudgeUnavailable, match="2 workers died"):
        await deadly
    assert [correct(2.0)] * 3 == await asyncio.gather(*neighbours)


async def test_a_worker_of_another_kind_forgets_no_death(tmp_path: Path) -> None:
    executor = FolderExecutor(tmp_path, Limits())
    (candidate,) = candidates(1)
    waiting = asyncio.create_task(executor.on("H200").evaluate(PROBLEM, candidate))
    await asyncio.sleep(0.05)
    (request,) = (tmp_path / "requests").glob("*.json")
    claim = tmp_path / "claims" / request.stem
    claim.write_text("dead-1\n")
    os.utime(claim, (1, 1))

    await serve_folder(tmp_path, OfKind("A10"), once=True, report=str)

    assert ["dead-1"] == claim.read_text().split()
    assert 1 == await serve_folder(tmp_path, OfKind("H200"), once=True, report=str)
    await waiting


async def test_a_worker_leaves_work_for_idle_workers(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 8)
    first, second = Counting(), Counting()

    await asyncio.gather(
        *(serve_folder(tmp_path, judge, once=True, report=str) for judge in (first, second))
    )
    await asyncio.gather(*waiting)

    assert min(len(first.asked), len(second.asked)) >= 3


async def test_a_large_worker_keeps_all_its_judges_busy(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 32)
    judges = Counting()

    await serve_folder(tmp_path, judges, once=True, report=str, ready=lambda: 16)
    await asyncio.gather(*waiting)

    assert 32 == judges.most


async def test_a_worker_takes_more_for_its_builds_if_no_other_worker_does(tmp_path: Path) -> None:
    waiting = await ask(tmp_path, 8)

    class Slow(Counting):
        async def answer(self, request: AnyRequest) -> Answer:
            self.now += 1
            await asyncio.sleep(1.0)
            self.now -= 1
            return await super().answer(request)

    judges = Slow()
    await serve_folder(tmp_path, judges, once=True, report=str)
    await asyncio.gather(*waiting)

    assert judges.most > 2


@pytest.mark.slow
@pytest.mark.parametrize("claimed_by", ["another run's worker", "a worker that died"])
async def test_who_waits_is_told_so_although(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed_by: str
) -> None:
    monkeypatch.setattr(folder, "NOTICE_AFTER_S", 0.2)
    said: list[str] = []
    waiting = await ask(tmp_path, 2, said.append)
    (request, _) = (tmp_path / "requests").glob("*.json")
    claim = tmp_path / "claims" / ("another" if claimed_by.startswith("another") else request.stem)
    claim.write_text("busy 1\n")
    if claimed_by == "a worker that died":
        ago = time.time() - folder.RENEWED_S - 10
        os.utime(claim, (ago, ago))
    await asyncio.sleep(0.5)

    (told,) = said
    assert told.startswith(f"waiting for a worker; run `stark worker {tmp_path}`")
    claim.unlink()
    await serve_folder(tmp_path, Counting(), once=True, report=str)
    await asyncio.gather(*waiting)

    assert [told, ""] == said
