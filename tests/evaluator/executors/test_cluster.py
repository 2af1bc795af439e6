"""A Ray cluster of two nodes on this machine, with judges that need no torch."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

ray = pytest.importorskip("ray")
pytest.importorskip("ray.cluster_utils")

from stark.benches.report import make_report
from stark.core.errors import JudgeUnavailable
from stark.core.evaluation import Correct, Crashed
from stark.core.judging import Limits
from stark.evaluator.executors import FolderExecutor, actor, cluster, engine, serve_folder
from stark.evaluator.executors.cluster import RayExecutor
from stark.evaluator.executors.judges import CommandsExecutor
from stark.store import Store
from support import FAKE_JUDGE
from support import benches as samples
from support.candidates import FAULTS, PROBLEM, as_candidate
from support.judge import ENDS_THE_JUDGE

HONEST = as_candidate("cpp", FAULTS["honest"][0])

Opens = Callable[..., RayExecutor]

# A judge waits for a place in the cluster, however long that takes.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """A cluster whose head has no processors for judges, and a node that has two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setattr(engine, "LOST_PAUSE_S", 0.2)
        nodes = ray.cluster_utils.Cluster()
        soon = {
            "health_check_initial_delay_ms": 300,
            "health_check_period_ms": 300,
            "health_check_failure_threshold": 2,
        }
        nodes.add_node(num_cpus=0, include_dashboard=False, _system_config=soon)
        nodes.worker = nodes.add_node(num_cpus=2)
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture
def address(two_nodes: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster, in which each test has actors of its own."""
    monkeypatch.setattr(cluster, "NAMESPACE", request.node.name)
    return f"{two_nodes.address}?device=cpu&judges=2"


@pytest_asyncio.fixture(loop_scope="module")
async def open_with(address: str) -> AsyncIterator[Opens]:
    """Opens the cluster with a judge's command line. After the test, even one that fails, its actors give their places back."""
    opened = []

    def executor(*command: str) -> RayExecutor:
        opened.append(RayExecutor(address, command=command))
        return opened[-1]

    yield executor
    for each in opened:
        await each.close()
        for judge in each._judges:
            ray.kill(judge._actor)


def fake_judge(notes: Path, *options: str) -> tuple[str, ...]:
    """Its command line."""
    return sys.executable, FAKE_JUDGE, str(notes), *options


async def until(happened: Callable[[], bool]) -> None:
    for _ in range(400):
        if happened():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it did not happen within 20 s")


async def test_candidates_are_judged_and_one_that_ends_judges_is_found(
    open_with: Opens, tmp_path: Path
) -> None:
    executor = open_with(*fake_judge(tmp_path / "notes"))
    culprit = as_candidate("cpp", f"{HONEST.source}\n{ENDS_THE_JUDGE}")

    found = await asyncio.gather(
        *(executor.evaluate(PROBLEM, each) for each in [HONEST] * 10 + [culprit])
    )

    assert all(isinstance(each, Correct) for each in found[:-1])
    assert isinstance(found[-1], Crashed)
    assert "Without this candidate, the judge works" in found[-1].error


async def test_drivers_share_the_actors_and_what_they_have_prepared(
    open_with: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor, "PING_S", 0.1)
    first, second = (open_with(*fake_judge(tmp_path / "notes")) for _ in range(2))
    await first.evaluate(PROBLEM, HONEST)
    await second.start()
    await until(lambda: any(judge.kept for judge in second._judges))

    for _ in range(3):
        await second.evaluate(PROBLEM, HONEST)

    assert [PROBLEM.name] == (tmp_path / "notes").read_text().split(), "it is prepared once"


async def test_actors_of_two_kinds_are_reached_through_a_view_each(
    open_with: Opens, tmp_path: Path
) -> None:
    notes, judge = tmp_path / "notes", f"{sys.executable} {FAKE_JUDGE}"
    one_of_each = f"mkdir {tmp_path}/first && kind=H100 || kind=H200; exec {judge} {notes}-$kind --device $kind"
    whole = open_with("sh", "-c", one_of_each)

    references = [await whole.on(kind).describe(PROBLEM) for kind in ("H100", "H200")]
    for kind in ("H100", "H200"):
        for _ in range(3):
            assert isinstance(await whole.on(kind).evaluate(PROBLEM, HONEST, "promote"), Correct)
    with pytest.raises(JudgeUnavailable, match="it is for a machine of kind 'B200'"):
        await whole.on("B200").describe(PROBLEM)

    assert ["H100", "H200"] == [each.device.name for each in references]
    assert [PROBLEM.name] == Path(f"{notes}-H100").read_text().split()
    assert [PROBLEM.name] == Path(f"{notes}-H200").read_text().split()


async def test_a_cancelled_request_is_cancelled_at_the_judge(
    open_with: Opens, tmp_path: Path
) -> None:
    executor = open_with(*fake_judge(tmp_path / "notes", "--judging-s", "30"))
    asked = asyncio.create_task(executor.evaluate(PROBLEM, HONEST))
    await until((tmp_path / "notes").exists)

    asked.cancel()

    await until(lambda: "cancelled" in (tmp_path / "notes").read_text())


async def test_dead_workers_and_nodes_lose_nothing_and_blame_nobody(
    open_with: Opens, two_nodes: Any, tmp_path: Path
) -> None:
    executor = open_with(*fake_judge(tmp_path / "notes", "--judging-s", "0.2"))
    await executor.start()
    await until(lambda: 2 == len(fake_judges(tmp_path)))
    waiting = [asyncio.create_task(executor.evaluate(PROBLEM, HONEST)) for _ in range(20)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    judges = fake_judges(tmp_path)
    workers = [int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in judges]
    os.kill(workers[0], signal.SIGKILL)
    await asyncio.to_thread(gone, judges[:1], 5.0)
    two_nodes.remove_node(two_nodes.worker, allow_graceful=False)
    try:
        await asyncio.to_thread(gone, workers, 20.0)
        await asyncio.to_thread(gone, judges, 5.0)
    finally:
        two_nodes.worker = two_nodes.add_node(num_cpus=2)

    assert all(isinstance(each, Correct) for each in await asyncio.gather(*waiting))


def fake_judges(folder: Path) -> list[int]:
    """Processes of the judges that write to this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if FAKE_JUDGE.encode() in words and any(word.startswith(bytes(folder)) for word in words):
            found.append(int(path.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def gone(pids: list[int], within_s: float) -> None:
    """Fail if one of the processes still runs after so many seconds."""
    deadline = time.monotonic() + within_s
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, [Path(f"/proc/{p}/status").read_text() for p in left]
        time.sleep(0.05)


async def test_a_judge_that_does_not_start_says_where_and_why(open_with: Opens) -> None:
    executor = open_with("sh", "-c", "echo no driver >&2; exit 3")

    with pytest.raises(JudgeUnavailable, match=r"on the node \S+, the judge .*no driver"):
        await executor.evaluate(PROBLEM, HONEST)


async def test_a_cluster_that_is_not_there_is_named() -> None:
    executor = RayExecutor("127.0.0.1:1")
    ray.shutdown()

    with pytest.raises(JudgeUnavailable, match=r"cannot reach the Ray cluster 127\.0\.0\.1:1"):
        await executor.describe(PROBLEM)


async def test_the_same_bench_gives_the_same_trees_and_verdicts(
    open_with: Opens, tmp_path: Path
) -> None:
    judge = fake_judge(tmp_path / "notes", "--inventing")
    workers = CommandsExecutor([judge, judge])
    (shared := tmp_path / "shared").mkdir()
    executors = {
        "local": CommandsExecutor([judge, judge]),
        "ray": open_with(*judge),
        "folder": FolderExecutor(shared, Limits()),
    }
    serving = asyncio.create_task(serve_folder(shared, workers, False, lambda _: None))
    reports = {}
    for name, executor in executors.items():
        with Store.open(f"sqlite:///{tmp_path}/{name}.db") as store:
            bench = samples.new_bench(store, 3, name="same", problems=samples.PROBLEMS[:2])
            await samples.work(store, bench, 3, executor)
            reports[name] = samples.timeless(make_report(store, bench))
    serving.cancel()
    for executor in (*executors.values(), workers):
        await executor.close()

    assert len(reports["local"]["runs"]) == 6
    assert reports["local"] == reports["ray"] == reports["folder"]
