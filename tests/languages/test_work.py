from __future__ import annotations

import pytest

from stark.core.problem import Problem
from stark.core.reference import Reference, TensorSpec
from stark.languages.work import LOOP_STEPS, Work, operators_in, work_of
from stark.testing.nodes import CPU, DEVICE, ROOFLINE, measurement

MODEL = """
import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 4 * 1024


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        {init}

    def forward(self, x, y=None):
        {body}


def get_inputs():
    return [torch.softmax(torch.randn(ROWS, 8), dim=-1) * 2]


def get_init_inputs():
    return [8]
"""


def model(body: str, init: str = "pass") -> str:
    return MODEL.format(body=body, init=init)


@pytest.mark.parametrize(
    ("body", "init", "operators", "steps"),
    [
        ("return torch.relu(x)", "pass", set(), 1),
        ("return x @ y", "pass", {"matmul"}, 1),
        (
            "return F.log_softmax(self.fc(x), -1)",
            "self.fc = nn.Linear(n, n)",
            {"matmul", "softmax"},
            2,
        ),
        ("return self.c(x)", "self.c = nn.ConvTranspose2d(n, n, 3)", {"conv"}, 1),
        ("return self.n(x).relu_()", "self.n = nn.BatchNorm2d(n)", {"norm"}, 2),
        ("return (x * y).sum(-1) / 2", "pass", {"reduction"}, 3),
        ("return self.p(x)", "self.p = torch.nn.AdaptiveAvgPool2d(1)", {"reduction"}, 1),
        ("return F.scaled_dot_product_attention(x, x, x)", "pass", {"matmul", "softmax"}, 1),
        ("return x.transpose(1, 2).contiguous()", "pass", set(), 0),
    ],
    ids="relu product linear conv norm reduction pool attention layout".split(),
)
def test_operators_are_read_off_the_source(
    body: str, init: str, operators: set[str], steps: int
) -> None:
    assert (operators, steps) == operators_in(model(body, init))


def test_an_operator_in_a_loop_counts_several_times() -> None:
    looped = model(
        "for step in x.unbind(1):\n            y = torch.tanh(step @ y)\n        return y"
    )

    assert ({"matmul"}, 2 * LOOP_STEPS) == operators_in(looped)


def test_inputs_and_constants_are_not_the_program() -> None:
    assert (set(), 0) == operators_in(model("return x"))


def test_a_text_that_does_not_parse_has_no_operators() -> None:
    assert (set(), 0) == operators_in("class Model(")
    assert (set(), 0) == operators_in("x=" + "-" * 100_000 + "1")


def test_a_long_sum_is_counted() -> None:
    assert (set(), 1_199) == operators_in(model("return " + " + ".join(["x"] * 1_200)))


def reference(floor_ms: float, outputs: tuple[int, ...] = (4096, 4096)) -> Reference:
    return Reference(
        device=DEVICE,
        versions={},
        inputs=(),
        outputs=(TensorSpec(shape=outputs, dtype="float32"),),
        eager=measurement(1.0),
        roofline=ROOFLINE.model_copy(update={"memory_ms": floor_ms, "compute_ms": floor_ms / 2}),
    )


def work(body: str, known: Reference) -> Work:
    return work_of(Problem(name="made_up", source=model(body)), known)


def test_launches_bind_where_the_operators_calls_take_longer_than_the_least_time() -> None:
    assert 2.5 == DEVICE.launch_us
    one, four = "return torch.relu(x)", "return torch.relu(torch.tanh(torch.exp(x + y)))"

    assert "memory" == work(one, reference(0.009)).bound
    assert "launch" == work(four, reference(0.009)).bound
    assert "memory" == work(four, reference(0.011)).bound


def test_what_binds_is_the_rooflines_otherwise() -> None:
    known = reference(1.0)
    slow = known.roofline.model_copy(update={"compute_ms": 2.0})

    found = work("return x @ y", known.model_copy(update={"roofline": slow}))

    assert ("compute", "cuda", "sm_90") == (found.bound, found.device_kind, found.architecture)


def test_a_cpu_has_small_problems_too() -> None:
    known = reference(0.004).model_copy(update={"device": CPU})

    assert "launch" == work("return torch.relu(x)", known).bound
    assert (
        "memory" == work("return x.t()", reference(0.006).model_copy(update={"device": CPU})).bound
    )


def test_few_outputs_are_fewer_tiles_than_processors_right_after_the_product() -> None:
    assert work("return x @ y", reference(1.0, (256, 256))).few_outputs
    assert not work("return x @ y", reference(1.0, (4096, 4096))).few_outputs
    assert not work("return x @ x @ x @ x @ x", reference(1.0, (256, 256))).few_outputs
