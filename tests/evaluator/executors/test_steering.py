"""Which judge gets a request: judges without torch note how often they prepare a problem."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from stark.core.errors import JudgeUnavailable
from stark.core.problem import Problem
from stark.evaluator.executors.judges import CommandJudge, CommandsExecutor
from support import FAKE_JUDGE, cases
from support.candidates import FAULTS, as_candidate

KEPT = {True: {"a"}, False: {"b"}}
CANDIDATE = as_candidate("triton", FAULTS["honest"][0])


def problem(name: str) -> Problem:
    return Problem(name=name, source=f"# {name}\n")


def judges(notes: Path, count: int) -> CommandsExecutor:
    command = [sys.executable, FAKE_JUDGE]
    return CommandsExecutor([[*command, str(notes / f"{n}.txt")] for n in range(count)])


def prepared(notes: Path) -> list[list[str]]:
    """By judge, in order; of those that were started and prepared something."""
    return [path.read_text().split() for path in sorted(notes.glob("*.txt"))]


@pytest.mark.slow
async def test_a_problem_stays_where_it_is_prepared(tmp_path: Path) -> None:
    executor = judges(tmp_path, 2)

    for _ in range(3):
        for name in ("a", "b"):
            await executor.evaluate(problem(name), CANDIDATE)
    await executor.close()

    assert [["a"], ["b"]] == prepared(tmp_path)


@pytest.mark.parametrize(
    ("there", "here", "taken_over"), [(16, 13, False), (4, 1, False), (3, 0, True)]
)
async def test_a_problem_is_taken_over_by_a_judge_that_would_soon_have_nothing_to_do(
    there: int, here: int, taken_over: bool
) -> None:
    executor = CommandsExecutor([["true"], ["true"]])
    one, other = executor._judges
    with (
        patch.object(CommandJudge, "kept", property(lambda self: KEPT[self is one])),
        patch.object(one, "open", ["a"] * there),
        patch.object(other, "open", ["b"] * here),
    ):
        assert (other.load("a") < one.load("a")) is taken_over
    await executor.close()


@pytest.mark.slow
async def test_many_candidates_of_one_problem_keep_every_judge_busy(tmp_path: Path) -> None:
    executor = judges(tmp_path, 2)

    await asyncio.gather(*(executor.evaluate(problem("a"), CANDIDATE) for _ in range(12)))
    await executor.close()

    assert [["a"], ["a"]] == prepared(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("started", [False, True])
async def test_whatever_waits_for_a_judge_that_cannot_start_goes_to_another(
    tmp_path: Path, started: bool
) -> None:
    working = [sys.executable, FAKE_JUDGE, str(tmp_path / "0.txt")]
    starts = tmp_path / "starts"
    executor = CommandsExecutor([["sh", "-c", f"echo >> {starts}; exit 1"], working])
    if started:
        await executor.start()

    found = await asyncio.gather(
        *(executor.evaluate(problem(f"p{n}"), CANDIDATE) for n in range(4))
    )
    await executor.close()

    assert 4 == len(found)
    assert "\n" == starts.read_text(), "it is tried once"
    assert ["p0", "p1", "p2", "p3"] == sorted(prepared(tmp_path)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("problems", "count"), [(4, 1), (4, 2), (6, 3)])
async def test_with_more_problems_than_judges_each_is_prepared_few_times(
    tmp_path: Path, problems: int, count: int
) -> None:
    executor = judges(tmp_path, count)
    named = [problem(f"p{number}") for number in range(problems)]

    await asyncio.gather(
        *(executor.evaluate(named[n % problems], CANDIDATE) for n in range(6 * problems))
    )
    await executor.close()

    assert sum(map(len, prepared(tmp_path))) <= 2 * problems  # in turns it would be nearly all


@pytest.mark.slow
async def test_a_problem_waits_for_no_other_for_ever(tmp_path: Path) -> None:
    executor = judges(tmp_path, 1)
    stopped = asyncio.Event()

    async def flood() -> None:
        while not stopped.is_set():
            await executor.evaluate(problem("a"), CANDIDATE)

    floods = [asyncio.create_task(flood()) for _ in range(4)]
    await executor.evaluate(problem("a"), CANDIDATE)
    async with asyncio.timeout(20):
        await executor.evaluate(problem("b"), CANDIDATE)
    stopped.set()
    await asyncio.gather(*floods)
    await executor.close()

    assert "b" in prepared(tmp_path)[0]


@pytest.mark.slow
async def test_a_run_stays_on_the_kind_of_machine_that_answered_first(tmp_path: Path) -> None:
    kinds = ("H100", "H200")
    commands = [
        [sys.executable, FAKE_JUDGE, str(tmp_path / f"{kind}.txt"), "--device", kind]
        for kind in kinds
    ]
    both, other = CommandsExecutor(commands), CommandsExecutor([commands[1]])
    chosen = CommandsExecutor(commands)
    chosen.bind("200")

    await both.describe(problem("a"))
    for name in "bcd":
        await both.evaluate(problem(name), CANDIDATE)
    await chosen.evaluate(problem("x"), CANDIDATE)
    other.bind("H100")
    with pytest.raises(JudgeUnavailable, match="it is for a machine of kind 'H100'"):
        await other.evaluate(problem("e"), CANDIDATE)
    await both.close()
    await other.close()
    await chosen.close()

    assert [["a", "b", "c", "d"], ["x"]] == prepared(tmp_path)


def two_kinds(notes: Path) -> CommandsExecutor:
    command = [sys.executable, FAKE_JUDGE]
    return CommandsExecutor(
        [[*command, str(notes / f"{kind}.txt"), "--device", kind] for kind in ("H100", "H200")]
    )


@pytest.mark.slow
async def test_views_of_one_executor_reach_each_its_own_kind(tmp_path: Path) -> None:
    whole = two_kinds(tmp_path)
    whole.bind("H100")
    other = whole.on("H200")

    references = await asyncio.gather(*(each.describe(problem("a")) for each in (whole, other)))
    for executor in (whole, other, whole, other):
        await executor.evaluate(problem("b"), CANDIDATE, "promote")
    await other.close()
    await whole.evaluate(problem("c"), CANDIDATE)
    await whole.close()

    assert ["H100", "H200"] == [each.device.name for each in references]
    assert [["a", "b", "c"], ["a", "b"]] == prepared(tmp_path)


@pytest.mark.slow
async def test_a_kind_may_get_a_fuller_name_and_no_other(tmp_path: Path) -> None:
    whole = two_kinds(tmp_path)

    for name in ("H", "H200", "H100"):
        whole.bind(name)
    reference = await whole.describe(problem("a"))
    await whole.close()

    assert "H200" == reference.device.name


@pytest.mark.slow
async def test_a_kind_that_no_judge_has_is_one_sentence_and_costs_no_judge_time(
    tmp_path: Path,
) -> None:
    whole = two_kinds(tmp_path)

    for _ in range(2):  # before and after it is known what the judges are
        with pytest.raises(JudgeUnavailable) as raised:
            await whole.on("B200").describe(problem("a"))
        assert str(raised.value) == (
            "every judge refused the request: it is for a machine of kind 'B200', and there is only "
            "'H100, 80 GB; torch 2.13.0' and 'H200, 80 GB; torch 2.13.0'; times of different kinds are not comparable, "
            "so start a judge on such a machine, or another run"
        )
    await whole.close()

    assert [] == prepared(tmp_path)


@pytest.mark.slow
async def test_a_judge_is_known_to_keep_what_it_reports_and_not_all_that_it_was_asked(
    tmp_path: Path,
) -> None:
    command = [sys.executable, FAKE_JUDGE, str(tmp_path / "0.txt"), "--keeping", "1"]
    executor = CommandsExecutor([command])
    (judge,) = executor._judges

    for name in ("a", "b"):
        await executor.evaluate(problem(name), CANDIDATE)
        assert {problem(name).digest} == judge.kept
    assert judge.process is not None
    await judge.process.kill()

    assert set() == judge.kept
    await executor.close()


@pytest.mark.slow
async def test_requests_before_the_first_answer_stay_on_its_kind_too(tmp_path: Path) -> None:
    both = two_kinds(tmp_path)

    references = await asyncio.gather(*(both.describe(problem(name)) for name in "abcd"))
    await both.close()

    assert 1 == len({each.device_class for each in references})


@pytest.mark.slow
async def test_a_reference_over_cases_is_of_one_kind(tmp_path: Path) -> None:
    command = [sys.executable, FAKE_JUDGE]
    both = CommandsExecutor(
        [
            [*command, str(tmp_path / f"{kind}.txt"), "--device", kind, "--judging-s", seconds]
            for kind, seconds in (("H100", "0.5"), ("H200", "0.02"))
        ]
    )
    await both.start()

    over, plain = await asyncio.gather(
        both.describe(cases.PROBLEM), both.describe(problem("plain"))
    )
    await both.close()

    assert {plain.device_class} == {each.device_class for each in over.cases.values()}


@pytest.mark.slow
async def test_a_judge_of_the_runs_kind_is_tried_again_although_one_of_another_kind_works(
    tmp_path: Path,
) -> None:
    command = f"exec {sys.executable} {FAKE_JUDGE} {tmp_path / 'h100.txt'} --device H100"
    down = tmp_path / "down"
    flaky = ["sh", "-c", f"test ! -e {down} || {{ echo no route to host >&2; exit 1; }}; {command}"]
    other = [sys.executable, FAKE_JUDGE, str(tmp_path / "h200.txt"), "--device", "H200"]
    executor = CommandsExecutor([flaky, other])
    run = executor.on("H100")
    await executor.start()
    process = executor._judges[0].process
    assert process is not None
    down.touch()
    await process.kill()

    for _ in range(2):
        with pytest.raises(JudgeUnavailable, match="no route to host"):
            await run.describe(problem("a"))
    down.unlink()
    reference = await run.describe(problem("a"))
    await executor.close()

    assert "H100" == reference.device.name
