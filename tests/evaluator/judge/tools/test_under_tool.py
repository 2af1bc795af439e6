"""A candidate under a tool that stands for NVIDIA's: it notes what it was given and runs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from stark.core.judging import Limits
from stark.evaluator.judge.building.builds import Built
from stark.evaluator.judge.prepared import PreparedReference
from stark.evaluator.judge.processes.forkserver import Forkserver
from stark.evaluator.judge.tools.running import Desk, NotRun, Ran, Target, found
from support.candidates import PROBLEM
from support.nodes import CPU

PROGRAM = """
import json
import os
import socket
from pathlib import Path
import torch
import torch.nn as nn

def tried(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "escaped"

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(features))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        told = {{
            "capabilities": [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")],
            "seccomp": int(status["Seccomp"]),
            "desk": tried(lambda: list(Path({desk!r}).iterdir())),
            "calls": self.calls,
            "weights": float(self.scale.detach().abs().sum()) > 0,
            "beside": tried(lambda: Path({beside!r}).write_text("mine")),
            "socket": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
            "own": tried(lambda: Path("own").write_text("mine")),
            "scratch": tried(lambda: Path(os.environ["DESK"], "scratch", "lock").write_text("")),
            "log": tried(lambda: Path(os.environ["DESK"], "log").write_text("forged")),
            "home": os.environ["HOME"],
        }}
        print(json.dumps(told), flush=True)
        {then}
        return x
"""

TOOL = """#!/bin/sh
log=$1
shift
echo started > "$log"
export DESK="$PWD" HOME=/elsewhere
"$@"
echo "ended with $?" >> "$log"
"""


@pytest.fixture(scope="module")
def prepared() -> Iterator[PreparedReference]:
    server = Forkserver.start([])
    made = PreparedReference(PROBLEM, torch.device("cpu"), CPU, server)
    yield made
    made.close()
    server.close()


@pytest.fixture(scope="module")
def plain(
    prepared: PreparedReference, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Ran]:
    """A program that does nothing special: its folder, and what came of it under the tool."""
    folder = tmp_path_factory.mktemp("plain")
    return folder, ran(prepared, folder)


def run_under(
    command: Callable[[Path], list[str]], target: Target, warm: int, limit_s: float
) -> Ran:
    server, device = target.prepared.forkserver, target.prepared.device
    with closing(Desk(command, server, device, target.limits)) as desk:
        return desk.run(target, warm, limit_s)


def ran(prepared: PreparedReference, folder: Path, then: str = "pass", limit_s: float = 60) -> Ran:
    """What came of a program under the tool; the third of its calls is the marked one."""
    built = _built(folder, prepared, then)
    tool = folder / "tool"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    target = Target(built, "cpp", prepared, Limits())
    return run_under(lambda path: [str(tool), str(path)], target, warm=2, limit_s=limit_s)


def _built(folder: Path, prepared: PreparedReference, then: str = "pass") -> Built:
    built = Built(folder / "built")
    built.work.mkdir(parents=True, exist_ok=True)
    desk = prepared.forkserver.folder  # what a tool works with lies in a folder of its own below
    built.source.write_text(
        PROGRAM.format(beside=str(folder / "beside"), desk=str(desk), then=then)
    )
    return built


@pytest.mark.slow
def test_a_program_under_a_tool_is_locked_up_and_has_the_references_weights(
    plain: tuple[Path, Ran],
) -> None:
    folder, done = plain

    told = [json.loads(line) for line in done.printed.splitlines() if line.startswith("{")]
    assert "started\nended with 0\n" == done.log and 0 == done.code, done
    assert [1, 2, 3] == [each["calls"] for each in told]
    assert told[0]["weights"]
    assert (folder / "built" / "work" / "own").exists(), "it works in the folder of its build"
    assert [0, 0, 0, 0] == told[0]["capabilities"] and 2 == told[0]["seccomp"]
    for place in ("beside", "desk", "socket"):
        assert told[0][place] in ("PermissionError", "OSError"), told[0]
    assert not (folder / "beside").exists()


@pytest.mark.slow
def test_what_a_tool_told_its_part_in_the_process_stays_and_that_part_can_leave_files(
    plain: tuple[Path, Ran],
) -> None:
    """Nsight Compute's part finds its libraries by a variable, and holds a lock in the folder for temporary files."""
    _, done = plain

    told = json.loads(done.printed.splitlines()[0])
    assert "escaped" == told["scratch"] and "escaped" != told["log"], told
    assert "work" == told["home"], "the folder of its build, whose path is left out of what is told"


@pytest.mark.slow
def test_nothing_that_a_candidate_left_in_its_folder_is_loaded_before_the_lock(
    prepared: PreparedReference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build may leave what interpreters and tools look for in a working folder, a home or on relative paths."""
    evil = "import sys\nsys.exit('loaded before the lock')\n"
    work = tmp_path / "built" / "work"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = work / ".local" / "lib" / version / "site-packages"
    for place in (work, work / "stark", site):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("sitecustomize.py", "usercustomize.py", "json.py", "__init__.py"):
            (place / name).write_text(evil)
    (site / "evil.pth").write_text("import os; os._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", f".{os.pathsep}")

    done = ran(prepared, tmp_path)

    assert 0 == done.code and "loaded before the lock" not in done.printed, done


@pytest.mark.slow
def test_a_tool_that_cannot_be_started_is_told(prepared: PreparedReference, tmp_path: Path) -> None:
    target = Target(_built(tmp_path, prepared), "cpp", prepared, Limits())

    done = run_under(lambda _: ["/nonexistent/tool"], target, warm=0, limit_s=30)

    assert 0 != done.code
    assert "cannot start the tool" in done.why()


@pytest.mark.slow
def test_a_process_started_ahead_imports_modules_and_may_exit_without_cleaning_up(
    prepared: PreparedReference, tmp_path: Path
) -> None:
    then = (
        "import atexit, sys; atexit.register(print, 'cleaned up'); print('colorsys' in sys.modules)"
    )
    target = Target(_built(tmp_path, prepared, then), "cpp", prepared, Limits())
    server, modules = prepared.forkserver, ("not_installed", "colorsys")

    desk = Desk(lambda _: ["env", "DESK=."], server, prepared.device, Limits(), modules=modules)
    with closing(desk):
        desk.await_imports()
        ready = list(server.folder.glob("*/*.ready"))
        done = desk.run(target, warm=0, limit_s=60, abrupt=True)

    assert 1 == len(ready) and 0 == done.code, done
    assert "True" in done.printed and "cleaned up" not in done.printed


@pytest.mark.slow
def test_nobody_waits_for_the_imports_of_a_process_that_has_ended(
    prepared: PreparedReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stark.evaluator.judge.tools.running.IMPORTS_S", 1e9)
    with closing(Desk(lambda _: ["false"], prepared.forkserver, prepared.device, Limits())) as desk:
        desk.await_imports()


def test_the_reason_is_the_programs_last_error_or_the_tools_first() -> None:
    assert "it exited with code 3" == Ran("", "", 3).why()
    assert "Error: no device" == Ran("== Error: no device\n== bye\n", "hello\n", 1).why()
    assert "bye" == Ran("== bye\n", "hello\n", 1).why()


@pytest.mark.slow
def test_a_program_that_does_not_end_is_ended_and_one_that_raises_says_why(
    prepared: PreparedReference, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(NotRun, match="it did not end within 4 s"):
        ran(prepared, tmp_path / "one", "import time; time.sleep(600)", limit_s=4)
    (tmp_path / "two").mkdir()
    done = ran(prepared, tmp_path / "two", "raise ValueError('no such size')")

    assert "ended with 1" in done.log
    assert "ValueError: no such size" == done.why()


def test_a_tool_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(NotRun, match="stark-tool is neither on PATH nor in the CUDA toolkit"):
        found("stark-tool")
