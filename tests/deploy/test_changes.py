"""What users do with a model after, or while, a kernel is put into it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from deploy_samples import kernel
from torch import nn
from userpkg.blocks import Stack

from stark.deploy import guard
from stark.deploy.bound import GRADIENTS

PROBLEM = """
import torch
from torch import nn

{constants}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
LINEAR = {
    "constants": "",
    "init": "self.weight = nn.Parameter(torch.randn(16, 16)); self.bias = nn.Parameter(torch.randn(16))",
    "arguments": "input",
    "forward": "return torch.nn.functional.linear(input, self.weight, self.bias)",
    "inputs": "torch.randn(4, 16)",
}


def problem(**changes: str) -> str:
    return PROBLEM.format(**LINEAR | changes)


def equal_kernel(name: str, source: str, new: str | None = None) -> guard.Kernel:
    """A kernel that is the reference itself, unless another source is given."""
    return kernel((new or source).replace("class Model(", "class ModelNew("), source, name)


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def linear() -> nn.Linear:
    return nn.Linear(16, 16)


X = torch.arange(64.0).reshape(4, 16) / 64


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(16, 16, bias=False)
        self.two = nn.Linear(16, 16, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)))


def test_weights_that_are_no_longer_tied_run_the_original() -> None:
    init = (
        "self.one = nn.Linear(16, 16, bias=False); self.two = nn.Linear(16, 16, bias=False); "
        "self.two.weight = self.one.weight"
    )
    tied = problem(init=init, arguments="x", forward="return self.two(torch.relu(self.one(x)))")
    model, own = Tied(), Tied()
    one = tied.replace("self.two(", "self.one(")  # needs only one of the weights
    applied = guard.apply(model, equal_kernel("tied", tied, one), [""])
    model(X)

    for each in (model, own):
        state = {"one.weight": torch.eye(16), "two.weight": 2 * torch.eye(16)}
        each.load_state_dict(state, assign=True)

    assert torch.equal(own(X), model(X))
    assert {"parameters are no longer tied": 1} == applied.report().original_calls
    with pytest.raises(guard.NothingBound, match="are no longer tied"):
        guard.apply(own, equal_kernel("tied", tied, one), [""])


def test_gradients_of_weights_that_were_frozen_are_the_originals(linear: nn.Linear) -> None:
    frozen = LINEAR["init"].replace("torch.randn(16))", "torch.randn(16), requires_grad=False)")
    source = problem(constants="BACKWARD = True", init=frozen)
    detached = source.replace("self.bias)", "self.bias.detach())")
    applied = guard.apply(linear, equal_kernel("frozen", source, detached), [""])
    linear.bias.requires_grad_(False)

    with torch.enable_grad():
        linear(X).sum().backward()
        linear.bias.requires_grad_(True)
        linear(X).sum().backward()

    assert torch.equal(torch.full((16,), 4.0), linear.bias.grad)
    assert (1, {GRADIENTS: 1}) == (
        applied.report().kernel_calls,
        applied.report().original_calls,
    )


@pytest.mark.parametrize("warm", [False, True])
def test_gradients_of_inputs_that_needed_none_are_the_originals(warm: bool) -> None:
    source = problem(
        constants="BACKWARD = True",
        init="self.weight = nn.Parameter(torch.ones(16))",
        arguments="x, scale",
        forward="return x * self.weight * scale",
        inputs="torch.randn(4, 16).requires_grad_(), torch.randn(4, 16)",
    )
    detached = source.replace("* scale", "* scale.detach()")

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16))

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return x * self.weight * scale

    model = Scaled()
    applied = guard.apply(model, equal_kernel("scaled", source, detached), [""])
    scale = torch.ones(4, 16).requires_grad_()
    with torch.enable_grad():
        if warm:
            model(X.clone().requires_grad_(), scale.detach())
        model(X.clone().requires_grad_(), scale).sum().backward()

    assert torch.equal(X, scale.grad)
    assert {GRADIENTS: 1} == applied.report().original_calls


def test_arguments_that_share_memory_run_the_original_if_one_is_changed() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * y

    source = problem(
        init="pass",
        arguments="x, y",
        forward="x.add_(1); return x * y",
        inputs="torch.randn(4, 16), torch.randn(4, 16)",
    )
    early = source.replace("x.add_(1); return x * y", "y = y.clone(); x.add_(1); return x * y")
    model = InPlace()
    applied = guard.apply(model, equal_kernel("in_place", source, early), [""])

    for _ in range(2):
        assert torch.equal((X + 1) * X, model(X.clone(), X))
        x = X.clone()
        assert torch.equal((X + 1).square(), model(x, x))
    assert 2 == applied.report().kernel_calls
    assert {"arguments share memory, and forward changes tensors in place": 2} == (
        applied.report().original_calls
    )


@pytest.mark.slow
def test_a_buffer_that_forward_replaces_is_replaced_in_graphs() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
            return x - self.mean

    source = problem(
        init="self.register_buffer('mean', torch.zeros(16))",
        arguments="x",
        forward="self.mean = 0.5 * self.mean + 0.5 * x.mean(0); return x - self.mean",
    )
    model, own = Average(), Average()
    applied = guard.apply(model, equal_kernel("average", source), [""])
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")

    for _ in range(3):
        assert torch.equal(own(X), model(X))
        assert torch.equal(own(X), compiled(X))
    assert torch.equal(own.mean, model.mean)
    assert 3 == applied.report().kernel_calls


@pytest.mark.slow
def test_compiled_graphs_are_traced_again_if_an_attribute_changes() -> None:
    model, x, mask = Stack().eval(), torch.randn(2, 4, 16), torch.ones(2, 4, 1)
    own = copy.deepcopy(model)
    applied = guard.apply(model, kernel())
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    compiled(x, mask)

    for each in (model, own):
        each.layers[0].scale = 5.0
        each.layers[1].config.width = 17

    torch.testing.assert_close(compiled(x, mask), own(x, mask), rtol=0, atol=0)
    assert 2 == applied.report().kernel_calls
    assert {"an attribute differs": 2} == applied.report().original_calls


def another_shape(linear: nn.Linear) -> None:
    linear.weight.data, linear.bias.data = torch.randn(8, 16), torch.randn(8)


def unaligned(linear: nn.Linear) -> None:
    nn.utils.vector_to_parameters(torch.randn(273)[1:], linear.parameters())


CHANGES: dict[Callable[[nn.Linear], None], str] = {
    another_shape: "a parameter or buffer has another shape",
    unaligned: "a parameter or buffer has another alignment",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_weights_with_other_data_run_the_original(
    linear: nn.Linear, change: Callable[[nn.Linear], None]
) -> None:
    applied = guard.apply(linear, equal_kernel("linear", problem()), [""])
    linear(X)

    change(linear)

    assert torch.equal(nn.functional.linear(X, linear.weight, linear.bias), linear(X))
    assert {CHANGES[change]: 1} == applied.report().original_calls


def test_the_default_dtype_while_applying_does_not_matter(linear: nn.Linear) -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        applied = guard.apply(linear.bfloat16(), equal_kernel("dtype", problem()), [""])
    finally:
        torch.set_default_dtype(torch.float32)

    linear(X.bfloat16())
    assert {"input has another dtype": 1} == applied.report().original_calls
    linear.float()(X)
    assert 1 == applied.report().kernel_calls


def test_a_kernel_applied_in_inference_mode_works_outside(linear: nn.Linear) -> None:
    room = problem().replace("return ", "self.room.copy_(input); return self.room - self.room + ")
    room = room.replace(
        "self.bias =", "self.register_buffer('room', torch.zeros(4, 16)); self.bias ="
    )
    with torch.inference_mode():
        applied = guard.apply(linear, equal_kernel("inference", problem(), room), [""])
        linear(X)

    linear(X)

    assert 2 == applied.report().kernel_calls


def _imaginary(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, -x).conj().imag


@pytest.mark.parametrize(
    ("dtype", "lazily", "why"),
    [
        ("complex64", torch.Tensor.conj, "x has a conjugation or negation to apply"),
        ("float32", _imaginary, "x has other strides"),
    ],
)
def test_tensors_that_are_conjugated_when_they_are_read_run_the_original(
    dtype: str, lazily: Callable[[torch.Tensor], torch.Tensor], why: str
) -> None:
    """Kernels read memory, where PyTorch has not applied the conjugation or negation."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    source = problem(
        init="self.weight = nn.Parameter(torch.ones(16))",
        arguments="x",
        forward="return x * self.weight",
        inputs=f"torch.randn(4, 16, dtype=torch.{dtype})",
    )
    model, x = Scaled(), torch.randn(4, 16, dtype=getattr(torch, dtype))
    applied = guard.apply(model, equal_kernel(f"lazy_{dtype}", source), [""])

    for _ in range(2):
        model(x)
        assert torch.equal(lazily(x) * model.weight, model(lazily(x)))

    report = applied.report()
    assert 2 == report.kernel_calls
    assert {why: 2} == report.original_calls


def test_a_forward_that_was_put_around_the_kernel_stays(linear: nn.Linear) -> None:
    """As accelerate does, whose forward moves weights between devices."""
    applied = guard.apply(linear, equal_kernel("around", problem()), [""])
    inner = linear.forward
    linear.forward = lambda x: 2 * inner(x)  # type: ignore[method-assign]
    expected = linear(X)

    assert torch.equal(expected, copy.deepcopy(linear)(X))
    applied.remove()
    torch.testing.assert_close(linear(X), expected)
    assert {"the kernel was removed": 1} == applied.report().original_calls
