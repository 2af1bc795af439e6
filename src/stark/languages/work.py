"""What a problem's program does, read from its measured reference: the facts that techniques are chosen by."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from stark.core.profile import Profile
from stark.core.reference import Reference

Operator = Literal["matmul", "conv", "softmax", "norm", "reduction"]
Bound = Literal["memory", "compute", "launch"]

CPU_CALL_MS = 0.005
"""The least that one operator costs on a CPU: the call (0.9 us measured), memory for its result, and waking its threads."""

CPU_ENTRIES = 5
"""A CPU's profile counts about this many operators for each one that computes; the others are wrappers and views."""

SHORT_PROGRAM = 3
"""With more steps than these, the output's shape says little about the matrix products before it."""

OUTPUT_TILE = 128 * 128
"""Output elements of a matrix product that one block usually computes."""

_OPERATORS: dict[Operator, str] = {
    "matmul": r"(^|_)(mm|bmm|mv|addmm|addbmm|baddbmm|addmv)$|gemm|linear|attention|lstm|gru|rnn",
    "conv": r"conv",
    "softmax": r"softmax|logsumexp|attention",
    "norm": r"(layer|batch|group|instance|rms)_?norm",
    "reduction": r"^(nan)?(sum|mean)$|^a?(max|min)$|^(arg(max|min)|prod|var|std|var_mean|std_mean)$"
    r"|vector_norm|^norm$|logsumexp|pool|loss|count_nonzero",
}
"""Patterns for the names of PyTorch's operators, without `aten::` and leading underscores."""


@dataclass(frozen=True)
class Work:
    """What a program does on a device."""

    architecture: str
    """`sm_90` for a GPU; the instruction set for a CPU."""

    bound: Bound
    """What takes longest at best: memory traffic, arithmetic, or the calls of the reference's operators."""

    operators: frozenset[Operator]
    """Kinds of operators that take the reference's time."""

    steps: int
    """Kernels of one call on a GPU; about as many operators on a CPU."""

    few_outputs: bool
    """Whether the outputs of a short program have fewer tiles than the device has processors."""


def work_of(reference: Reference) -> Work:
    """The work of a problem, given its reference.

    Without a profile only matrix products and convolutions are known to be there, by the roofline's operations.
    """
    device, roofline, profile = reference.device, reference.roofline, reference.profile
    if profile is None:
        steps = 1
        operators = frozenset[Operator]({"matmul", "conv"} if roofline.flops else ())
    else:
        entries = 1 if profile.clock == "device" else CPU_ENTRIES
        steps, operators = max(round(profile.count / entries), 1), _operators(profile)
    call_ms = device.launch_ms or CPU_CALL_MS
    elements = sum(math.prod(spec.shape) for spec in reference.outputs)
    return Work(
        architecture=device.architecture,
        bound="launch" if roofline.floor_ms < steps * call_ms else roofline.bound,
        operators=operators,
        steps=steps,
        few_outputs=elements < device.processors * OUTPUT_TILE and steps <= SHORT_PROGRAM,
    )


def _operators(profile: Profile) -> frozenset[Operator]:
    names = {
        (step.operator or step.name).removeprefix("aten::").lstrip("_") for step in profile.steps
    }
    return frozenset(
        operator
        for operator, pattern in _OPERATORS.items()
        if any(re.search(pattern, name) for name in names)
    )
