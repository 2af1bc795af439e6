"""The MCP server through the official client: tools, long and cancelled calls, dead judges, and what is stored."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp_samples import EXAMPLE, answer, gone, judge_line, processes_with, refusal

import stark
from stark.mcp.jobs import Jobs
from stark.mcp.server import make_server
from stark.mcp.workbench import Workbench
from stark.options import RunOptions
from support.judge import ENDS_THE_JUDGE

SOURCE = EXAMPLE.candidate.source


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.py").write_text(EXAMPLE.problem.source)
    (tmp_path / "kernel.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def judging_s() -> float:
    return 0.02


@pytest.fixture
def call_s() -> float:
    return 20.0


@pytest.fixture
async def bench(workplace: Path, judging_s: float, call_s: float) -> AsyncIterator[Workbench]:
    asked = RunOptions(executor=judge_line(workplace / "notes", judging_s))
    async with Workbench(asked, jobs=Jobs(call_s, progress_s=0.05)) as opened:
        yield opened


@pytest.fixture
async def client(bench: Workbench) -> AsyncIterator[Client]:
    """A connected client. One task enters and leaves it, as its library demands; a fixture's two halves are two tasks."""
    connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def stay() -> None:
        async with Client(make_server(bench)) as opened:
            connected.set_result(opened)
            await done.wait()

    staying = asyncio.create_task(stay())
    yield await connected
    done.set()
    await staying


async def test_the_expert_s_loop(client: Client) -> None:
    measured = await answer(client, "problem", problem="problem.py", guide="triton")
    assert "Invented GPU" in measured["summary"] and "## The form" in measured["guide"]

    checked = await answer(client, "check", problem="problem.py", candidate="kernel.py")
    assert "correct" == checked["status"] and [] == stark.runs()

    first = await answer(
        client, "evaluate", problem="problem.py", candidate="kernel.py", idea="Fuse."
    )
    assert (1, False) == (first["attempt"], first["confirmed"])
    source = f"{SOURCE}\n# unrolled\n"
    final = await answer(
        client, "evaluate", problem="problem.py", candidate=source, parent=1, final=True
    )
    assert (2, True) == (final["attempt"], final["confirmed"])

    listed = await answer(client, "attempts")
    assert [(1, 0, "Fuse"), (2, 1, "")] == [
        (each["attempt"], each["parent"], each["idea"]) for each in listed["attempts"]
    ]
    best = await answer(client, "best", source=True)
    assert (2, True, source) == (best["attempt"], best["confirmed"], best["source"])
    assert [1] == best["unchecked"]
    assert "eager PyTorch takes" in (await answer(client, "profile"))["text"]
    [run] = stark.runs()
    assert "agent" == run.strategy and run.confirmed and run.ended is not None


async def test_tools_that_run_code_do_not_claim_to_read_only(client: Client) -> None:
    listed = (await client.list_tools()).tools
    careful = {each.name for each in listed if not each.annotations.read_only_hint}

    assert {"problem", "check", "evaluate", "optimize", "wait"} == careful
    assert all(each.description and each.output_schema for each in listed)


async def test_a_source_that_is_no_candidate_is_no_attempt(client: Client) -> None:
    found = await answer(client, "evaluate", problem="problem.py", candidate="x = 1\n")

    assert ("unusable", None) == (found["status"], found["attempt"])
    assert [] == stark.runs()


async def test_mistakes_are_explained(client: Client) -> None:
    assert "no file" in await refusal(client, "problem", problem="other.py")
    assert "there is no attempt 3" in await refusal(
        client, "evaluate", problem="problem.py", candidate="kernel.py", parent=3
    )
    assert "name a budget" in await refusal(client, "optimize", problem="problem.py")
    assert "there is no job-77" in await refusal(client, "wait", pending="job-77")


@pytest.mark.parametrize(("judging_s", "call_s"), [(0.3, 0.4)])
async def test_a_long_call_returns_an_id_to_wait_for(client: Client) -> None:
    told: list[float] = []

    async def progress(done: float, _: float | None, __: str | None) -> None:
        told.append(done)

    arguments = {"problem": "problem.py", "candidate": "kernel.py"}
    result = await client.call_tool("evaluate", arguments, progress_callback=progress)
    assert result.structured_content is not None
    pending = result.structured_content["result"]["pending"]
    found = await answer(client, "wait", pending=pending)
    while "pending" in found:
        found = await answer(client, "wait", pending=pending)

    assert 1 == found["attempt"]
    assert told == sorted(set(told)) and len(told) > 2
    assert "its answer was given" in await refusal(client, "wait", pending=pending)


@pytest.mark.parametrize("judging_s", [0.5])
async def test_a_cancelled_call_leaves_nothing_and_disturbs_nothing(client: Client) -> None:
    await answer(client, "problem", problem="problem.py")
    call = asyncio.create_task(
        client.call_tool("evaluate", {"problem": "problem.py", "candidate": "kernel.py"})
    )
    await asyncio.sleep(0.1)  # the judge has begun
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [] == stark.runs()

    found = await answer(client, "evaluate", problem="problem.py", candidate="kernel.py")
    assert 1 == found["attempt"]


@pytest.mark.parametrize("judging_s", [0.5])
async def test_a_dead_judge_is_replaced(client: Client, workplace: Path) -> None:
    await answer(client, "problem", problem="problem.py")
    [judge] = processes_with(str(workplace / "notes"))
    call = asyncio.create_task(
        answer(client, "evaluate", problem="problem.py", candidate="kernel.py")
    )
    await asyncio.sleep(0.2)
    os.kill(judge, signal.SIGKILL)

    assert "correct" == (await call)["status"]


async def test_a_candidate_that_kills_judges_is_an_attempt_that_crashed(client: Client) -> None:
    source = f"{SOURCE}\n{ENDS_THE_JUDGE}\n"
    found = await answer(client, "evaluate", problem="problem.py", candidate=source)

    assert ("crashed", 1) == (found["status"], found["attempt"])
    again = await answer(client, "evaluate", problem="problem.py", candidate="kernel.py")
    assert ("correct", 2) == (again["status"], again["attempt"])


async def test_resources_teach_and_show(client: Client) -> None:
    await answer(client, "evaluate", problem="problem.py", candidate="kernel.py")

    async def text(uri: str) -> str:
        [content] = (await client.read_resource(uri)).contents
        return str(content.text)

    assert "## The form" in await text("stark://guides/cpp")
    first = (await text("stark://techniques")).splitlines()[0].split(": ")[0].removeprefix("- ")
    assert "### The idea" in await text(first)
    assert '"attempt": 1' in await text("stark://runs/last/attempts/1")
    for missing in (
        "stark://guides/cobol",
        "stark://techniques/gpu/luck",
        "stark://runs/x/attempts/1",
    ):
        with pytest.raises(MCPError):
            await text(missing)


async def test_a_search_continues_the_agents_tree(client: Client, workplace: Path) -> None:
    (workplace / "reply.md").write_text(f"```python\n{SOURCE}\n# by the team\n```\n")
    (workplace / "model.sh").write_text(
        'case "$(cat)" in *"Your role: plan"*) '
        "printf 'ACTION: rewrite\\nSTRATEGY:\\nFuse everything.\\n';; *) cat reply.md;; esac\n"
    )
    run = (await answer(client, "evaluate", problem="problem.py", candidate="kernel.py"))["run"]

    best = await answer(client, "optimize", run=run, attempts=1, model="exec:sh model.sh")
    while "pending" in best:
        best = await answer(client, "wait", pending=best["pending"])

    assert run == best["run"] and best["confirmed"]
    nodes = stark.load_run(run).tree.nodes
    assert ["agent", "code"] == [node.role for node in nodes]

    new = await answer(
        client, "optimize", problem="problem.py", attempts=1, model="exec:sh model.sh"
    )
    while "pending" in new:
        new = await answer(client, "wait", pending=new["pending"])
    assert run != new["run"] and {"agent", "stark"} == {each.strategy for each in stark.runs()}


async def test_judges_end_with_the_client_over_stdio(workplace: Path) -> None:
    command = ["-m", "stark", "mcp", "--executor", judge_line(workplace / "notes")]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=workplace)
    async with Client(stdio_client(server)) as client:
        await answer(client, "evaluate", problem="problem.py", candidate="kernel.py")
        assert processes_with(str(workplace / "notes"))
    assert not await gone(str(workplace / "notes"))
    assert 1 == len(stark.runs())


async def test_a_signal_ends_the_server_and_its_judges(workplace: Path) -> None:
    line = judge_line(workplace / "notes")
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "stark", "mcp", "--executor", line], cwd=workplace
    )
    async with Client(stdio_client(server)) as client:
        await answer(client, "problem", problem="problem.py")
        [pid] = [each for each in processes_with("\0mcp\0") if each in processes_with(line)]
        os.kill(pid, signal.SIGTERM)
        assert not await gone(str(workplace / "notes"))
