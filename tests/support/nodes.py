"""Makes up evaluations, nodes and trees for tests, so that they need neither a model nor a device.

The figures are consistent: a correct evaluation has paired samples with realistic noise, and its speedup is exactly
the ratio of the given latencies.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from stark.core.candidate import Candidate
from stark.core.device import Device, Roofline
from stark.core.evaluation import (
    Accuracy,
    BuildFailed,
    Correct,
    Crashed,
    Evaluation,
    Incorrect,
    OutOfMemory,
    Rejected,
    TimedOut,
    Unusable,
)
from stark.core.measurement import Measurement
from stark.core.node import ROOT, Action, Node, Selection
from stark.core.plan import Plan
from stark.core.profile import Launch, Profile, Step
from stark.core.toolchain import Toolchain
from stark.search.policies.base import expand
from stark.search.tree import Tree

EAGER_MS = 1.0
"""Default time of the reference."""

DEVICE = Device(
    kind="cuda",
    name="Invented GPU",
    architecture="sm_90",
    processors=132,
    memory_gb=80.0,
    last_level_cache_mb=50.0,
    shared_memory_kb=227.0,
    bandwidth_gb_s=3000.0,
    peak_tflop_s={"fp32": 50.0, "tf32": 400.0, "bf16": 800.0},
    launch_us=2.5,
)

CPU = Device(
    kind="cpu",
    name="Invented CPU",
    architecture="x86_64",
    processors=8,
    memory_gb=32.0,
    last_level_cache_mb=32.0,
    bandwidth_gb_s=40.0,
    peak_tflop_s={"fp32": 0.4},
)

TOOLCHAIN = Toolchain(versions={"a C++ compiler": "c++ 12.2"}, cpu="Invented CPU (0123)")

ROOFLINE = Roofline(
    least_bytes=30_000_000,
    flops=0,
    arithmetic="fp32",
    memory_ms=0.01,
    compute_ms=0.0,
    own_arithmetic="fp32",
    own_compute_ms=0.0,
)

PROFILE = Profile(
    clock="device",
    steps=(
        Step(
            name="void scale_kernel<4>(float*, long)",
            count=1.0,
            time_ms=0.3,
            share=0.75,
            own=True,
            launch=Launch(
                registers=40,
                shared_bytes=0,
                blocks=4096,
                threads=256,
                occupancy=0.9,
                spilled_bytes=0,
            ),
        ),
        Step(
            name="Memset (Device)",
            count=2.0,
            time_ms=0.1,
            share=0.25,
            own=False,
            operator="aten::zeros",
        ),
    ),
    count=3.0,
    busy_ms=0.4,
    own_share=0.75,
)

_NOISE = (0.0, 0.012, -0.007, 0.003, -0.011, 0.007, -0.003, 0.011, -0.012)
"""Relative noise with median 0, the same for both halves of a pair, like a machine's drift."""

_FAILURES: dict[str, Evaluation] = {
    "incorrect": Incorrect(error="output 0: relative error 0.31 is over its budget of 0.001"),
    "build_failed": BuildFailed(error="line 12: expected ';' before 'return'"),
    "crashed": Crashed(phase="verify", error="CUDA error: an illegal memory access"),
    "timed_out": TimedOut(phase="build", limit_s=180.0),
    "out_of_memory": OutOfMemory(phase="load", error="tried to allocate 96.00 GiB"),
    "rejected": Rejected(rule="calls-reference", error="it calls torch.nn.functional.relu"),
    "unusable": Unusable(reason="the reply holds no code block"),
}


ANY_STATUS = ("correct",) * len(_FAILURES) + tuple(_FAILURES)
"""Statuses to draw from: half are correct, and all failures are equally likely."""


def measurement(latency_ms: float) -> Measurement:
    """Noisy samples whose median is this latency."""
    return Measurement(
        samples_ms=tuple(latency_ms * (1 + noise) for noise in _NOISE),
        calls_per_sample=10,
        warmups=5,
        clock="device_events",
        cache="cold",
    )


def correct(latency_ms: float, eager_ms: float = EAGER_MS) -> Correct:
    """The evaluation of a correct candidate, timed against an eager time of `eager_ms`."""
    return Correct(
        accuracy=Accuracy(
            relative_rms=2e-7,
            budget=2e-5,
            reference_relative_rms=1e-7,
            meets="reference",
            allclose=True,
            oracle="float64",
        ),
        candidate=measurement(latency_ms),
        references={"eager": measurement(eager_ms), "compile": measurement(0.8 * eager_ms)},
        device=DEVICE,
        roofline=ROOFLINE,
        seconds={"build": 9.0, "load": 0.4, "verify": 0.6, "time": 2.0},
    )


def noisy(latency_ms: float) -> Correct:
    """The evaluation of a correct candidate whose times are too rough to rank it."""
    rough = measurement(latency_ms).model_copy(update={"resolution_ms": latency_ms})
    return correct(latency_ms).model_copy(update={"candidate": rough})


def failure(status: str = "incorrect") -> Evaluation:
    """The evaluation of a failed candidate with this status."""
    return _FAILURES[status]


def working(
    id: int, parent: int = ROOT, latency_ms: float = 0.5, action: Action = "improve"
) -> Node:
    """An attempt that is correct."""
    return _attempt(id, parent, action, correct(latency_ms))


def failing(
    id: int, parent: int = ROOT, status: str = "incorrect", action: Action = "improve"
) -> Node:
    """A failed attempt, with a source unless its status is `unusable`."""
    return _attempt(id, parent, action, failure(status))


def unusable(id: int, parent: int = ROOT, action: Action = "improve") -> Node:
    """An attempt whose reply had neither a plan nor a source."""
    return failing(id, parent, "unusable", action)


def outcome(
    attempt: int, selection: Selection, rng: random.Random, statuses: Sequence[str] = ANY_STATUS
) -> Node:
    """A node with a random status out of `statuses`."""
    status = rng.choice(statuses)
    if status == "correct":
        return working(attempt, selection.parent, 2.0 ** rng.uniform(-3, 1), selection.action)
    return failing(attempt, selection.parent, status, selection.action)


def random_tree(size: int, rng: random.Random, pending: int = 0) -> Tree:
    """A tree of random shape with `size` attempts, finished out of order, and `pending` in flight."""
    tree = Tree(EAGER_MS)
    sources = [ROOT]
    while len(tree.nodes) < size or len(tree.pending) < pending:
        tree.begin(tree.next_attempt, expand(tree, rng.choice(sources)))
        if len(tree.pending) <= pending:
            continue
        attempt, selection = rng.choice(list(tree.pending.items()))
        node = outcome(attempt, selection, rng)
        tree.add(node)
        if node.candidate is not None:
            sources.append(node.id)
    return tree


def _attempt(id: int, parent: int, action: Action, evaluation: Evaluation) -> Node:
    """A node with this evaluation; an unusable one has no plan either."""
    if evaluation.status == "unusable":
        return Node(id=id, parent=parent, action=action, role="code", evaluation=evaluation)
    return Node(
        id=id,
        parent=parent,
        action=action,
        role="code" if action == "improve" else "debug",
        plan=Plan(action="rewrite", strategy=f"Strategy {id}: fuse the elementwise tail."),
        candidate=Candidate(language="triton", source=f"# attempt {id}\nclass ModelNew: ...\n"),
        evaluation=evaluation,
    )
