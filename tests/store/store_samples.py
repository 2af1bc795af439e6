"""Runs, nodes and calls to store, with as many of their fields in use as there are."""

from __future__ import annotations

from datetime import UTC, datetime

from stark.core.call import Call, Message, Reply
from stark.core.candidate import Candidate
from stark.core.device import Device, Roofline
from stark.core.evaluation import Accuracy, Correct, Evaluation, Incorrect, Unusable
from stark.core.measurement import Measurement
from stark.core.node import Node, Selection
from stark.core.plan import Anchor, Edit, Plan
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.core.run import RoleModel, Run, RunConfig
from stark.core.usage import Budget, Cost, Usage
from stark.store import Store
from stark.strategies import strategy

IMPROVE_ROOT = Selection(parent=0, action="improve")

DEVICE = Device(
    kind="cuda",
    name="NVIDIA H200",
    architecture="sm_90",
    processors=132,
    memory_gb=140.4,
    last_level_cache_mb=60.0,
    shared_memory_kb=227.0,
    bandwidth_gb_s=4123.5,
    peak_tflop_s={"fp32": 51.2, "tf32": 380.0, "bf16": 760.0},
    launch_us=2.1,
)

RESERVED = Cost(tokens=4_000, dollars=0.0625)

ROOFLINE = Roofline(
    least_bytes=8_388_608,
    flops=2_097_152,
    arithmetic="fp32",
    memory_ms=0.002,
    compute_ms=0.00004,
    own_arithmetic="fp32",
    own_compute_ms=0.00004,
)


def measurement(*samples_ms: float) -> Measurement:
    return Measurement(
        samples_ms=samples_ms, calls_per_sample=10, warmups=3, clock="device_events", cache="cold"
    )


def reference() -> Reference:
    return Reference(
        device=DEVICE,
        versions={"python": "3.11.9", "torch": "2.9.0"},
        inputs=(TensorSpec(shape=(16, 1024), dtype="float32"), TensorSpec(shape=(), dtype="int64")),
        outputs=(TensorSpec(shape=(16, 1024), dtype="float32"),),
        eager=measurement(0.1, 0.1000001, 0.09),
        roofline=ROOFLINE,
        warnings=("the input is constant",),
    )


def correct(latency_ms: float, eager_ms: float = 1.0) -> Correct:
    return Correct(
        seconds={"build": 12.25, "time": 2.0},
        output="compiled\n",
        warnings=("no tensor cores used",),
        accuracy=Accuracy(
            relative_rms=1.25e-7,
            budget=1e-6,
            reference_relative_rms=1.1e-7,
            allclose=True,
            oracle="float64",
        ),
        candidate=measurement(latency_ms, latency_ms, latency_ms),
        references={"eager": measurement(eager_ms, eager_ms, eager_ms)},
        device=DEVICE,
        roofline=ROOFLINE,
    )


def run(run_id: str = "layernorm-3f9a", source: str = "class Model: ...\n") -> Run:
    return Run(
        id=run_id,
        created=datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC),
        problem=Problem(name="level1/40_LayerNorm", source=source),
        config=RunConfig(
            language="triton",
            strategy=strategy("stark"),
            models={
                "plan": RoleModel(model="anthropic:claude", temperature=0.8),
                "code": RoleModel(model="exec:./coder"),
            },
            executor="local",
            budget=Budget(attempts=30, tokens=1_000_000, dollars=2.5),
            seed=7,
            parallel=2,
        ),
        version="0.1.0",
    )


def node(
    attempt: int,
    evaluation: Evaluation | None = None,
    source: str = "class ModelNew: ...\n",
    selection: Selection = IMPROVE_ROOT,
) -> Node:
    return Node(
        id=attempt,
        parent=selection.parent,
        action=selection.action,
        role="code",
        candidate=Candidate(language="triton", source=source),
        evaluation=evaluation or Incorrect(error="output 0 is wrong by 3e-2"),
    )


def edited_node(attempt: int, evaluation: Evaluation) -> Node:
    anchors = (
        Anchor(name="load", first_line=3, last_line=9, instruction="use 16-byte loads"),
        Anchor(name="reduce", first_line=12, last_line=12, instruction="reduce in registers"),
    )
    plan = Plan(action="edit", strategy="vectorize", anchors=anchors)
    edits = (
        Edit(anchor="load", before="a\n", after="b\n"),
        Edit(anchor="reduce", before="", after="c"),
    )
    return node(attempt, evaluation).model_copy(update={"plan": plan, "edits": edits})


def unusable_node(attempt: int) -> Node:
    return Node(
        id=attempt,
        parent=0,
        action="improve",
        role="solo",
        plan=Plan(action="rewrite", strategy="fuse everything"),
        evaluation=Unusable(reason="the reply has no Python block"),
    )


def call(attempt: int, turn: int = 0, text: str = "Write a kernel.", reply: str = "Done.") -> Call:
    return Call(
        attempt=attempt,
        turn=turn,
        role="plan",
        messages=(
            Message(speaker="system", text="You write kernels."),
            Message(speaker="user", text=text),
            Message(speaker="assistant", text="What for?"),
            Message(speaker="user", text=text),
        ),
        reply=Reply(
            text=reply,
            model="claude-sonnet-4",
            usage=Usage(input_tokens=800, output_tokens=20, dollars=0.004, seconds=3.25),
        ),
    )


def ask(store: Store, run_id: str, attempt: int = 1, role: str = "plan") -> int:
    """Note a question that is about to be sent."""
    return store.begin_call(run_id, attempt, role, "claude-sonnet-4", RESERVED)


def answer(store: Store, run_id: str, call: Call, elapsed_s: float = 0.0) -> None:
    """Store a question and its reply."""
    store.add_call(run_id, call, ask(store, run_id, call.attempt, call.role), elapsed_s)
