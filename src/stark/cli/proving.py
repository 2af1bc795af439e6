"""Proves the sandbox on a device: has a judge evaluate a candidate that tries to get out."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal

from stark.core.candidate import Candidate
from stark.core.errors import MachineError
from stark.core.evaluation import Evaluation
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.evaluator.executors import open_executor

LIMITS = Limits(timing_budget_s=0.1)
DEADLINE_S = 120.0
"""Another judge may have the device, for minutes during a final check."""

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, *given):
        super().__init__()

    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return {given}
"""

UNUSED = {
    "cpu": """
def never_called():
    import tvm_ffi.cpp
    return tvm_ffi.cpp.load_inline("unused", cpp_sources="", functions=[])
""",
    "cuda": """
import triton

@triton.jit
def never_launched(x):
    pass
""",
}
"""By device, something in a kernel language, which every candidate needs."""


def breaches(device: Literal["cpu", "cuda"]) -> Mapping[str, list[str]]:
    """By thread, the layers of the sandbox that do not hold on the device. Raises StarkError or OSError if nothing could be tried."""
    secret = secrets.token_hex(16)
    os.environ["STARK_PROBE"] = secret
    try:
        with tempfile.NamedTemporaryFile("w", dir=Path.home()) as outside:
            outside.write("what no candidate may read")
            outside.flush()
            given = [outside.name, secret, device]
            found = asyncio.run(_judged(device, given))
    finally:
        del os.environ["STARK_PROBE"]
    try:
        said: dict[str, list[str]] = json.loads(found.output.splitlines()[0])
    except (ValueError, IndexError):
        raise MachineError(f"a candidate that tries it ended as {found.status}") from None
    return said


async def _judged(device: Literal["cpu", "cuda"], given: list[str]) -> Evaluation:
    language = "cpp" if device == "cpu" else "triton"
    probe = files("stark.evaluator.candidate.sandbox") / "probe.py"
    source = probe.read_text() + UNUSED[device]
    problem = Problem(name="sandbox", source=PROBLEM.format(given=given))
    executor = open_executor("local:cpu" if device == "cpu" else "local:cuda:0", LIMITS)
    try:
        candidate = Candidate(language=language, source=source)
        return await asyncio.wait_for(executor.evaluate(problem, candidate), DEADLINE_S)
    except TimeoutError:
        raise MachineError(f"no answer within {DEADLINE_S:g} s; is the device in use?") from None
    finally:
        await executor.close()
