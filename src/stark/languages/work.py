"""Derives facts about a problem's program from the problem's `Reference`, which holds the judge's measurements.

Techniques are chosen by these facts.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from stark.core.profile import OUTSIDE, Profile, Step
from stark.core.reference import Reference

Operator = Literal["matmul", "conv", "softmax", "norm", "reduction"]
Bound = Literal["memory", "compute", "launch"]

CPU_CALL_MS = 0.005
"""Minimum time of an operator on a CPU: the call (0.9 us measured), allocating the result, and waking threads."""

CPU_ENTRIES = 5
"""For each operator that computes, a CPU profile lists about this many operators: that one, wrappers and views."""

CPU_SMALL_MS = 0.05
"""Work that takes at least this long on a CPU is not limited by calls, because a kernel is one call."""

SHORT_PROGRAM = 3
"""In a program of more steps, the output's shape says little about the shapes of the program's matrix products."""

OUTPUT_TILE = 128 * 128
"""The number of output elements that one thread block of a matrix product usually computes."""

_OPERATORS: dict[Operator, str] = {
    "matmul": r"(^|_)(mm|bmm|mv|addmm|addbmm|baddbmm|addmv)$|gemm|linear|attention|lstm|gru|rnn",
    "conv": r"conv",
    "softmax": r"softmax|logsumexp|attention",
    "norm": r"(layer|batch|group|instance|rms)_?norm",
    "reduction": r"^(nan)?(sum|mean)$|^a?(max|min)$|^(arg(max|min)|prod|var|std|var_mean|std_mean)$"
    r"|vector_norm|^norm$|logsumexp|pool|loss|count_nonzero",
}
"""Regular expressions for the names of PyTorch's operators without `aten::` and leading underscores."""


@dataclass(frozen=True)
class Work:
    """What a program does on a device."""

    architecture: str
    """For a GPU, a name such as `sm_90`; for a CPU, its instruction set, such as `x86_64`."""

    bound: Bound
    """What takes longest, by minimum times: memory traffic, arithmetic, or launching operators.

    On a GPU, the reference's operators; on a CPU, only calls of small problems matter.
    """

    operators: frozenset[Operator]
    """The kinds of operators that the reference runs."""

    steps: int
    """On a GPU, the kernels in one call; on a CPU, an estimate of the operators that compute. Without a profile, 1."""

    few_outputs: bool
    """Whether the program is short and its outputs have fewer tiles than the device has processors (SMs or cores).

    `SHORT_PROGRAM` says what is short, and `OUTPUT_TILE` is the size of a tile.
    """


def work_of(reference: Reference) -> Work:
    """The work of a problem, given its reference.

    Without a profile, the program is assumed to call matrix products and convolutions if the roofline counts
    floating-point operations, and otherwise no operators.
    """
    device, roofline, profile = reference.device, reference.roofline, reference.profile
    if profile is None:
        steps = 1
        operators = frozenset[Operator]({"matmul", "conv"} if roofline.flops else ())
    else:
        entries = 1 if profile.clock == "device" else CPU_ENTRIES
        steps, operators = max(round(profile.count / entries), 1), _operators(profile)
    calls_ms = (
        steps * device.launch_ms if device.launch_ms else min(steps * CPU_CALL_MS, CPU_SMALL_MS)
    )
    elements = sum(math.prod(spec.shape) for spec in reference.outputs)
    return Work(
        architecture=device.architecture,
        bound="launch" if roofline.floor_ms < calls_ms else roofline.bound,
        operators=operators,
        steps=steps,
        few_outputs=elements < device.processors * OUTPUT_TILE and steps <= SHORT_PROGRAM,
    )


def operator_shares(reference: Reference) -> dict[str, float]:
    """The share of the reference's time by operator, the largest first; empty without a profile.

    Those of one kind (`Operator`) count together, and what is outside PyTorch's operators does not count.
    """
    shares: defaultdict[str, float] = defaultdict(float)
    for step in reference.profile.steps if reference.profile else ():
        name = _name(step)
        if name != OUTSIDE:
            shares[next(iter(_kinds(name)), name.rstrip("_"))] += step.share
    return dict(sorted(shares.items(), key=lambda each: -each[1]))


def _operators(profile: Profile) -> frozenset[Operator]:
    return frozenset(kind for step in profile.steps for kind in _kinds(_name(step)))


def _name(step: Step) -> str:
    """The operator's name without `aten::` and leading underscores."""
    return (step.operator or step.name).removeprefix("aten::").lstrip("_")


def _kinds(name: str) -> list[Operator]:
    return [kind for kind, pattern in _OPERATORS.items() if re.search(pattern, name)]
