"""A candidate under a tool that stands for NVIDIA's: it notes what it was given and runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.judge.building.builds import Built  # noqa: E402
from stark.evaluator.judge.prepared import PreparedReference  # noqa: E402
from stark.evaluator.judge.processes.children import Forkserver  # noqa: E402
from stark.evaluator.judge.tools.running import NotRun, Ran, Target, found, run_under  # noqa: E402
from stark.evaluator.protocol import Limits  # noqa: E402
from stark.testing.candidates import PROBLEM  # noqa: E402
from stark.testing.nodes import CPU  # noqa: E402

PROGRAM = """
import json
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
        told = {{
            "calls": self.calls,
            "weights": float(self.scale.detach().abs().sum()) > 0,
            "beside": tried(lambda: Path({beside!r}).write_text("mine")),
            "log": tried(lambda: Path({log!r}).read_text()),
            "socket": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
            "own": tried(lambda: Path("own").write_text("mine")),
        }}
        print(json.dumps(told), flush=True)
        {then}
        return x
"""

TOOL = """#!/bin/sh
log=$1
shift
echo started > "$log"
"$@"
echo "ended with $?" >> "$log"
"""


@pytest.fixture(scope="module")
def prepared() -> Iterator[PreparedReference]:
    server = Forkserver([])
    made = PreparedReference(PROBLEM, torch.device("cpu"), CPU, server)
    yield made
    made.close()
    server.close()


def ran(prepared: PreparedReference, folder: Path, then: str = "pass", limit_s: float = 60) -> Ran:
    """What came of a program under the tool; the third of its calls is the marked one."""
    built = Built(folder / "built")
    built.work.mkdir(parents=True)
    beside, log = folder / "beside", folder / "secret"
    log.write_text("what the tool wrote")
    built.source.write_text(PROGRAM.format(beside=str(beside), log=str(log), then=then))
    tool = folder / "tool"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    target = Target(built, "cpp", prepared, Limits())
    return run_under(lambda path: [str(tool), str(path)], target, warm=2, limit_s=limit_s)


def test_a_program_under_a_tool_is_locked_up_and_has_the_references_weights(
    prepared: PreparedReference, tmp_path: Path
) -> None:
    done = ran(prepared, tmp_path)

    told = [json.loads(line) for line in done.printed.splitlines() if line.startswith("{")]
    assert "started\nended with 0\n" == done.log and 0 == done.code, done
    assert [1, 2, 3] == [each["calls"] for each in told]
    assert told[0]["weights"]
    assert "escaped" == told[0]["own"]
    for place in ("beside", "log", "socket"):
        assert "PermissionError" == told[0][place] or "OSError" == told[0][place], told[0]
    assert not (tmp_path / "beside").exists()


def test_what_a_tool_writes_does_not_name_where_the_build_lies() -> None:
    assert "it ended with code 3" == Ran("", "", 3).why()
    assert "Error: no device" == Ran("== Error: no device\n== bye\n", "hello\n", 1).why()
    assert "bye" == Ran("== bye\n", "hello\n", 1).why()


def test_a_program_that_does_not_end_is_ended_and_one_that_raises_says_why(
    prepared: PreparedReference, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(NotRun, match="it did not end within 8 s"):
        ran(prepared, tmp_path / "one", "import time; time.sleep(600)", limit_s=8)
    (tmp_path / "two").mkdir()
    done = ran(prepared, tmp_path / "two", "raise ValueError('no such size')")

    assert "ended with 1" in done.log
    assert "ValueError: no such size" == done.why()


def test_a_tool_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(NotRun, match="there is no stark-tool on PATH or in the CUDA toolkit"):
        found("stark-tool")
