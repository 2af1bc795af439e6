"""The MCP server through the official client: tools, long and cancelled calls, dead judges, and what is stored."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

pytest.importorskip("mcp")

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp_samples import EXAMPLE, MODEL, answer, gone, judge_line, processes_with, refusal, waited

import stark
from stark.mcp.jobs import Jobs
from stark.mcp.server import make_server
from stark.mcp.workbench import Workbench
from stark.options import RunOptions
from stark.regions.results import Answer
from support.judge import ENDS_THE_JUDGE, IS_NOISY, TAKES_LONG

SOURCE = EXAMPLE.candidate.source


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a problem and a candidate. The shared server finds its store where it works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.py").write_text(EXAMPLE.problem.source)
    (tmp_path / "kernel.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names the shared judge's processes."""
    return tmp_path_factory.mktemp("judge") / "notes"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(notes: Path) -> AsyncIterator[Workbench]:
    asked = RunOptions(executor=judge_line(notes))
    async with Workbench(asked, jobs=Jobs(call_s=20, progress_s=0.05)) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
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
    assert (1, False) == (first["attempt"], first["reportable"])
    source = f"{SOURCE}\n# unrolled\n"
    final = await answer(
        client, "evaluate", problem="problem.py", candidate=source, parent=1, final=True
    )
    assert (2, True) == (final["attempt"], final["reportable"])

    listed = await answer(client, "attempts")
    assert [(1, 0, "Fuse"), (2, 1, "")] == [
        (each["attempt"], each["parent"], each["idea"]) for each in listed["attempts"]
    ]
    best = await answer(client, "best", source=True)
    assert (2, True, source) == (best["attempt"], best["reportable"], best["source"])
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


async def test_an_example_is_optimized_whatever_happens(
    client: Client, bench: Workbench, workplace: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the tools alone, by scripted kernels and replies: a timeout, a cancelled call and a dead judge change nothing."""
    (workplace / "reply.md").write_text(f"```python\n{SOURCE}\n# by the team\n```\n")
    (workplace / "model.sh").write_text(MODEL)
    slow, told = f"{SOURCE}\n{TAKES_LONG}\n", []

    async def progress(done: float, _: float | None, __: str | None) -> None:
        told.append(done)

    await answer(client, "problem", problem="problem.py")
    with monkeypatch.context() as patch:
        patch.setattr(bench.jobs, "call_s", 0.2)
        first = {"problem": "problem.py", "candidate": slow, "idea": "Fuse."}
        result = await client.call_tool("evaluate", first, progress_callback=progress)
        assert result.structured_content is not None
        pending = result.structured_content["result"]["pending"]
        found = await waited(client, {"pending": pending})
    assert 1 == found["attempt"]
    assert told == sorted(set(told)) and len(told) > 2
    assert "its answer was given" in await refusal(client, "wait", pending=pending)

    second = {"problem": "problem.py", "candidate": f"{slow}# again\n", "parent": 1}
    call = asyncio.create_task(client.call_tool("evaluate", second))
    await asyncio.sleep(0.1)  # the judge has begun
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert 1 == len(stark.load_run().tree.nodes)

    [judge] = processes_with(str(notes))
    killed = asyncio.create_task(answer(client, "evaluate", **second))
    await asyncio.sleep(0.1)
    os.kill(judge, signal.SIGKILL)
    assert ("correct", 2) == ((await killed)["status"], (await killed)["attempt"])

    run = stark.load_run().run_id
    asked = {"run": run, "attempts": 1, "model": "exec:sh model.sh"}
    best = await waited(client, await answer(client, "optimize", **asked))

    assert run == best["run"] and best["reportable"]
    result = stark.load_run(run)
    assert ["agent", "agent", "code"] == [node.role for node in result.tree.nodes]
    assert all(node.candidate and node.works for node in result.tree.nodes)
    assert result.reference and result.promotions and result.ended
    assert 2 == len(result.calls) and not result.begun and not result.in_flight


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


async def test_a_search_may_begin_anew(client: Client, workplace: Path) -> None:
    (workplace / "reply.md").write_text(f"```python\n{SOURCE}\n```\n")
    (workplace / "model.sh").write_text(MODEL)
    asked = {"problem": "problem.py", "attempts": 1, "model": "exec:sh model.sh"}

    await waited(client, await answer(client, "optimize", **asked))

    assert ["stark"] == [each.strategy for each in stark.runs()]


async def test_noisy_times_confirm_nothing(client: Client) -> None:
    source = f"{SOURCE}\n{IS_NOISY}\n"
    final = await answer(client, "evaluate", problem="problem.py", candidate=source, final=True)
    best = await answer(client, "best")

    assert "too noisy" in final["speedup"]
    assert (1, False, 1, False) == (
        final["attempt"],
        final["reportable"],
        best["attempt"],
        best["reportable"],
    )


async def test_modules_are_captured_once_until_measured_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def ask(*words: object) -> Answer:
        asked.append(words[1:3])
        return Answer(problem=EXAMPLE.problem)

    monkeypatch.setattr("stark.regions.asking.ask", ask)
    module = {"problem": "mypkg.block:Block", "inputs": "mypkg.block:example"}

    for _ in range(2):
        await answer(client, "problem", **module)
        await answer(client, "check", candidate="kernel.py", **module)
        await answer(client, "evaluate", candidate="kernel.py", **module)

    assert 2 * [("mypkg.block:Block", "mypkg.block:example")] == asked
    assert [EXAMPLE.problem.name] == [each.problem for each in stark.runs()]
    mixed = {"problem": "problem.py", "inputs": "mypkg.block:example"}
    assert "leave out inputs" in await refusal(client, "check", candidate="kernel.py", **mixed)


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
