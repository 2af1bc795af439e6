"""A run of a problem that any torch can compute, with nodes to write about."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console, RenderableType

from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.evaluation import Correct
from stark.core.node import Node
from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.core.run import RoleModel, Run, RunConfig
from stark.core.usage import Budget
from stark.strategies import strategy
from support.nodes import DEVICE, EAGER_MS, ROOFLINE, correct, measurement

PROBLEM = '''"""A reference with "quotes" and a \\backslash."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16]
'''

CANDIDATE = PROBLEM.partition("\n")[2].replace("Model(", "ModelNew(").partition("def get")[0]

CPU = DEVICE.model_copy(update={"kind": "cpu", "name": 'Invented "CPU" \\x', "launch_us": None})

RUN = Run(
    id="linear-12ab",
    created=datetime(2025, 1, 1, tzinfo=UTC),
    problem=Problem(name="linear", source=PROBLEM),
    config=RunConfig(
        language="cpp",
        strategy=strategy("stark"),
        models={"plan": RoleModel(model="exec:a"), "code": RoleModel(model="exec:a")},
        executor="local",
        budget=Budget(attempts=30),
        seed=3,
    ),
    version="0.1.0",
)


def reference(device: Device = CPU) -> Reference:
    return Reference(
        device=device,
        versions={"torch": "2.13.0"},
        inputs=(TensorSpec(shape=(8, 16), dtype="float32"),),
        outputs=(),
        eager=measurement(EAGER_MS),
        roofline=ROOFLINE,
    )


def node_of_source(source: str) -> Node:
    evaluation = correct(0.5).model_copy(update={"device": CPU})
    assert isinstance(evaluation, Correct)
    return Node(
        id=4,
        parent=0,
        action="improve",
        role="solo",
        candidate=Candidate(language="cpp", source=source),
        evaluation=evaluation,
    )


def text_of(renderable: RenderableType) -> str:
    """What a wide console prints of it."""
    console = Console(width=200, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()
