from __future__ import annotations

import asyncio
import os
import platform
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from stark.core.errors import DeadlyRequest, JudgeUnavailable, UsageError
from stark.core.evaluation import Correct, Crashed
from stark.core.judging import Limits
from stark.evaluator.executors import open_executor
from stark.evaluator.executors.judges import TRIES_ALONE, CommandsExecutor
from stark.evaluator.judge.building.cache import locks_below
from stark.evaluator.judge.lock import DeviceLock
from stark.evaluator.protocol import PROTOCOL, Notice
from support import FAKE_JUDGE
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.judge import ENDS_THE_JUDGE, FINDS_A_FULL_DISK
from support.sharing import JudgeWithin

HONEST = as_candidate("cpp", FAULTS["honest"][0])


def fake_judge(folder: Path) -> list[str]:
    """The command of a judge that imports no torch and starts at once."""
    return [sys.executable, FAKE_JUDGE, str(folder / "notes")]


@pytest.mark.judge
async def test_a_judge_says_that_it_waits_and_one_that_dies_is_replaced_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one test, since a judge takes seconds to start."""
    pytest.importorskip("torch")
    monkeypatch.setenv("STARK_CACHE", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told: list[str] = []
    executor = open_executor("local:cpu", Limits(timing_budget_s=0.1), on_notice=told.append)
    assert isinstance(executor, CommandsExecutor)

    (locks := locks_below(tmp_path)).mkdir()
    another = DeviceLock(locks, f"cpu-{platform.node()}", 0, lambda _: None)
    with another.turn():
        described = asyncio.create_task(executor.describe(PROBLEM))
        while not told:
            assert not described.done()
            await asyncio.sleep(0.05)
    await described
    assert ["waiting for another judge on cpu", ""] == told

    (folder,) = tmp_path.glob("stark-judge-*")
    candidates = [as_candidate("cpp", FAULTS["honest"][0] + f"\n# {n}") for n in range(3)]
    waiting = [asyncio.create_task(executor.evaluate(PROBLEM, c)) for c in candidates]
    await asyncio.sleep(0.3)

    (judge,) = executor._judges
    assert judge.process is not None
    os.killpg(judge.process.pid, signal.SIGKILL)

    assert all(isinstance(found, Correct) for found in await asyncio.gather(*waiting))
    await nothing_is_left_of(folder)
    (replacement,) = tmp_path.glob("stark-judge-*")
    await executor.close()
    await nothing_is_left_of(replacement)


async def nothing_is_left_of(folder: Path) -> None:
    """Once the judge that works in this folder has ended."""
    for _ in range(100):
        if not folder.exists() and not started_in(folder):
            break
        await asyncio.sleep(0.05)
    assert not folder.exists()
    assert [] == started_in(folder)


async def test_a_judge_behind_any_command(tmp_path: Path) -> None:
    line = f"sh -c 'echo Welcome to the cluster; exec {shlex.join(fake_judge(tmp_path))}'"
    executor = open_executor(f"command:{line}")

    found = await executor.evaluate(PROBLEM, HONEST)

    assert "correct" == found.status
    await executor.close()


@pytest.mark.asyncio(loop_scope="session")
async def test_a_request_is_answered_within_the_limits_that_it_came_with(
    judge_within: JudgeWithin,
) -> None:
    pytest.importorskip("torch")
    talkative = as_candidate("cpp", FAULTS["honest"][0] + "\nprint('said' * 1000)\n")
    kept: list[int] = []

    for output_kb in (1, 64):
        executor = judge_within(Limits(timing_budget_s=0.1, output_kb=output_kb))
        kept.append(len((await executor.evaluate(PROBLEM, talkative)).output))

    short, whole = kept
    assert short < 2000 < 4000 <= whole


async def test_a_judge_that_cannot_start_says_why() -> None:
    executor = open_executor("command:sh -c 'echo no such partition >&2; exit 7'")

    with pytest.raises(JudgeUnavailable, match="no such partition"):
        await executor.describe(PROBLEM)
    await executor.close()


async def test_what_a_command_printed_is_told_when_no_judge_comes_of_it() -> None:
    executor = open_executor("command:sh -c 'echo the queue is full'")

    with pytest.raises(JudgeUnavailable) as told:
        await executor.describe(PROBLEM)

    assert (
        "the judge (sh -c 'echo the queue is full') does not start; "
        "run that command in a shell; it must start a judge of this version of STARK. The judge's output and the error:\n"
        "the queue is full\n"
        "the command ended before a judge was ready"
    ) == str(told.value)
    await executor.close()


async def test_only_a_judge_of_this_machine_sends_to_the_doctor() -> None:
    executor = open_executor("local:banana")

    with pytest.raises(JudgeUnavailable, match="run `stark doctor` to see what this machine lacks"):
        await executor.describe(PROBLEM)
    await executor.close()


async def test_a_judge_that_cannot_start_leaves_the_work_to_the_others(tmp_path: Path) -> None:
    executor = CommandsExecutor([["sh", "-c", "exit 7"], fake_judge(tmp_path)])

    reference = await executor.describe(PROBLEM)

    assert reference.eager.latency_ms > 0
    await executor.close()


async def test_judges_are_started_ahead_while_one_of_them_can_be(tmp_path: Path) -> None:
    executor = CommandsExecutor([["sh", "-c", "exit 7"], fake_judge(tmp_path)])

    await executor.start()

    assert [False, True] == [judge.process is not None for judge in executor._judges]
    await executor.close()

    none = CommandsExecutor([["sh", "-c", "exit 7"], ["sh", "-c", "exit 8"]])
    with pytest.raises(JudgeUnavailable, match="exit 8"):
        await none.start()
    await none.close()


@pytest.mark.slow
async def test_what_waits_when_the_executor_is_closed_is_told_so() -> None:
    executor = CommandsExecutor([["sh", "-c", "sleep 0.5; exit 7"]])
    waiting = asyncio.create_task(executor.describe(PROBLEM))
    await asyncio.sleep(0.1)

    await executor.close()

    with pytest.raises(JudgeUnavailable):
        await waiting
    with pytest.raises(JudgeUnavailable, match="is closed"):
        await executor.describe(PROBLEM)


async def test_a_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    executor = CommandsExecutor([["sh", "-c", f"sleep 600; echo {tmp_path}"]])
    waiting = asyncio.create_task(executor.describe(PROBLEM))
    await asyncio.sleep(0.3)
    assert 1 == len(started_in(tmp_path))

    waiting.cancel()
    await asyncio.wait([waiting])

    assert [] == started_in(tmp_path)


async def test_what_a_judge_prints_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stark.evaluator.executors.judge_process.LONGEST_LINE", 1000)
    executor = CommandsExecutor(
        [["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2"]]
    )

    with pytest.raises(JudgeUnavailable, match="the end"):
        await executor.describe(PROBLEM)
    await executor.close()


@pytest.mark.slow
async def test_notices_of_a_judge_that_starts_are_passed_on(tmp_path: Path) -> None:
    notice = Notice(text="waiting for another judge on cpu").model_dump_json()
    judge = shlex.join(fake_judge(tmp_path))
    told: list[str] = []
    executor = CommandsExecutor([["sh", "-c", f"echo '{notice}'; exec {judge}"]])
    executor.on_notice = told.append

    await executor.describe(PROBLEM)
    first = list(told)
    await executor.close()

    assert ["waiting for another judge on cpu"] == first
    assert [*first, ""] == told  # a judge that ended waits for nothing


async def test_a_command_that_does_not_exist() -> None:
    executor = open_executor("command:/nowhere/python -m stark.evaluator.judge")

    with pytest.raises(JudgeUnavailable, match="cannot run the judge's command"):
        await executor.describe(PROBLEM)


async def test_a_judge_of_another_version_is_refused() -> None:
    hello = '{"kind":"hello","protocol":999,"device":{"kind":"cpu","name":"x","architecture":"x","processors":1,"memory_gb":1,"last_level_cache_mb":1,"bandwidth_gb_s":1,"peak_tflop_s":{}},"versions":{}}'
    executor = CommandsExecutor([["sh", "-c", f"echo '{hello}'; sleep 5"]])

    with pytest.raises(JudgeUnavailable, match="protocol version 999"):
        await executor.describe(PROBLEM)
    await executor.close()


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ('{"kind":"hello","protocol":3,"gpu":"x"}', "the judge uses protocol version 3, not"),
        (
            f'{{"kind":"hello","protocol":{PROTOCOL},"gpu":"x"}}',
            "the judge's first message cannot be parsed",
        ),
        ('{"kind":"hello","proto', "the judge's first message cannot be parsed"),
    ],
)
async def test_a_judge_whose_hello_has_another_form_is_of_another_version(
    hello: str, reason: str
) -> None:
    executor = CommandsExecutor([["sh", "-c", f"echo Warning >&2; echo '{hello}'; sleep 5"]])

    with pytest.raises(JudgeUnavailable, match=f"{reason}.*: install the same version of STARK"):
        await executor.describe(PROBLEM)
    await executor.close()


async def test_a_command_that_is_not_closed_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"no closing quotation.*: ssh 'box"):
        open_executor("command:ssh 'box")


@pytest.mark.parametrize("notation", ["nothing", "command", "folder:", "slurm:x"])
def test_an_unknown_executor_is_a_usage_error(notation: str) -> None:
    with pytest.raises(UsageError, match="is not an executor"):
        open_executor(notation)


def started_in(folder: Path) -> list[str]:
    """The processes whose command line names a judge's folder."""
    found = []
    for path in processes():
        with suppress(OSError):  # it ended meanwhile
            found.append(path.read_bytes())
    return [line.decode() for line in found if str(folder).encode() in line]


def processes() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*/cmdline"))


KILLER = """
import os, signal
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        keeper = open(f"/proc/{os.getppid()}/stat").read()
        os.kill(int(keeper.rpartition(")")[2].split()[1]), signal.SIGKILL)
"""


@pytest.mark.judge
async def test_a_candidate_that_ends_a_real_judge_is_told_from_its_neighbour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("STARK_SANDBOX_WITHOUT", "network,processes,landlock,seccomp")
    monkeypatch.setattr("stark.evaluator.executors.judges.TRIES_ALONE", 1)
    executor = open_executor("local:cpu", Limits(timing_budget_s=0.1))

    killer, neighbour = await asyncio.gather(
        executor.evaluate(PROBLEM, as_candidate("cpp", KILLER)),
        executor.evaluate(PROBLEM, HONEST),
    )
    await executor.close()

    assert "crashed" == killer.status
    assert "Without this candidate, the judge works." in str(killer)
    assert "correct" == neighbour.status


@pytest.mark.slow
async def test_every_candidate_that_ends_its_judge_is_tried_alone(tmp_path: Path) -> None:
    executor = CommandsExecutor([fake_judge(tmp_path)])
    killers = [as_candidate("cpp", f"{ENDS_THE_JUDGE} {number}") for number in range(2)]

    first, neighbour, second = await asyncio.gather(
        *(executor.evaluate(PROBLEM, sent) for sent in (killers[0], HONEST, killers[1]))
    )
    await executor.close()

    for found in (first, second):
        assert isinstance(found, Crashed), found
        assert f"the judge died {TRIES_ALONE} times on the same request" in found.error
        assert "Without this candidate, the judge works." in found.error
    assert "correct" == neighbour.status


@pytest.mark.slow
async def test_a_full_disk_at_the_judge_is_no_candidates_fault(tmp_path: Path) -> None:
    executor = CommandsExecutor([fake_judge(tmp_path)])

    with pytest.raises(JudgeUnavailable, match="No space left on device") as raised:
        await executor.evaluate(PROBLEM, as_candidate("cpp", FINDS_A_FULL_DISK))
    neighbour = await executor.evaluate(PROBLEM, HONEST)
    await executor.close()

    assert not isinstance(raised.value, DeadlyRequest), "a worker must not refuse the request"
    assert "correct" == neighbour.status


@pytest.mark.slow
async def test_another_judge_answers_while_the_disk_of_one_is_full(tmp_path: Path) -> None:
    full = f"sed -u 's/{FINDS_A_FULL_DISK}//' | {shlex.join(fake_judge(tmp_path))}"
    executor = CommandsExecutor([fake_judge(tmp_path), ["sh", "-c", full]])

    found = await executor.evaluate(PROBLEM, as_candidate("cpp", FINDS_A_FULL_DISK))
    await executor.close()

    assert "correct" == found.status


async def test_a_notice_that_cannot_be_shown_fails_no_request(tmp_path: Path) -> None:
    notice = Notice(text="waiting for another judge on cpu").model_dump_json()
    judge = shlex.join(fake_judge(tmp_path))
    # One notice before the judge is ready, one after.
    executor = CommandsExecutor(
        [
            [
                "sh",
                "-c",
                f"echo '{notice}'; {judge} | while read -r l; do echo \"$l\"; echo '{notice}'; done",
            ]
        ]
    )
    raised, reported = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def broken(text: str) -> None:
        raised.append(text)
        raise BrokenPipeError("the terminal is gone")

    executor.on_notice = broken
    async with asyncio.timeout(20):
        found = await executor.evaluate(PROBLEM, HONEST)
        await executor.close()

    assert "correct" == found.status
    assert raised
    assert len(raised) == len(reported)
