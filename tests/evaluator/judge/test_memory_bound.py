"""What a judge itself holds at most for a problem too large to keep anything of, in units of its inputs and outputs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

MB = 40
"""Of the inputs and of the outputs."""

BESIDE_MB = 20
"""What does not grow with the problem: the pieces that are worked on, and what torch loads when it is first used.

One side more, in any of the cases, is over the limit.
"""

GIVEN_BACK = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_ARENA_MAX": "1"}
"""Memory that is let go goes back at once; without these a judge's pages depend on the order of its threads, by 200 MB."""

SCRIPT = """
import re, sys, tempfile
from pathlib import Path
from types import SimpleNamespace
import torch
from stark.core.device import Device
from stark.core.problem import Problem
from stark.evaluator.judge import room
from stark.evaluator.judge.trial import Called
from stark.evaluator.judge.verifying import Judged
from stark.evaluator.judge.prepared import PreparedReference

body, rows = sys.argv[1], int(sys.argv[2])
source = f'''
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {body}

def get_inputs():
    return [torch.rand({rows}, 1024)]

def get_init_inputs():
    return []
'''
device = Device(
    kind="cpu", name="x", architecture="x", processors=2, memory_gb=8, last_level_cache_mb=1,
    bandwidth_gb_s=10, peak_tflop_s={"fp32": 0.1},
)
room.CPU_BYTES["expected"] = room.CPU_BYTES["slots"] = 1 << 20

def held_mb(name):
    return int(re.search(rf"^{name}:\\s+(\\d+)", Path("/proc/self/status").read_text(), re.M)[1]) / 1024

torch.rand(64, 64).double() @ torch.rand(64, 64).double()
before = held_mb("VmRSS")
folder = tempfile.TemporaryDirectory()
server = SimpleNamespace(folder=Path(folder.name))  # no program is started
prepared = PreparedReference(Problem(name="x", source=source), torch.device("cpu"), device, server)
def verify(trial):
    judged = Judged(prepared, prepared.trials.drawn(trial), trial)
    prepared.shared.fill_inputs(judged.drawn, 0)
    for place, output in zip(prepared.shared.outputs[0], judged.expected, strict=True):
        place.copy_(output.eager)
    judged.check(Called(prepared.shared.results(0)))

for trial in prepared.trials.for_effort("search"):
    verify(trial)
print(held_mb("VmHWM") - before)
prepared.close()
folder.cleanup()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "rows", "most"),
    [
        # What is shared, the inputs, the reference's outputs, the oracle's, which are twice as large, and slices.
        pytest.param("torch.relu(x)", MB * 256, 7.0, marks=pytest.mark.long),
        # What is shared, the inputs before and after a slight change, and in float64: what is no batch cannot be cut.
        ("x[:1] * 2", MB * 256, 5.5),
    ],
    ids=["inputs and outputs", "inputs alone"],
)
def test_a_judge_holds_few_times_a_large_problem(body: str, rows: int, most: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, body, str(rows)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **GIVEN_BACK},
    )

    assert 0 == done.returncode, done.stderr
    assert float(done.stdout) < most * MB + BESIDE_MB
