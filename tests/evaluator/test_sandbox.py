"""Candidates that try to get out while they are built, loaded and run, in judges with more and with fewer layers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from escape_samples import ESCAPES, SECRET, victims
from stark.core.evaluation import BuildFailed, Correct, Crashed, Evaluation
from stark.core.judging import Limits
from stark.evaluator.candidate.sandbox.layers import LAYERS, offered
from stark.evaluator.executors import Executor, open_executor
from support.candidates import FAULTS, PROBLEM, as_candidate

pytest.importorskip("torch")

pytestmark = [pytest.mark.judge, pytest.mark.asyncio(loop_scope="module")]

HERE = {layer for layer, why_not in offered().items() if why_not is None}

LEFT_OUT = {
    "everything": "",
    # As in a container that forbids namespaces, and nearly so on a GPU.
    "a container": "network,processes,proc,tasks,mounts",
    "nothing": ",".join(layer for layer in LAYERS if layer not in ("limits", "capabilities")),
}

HONEST = as_candidate("cpp", FAULTS["honest"][0])

TRIES = """
import json, os
import torch
import torch.nn as nn

there = json.loads({there!r})

def tried():
    said = {{}}
    for name, source in json.loads({escapes!r}).items():
        try:
            exec(source, {{"there": there}})
            said[name] = "escaped"
        except BaseException as error:
            said[name] = repr(error)[:100]
    return said

if os.path.exists("built"):
    print("build", open("built").read(), flush=True)
else:
    open("built", "w").write(json.dumps(tried()))

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.calls = 0
        print("load", json.dumps(tried()), flush=True)

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            print("verify", json.dumps(tried()), flush=True)
        return torch.relu(x) * self.scale
"""


class Prison(NamedTuple):
    """A judge, the layers around its candidates, and what lies outside."""

    judge: Executor
    layers: frozenset[str]
    there: dict[str, object]


def opened(
    tmp: Path, left_out: str, monkeypatch: pytest.MonkeyPatch, there: dict[str, object]
) -> Prison:
    monkeypatch.setenv("STARK_CACHE", str(tmp / "cache"))
    monkeypatch.setenv("STARK_SANDBOX_WITHOUT", left_out)
    monkeypatch.setenv("PAID_KEY", SECRET)
    limits = Limits(build_s=20, load_s=20, verify_s=20, timing_budget_s=0.1, memory_gb=2)
    return Prison(
        open_executor("local:cpu", limits), frozenset(HERE - set(left_out.split(","))), there
    )


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    with victims(tmp_path_factory.mktemp("outside") / "there") as there:
        yield there


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=LEFT_OUT)
async def prison(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    outside: dict[str, object],
) -> AsyncIterator[Prison]:
    with pytest.MonkeyPatch.context() as patch:
        left_out = LEFT_OUT[request.param]
        found = opened(tmp_path_factory.mktemp("prison"), left_out, patch, outside)
        await found.judge.describe(PROBLEM)
        yield found
        await found.judge.close()


def module(imports: str = "", construction: str = "", body: str = "") -> str:
    source, _ = FAULTS["honest"]
    source = source.replace("import torch\n", f"import os\nimport torch\n{imports}\n", 1)
    at_init = "self.scale = nn.Parameter(torch.randn(features))\n"
    source = source.replace(at_init, f"{at_init}        {construction or 'pass'}\n")
    return source.replace("        return", f"        {body or 'pass'}\n        return")


def said_in(evaluation: Evaluation) -> dict[str, dict[str, str]]:
    found = re.findall(r"^(build|load|verify) (\{.*\})$", evaluation.output, re.MULTILINE)
    return {phase: json.loads(said) for phase, said in found}


async def test_nothing_gets_out_in_any_phase(prison: Prison) -> None:
    stopped = {
        name: escape.source for name, escape in ESCAPES.items() if escape.stopped_by & prison.layers
    }
    source = TRIES.format(there=json.dumps(prison.there), escapes=json.dumps(stopped))

    evaluation = await prison.judge.evaluate(PROBLEM, as_candidate("cpp", source))

    assert isinstance(evaluation, Correct), evaluation
    said = said_in(evaluation)
    assert {"build", "load", "verify"} == set(said)
    for phase, by_name in said.items():
        assert set(stopped) == set(by_name)
        assert [] == [name for name, word in by_name.items() if word == "escaped"], phase


async def test_every_evaluation_says_its_layers(prison: Prison) -> None:
    evaluation = await prison.judge.evaluate(PROBLEM, HONEST)

    assert prison.layers == set(evaluation.sandbox)


async def test_gaps_are_said_before_anything_runs(prison: Prison) -> None:
    reference = await prison.judge.describe(PROBLEM)

    warned = [said for said in reference.warnings if "model-written code can" in said]
    assert bool(warned) == (not {"landlock", "seccomp", "mounts"} <= prison.layers)


async def test_a_daemon_ends_with_its_candidate(prison: Prison) -> None:
    daemon = (
        "reading, writing = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.write(writing, b'attacked')\n"
        "        os.execvp('sleep', ['sleep', '4242'])\n"
        "    os._exit(0)\n"
        "print(os.read(reading, 8), flush=True)\n"
    )

    evaluation = await prison.judge.evaluate(PROBLEM, as_candidate("cpp", module(imports=daemon)))

    assert "attacked" in evaluation.output, evaluation
    assert [] == [line for line in command_lines() if line == b"sleep\x004242\x00"]


async def test_processes_that_fork_faster_than_they_are_found_end_with_their_candidate(
    prison: Prison,
) -> None:
    if not prison.layers & {"processes", "seccomp"}:
        pytest.skip("nothing keeps a process in its group, and this one would be left for good")
    chain = (
        "import itertools\n"
        "reading, writing = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for generation in itertools.count():\n"
        "        if generation == 20:\n"
        "            os.write(writing, b'attacked')\n"
        "        if os.fork():\n"
        "            os._exit(0)\n"
        "print(os.read(reading, 8), flush=True)\n"
    )

    evaluation = await prison.judge.evaluate(PROBLEM, as_candidate("cpp", module(imports=chain)))

    assert "attacked" in evaluation.output, evaluation
    assert min(started_in(0.2) for _ in range(5)) < 50  # the chain is good for a hundred


async def test_its_keeper_cannot_be_turned_against_the_judge(prison: Prison) -> None:
    attack = (
        "import signal\n"
        "print('attacked', flush=True)\n"
        "for number in (signal.SIGSTOP, signal.SIGKILL):\n"
        "    try:\n"
        "        os.kill(os.getppid(), number)\n"
        "    except PermissionError:\n"
        "        pass\n"
    )

    evaluation = await prison.judge.evaluate(PROBLEM, as_candidate("cpp", module(imports=attack)))

    assert "attacked" in evaluation.output, evaluation
    assert "correct" == (await prison.judge.evaluate(PROBLEM, HONEST)).status


async def test_what_runs_is_what_was_asked_for(prison: Prison) -> None:
    rewrite = (
        "try:\n    open(__file__, 'w').write('raise RuntimeError')\nexcept OSError:\n    pass\n"
    )

    evaluation = await prison.judge.evaluate(PROBLEM, as_candidate("cpp", module(imports=rewrite)))

    assert "correct" == evaluation.status, evaluation


async def test_compiled_code_beside_the_file_counts_for_nothing(prison: Prison) -> None:
    plant = (
        "import importlib.util, py_compile\n"
        "try:\n"
        "    other = 'other.py'\n"
        "    open(other, 'w').write('raise RuntimeError')\n"
        "    os.utime(other, ns=(os.stat(__file__).st_mtime_ns,) * 2)\n"
        "    py_compile.compile(other, importlib.util.cache_from_source(__file__), doraise=True,\n"
        "        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\n"
        "except OSError:\n"
        "    pass\n"
    )

    evaluation = await prison.judge.evaluate(PROBLEM, as_candidate("cpp", module(imports=plant)))

    assert "correct" == evaluation.status, evaluation


async def test_nothing_is_kept_from_one_run_to_the_next(prison: Prison) -> None:
    keeper = as_candidate(
        "cpp",
        module(
            construction="print('found', os.path.exists('answer')); open('answer', 'w').close()"
        ),
    )

    first = await prison.judge.evaluate(PROBLEM, keeper)
    second = await prison.judge.evaluate(PROBLEM, keeper)

    assert "found False" in first.output
    assert "found False" in second.output


async def test_a_fork_bomb_is_ended_whole(prison: Prison) -> None:
    bomb = (
        "import subprocess, time\n"
        "        loop = 'n=0; while [ $n -lt 2000 ]; do sleep 4343 & n=$((n+1)); done'\n"
        "        subprocess.run(['sh', '-c', loop])\n"
        "        time.sleep(15)"
    )

    evaluation = await prison.judge.evaluate(
        PROBLEM, as_candidate("cpp", module(construction=bomb))
    )

    assert isinstance(evaluation, Crashed), evaluation
    assert "processes and threads" in evaluation.error
    assert [] == [line for line in command_lines() if line == b"sleep\x004343\x00"]
    assert "correct" == (await prison.judge.evaluate(PROBLEM, HONEST)).status


async def test_more_than_a_candidate_may_write_ends_it(prison: Prison) -> None:
    flood = (
        "import time\n"
        "for number in range(3):\n"
        "    os.truncate(os.open(f'{number}', os.O_CREAT | os.O_WRONLY), 3_500_000_000)\n"
        "time.sleep(15)\n"
    )

    evaluation = await prison.judge.evaluate(PROBLEM, as_candidate("cpp", module(imports=flood)))

    assert isinstance(evaluation, BuildFailed), evaluation
    assert "it wrote more than 8.6 GB" in evaluation.error
    assert evaluation.seconds["build"] < 12


async def test_a_folder_that_cannot_be_cleared_stops_nobody(prison: Prison) -> None:
    locked = as_candidate(
        "cpp",
        module(
            imports="os.makedirs('outer/locked/within', exist_ok=True)\n"
            "os.chmod('outer/locked', 0)\n"
            "deep = os.getcwd()\n"
            "for _ in range(30):\n"
            "    os.makedirs('deeper', exist_ok=True)\n"
            "    os.chdir('deeper')\n"
            "os.chdir(deep)\n"
        ),
    )

    evaluations = [await prison.judge.evaluate(PROBLEM, locked) for _ in range(2)]

    assert ["correct", "correct"] == [found.status for found in evaluations]


def started_in(seconds: float) -> int:
    """How many processes this machine starts in a while."""

    def started() -> int:
        lines = Path("/proc/stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("processes"))

    before = started()
    time.sleep(seconds)
    return started() - before


def command_lines() -> list[bytes]:
    """Of every process on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            found.append(path.read_bytes())
    return found
