from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from deploy_samples import kernel
from torch import nn
from userpkg.blocks import Stack

from stark.deploy import guard
from stark.deploy.alike import TIMES, Alike

X, Y = torch.randn(2, 4, 6)


@pytest.fixture
def alike() -> Alike:
    made = Alike()
    made.learn(X, Y)
    return made


def test_it_agrees_with_no_tensors_at_first() -> None:
    assert not Alike().check(X)


def test_it_agrees_with_tensors_of_the_same_form(alike: Alike) -> None:
    assert alike.check(torch.randn(4, 6), torch.randn(8, 6)[4:])
    with torch.no_grad():
        assert alike.check(X, Y)


@pytest.mark.parametrize(
    "other",
    [
        X.double(),
        X[:3],
        X.T.contiguous().T,
        X.to("meta"),
        nn.Parameter(X),
        X.clone().requires_grad_(),
        X.to(torch.complex64).imag,
        None,
        "text",
    ],
    ids=["dtype", "shape", "strides", "device", "class", "gradients", "bits", "nothing", "text"],
)
def test_it_disagrees_with_other_tensors(alike: Alike, other: object) -> None:
    assert not alike.check(X, other)
    assert not alike.check(other, X)


def test_one_tensor_in_two_places_is_left_to_the_written_tests(alike: Alike) -> None:
    assert alike.learn(X, X)
    assert not alike.check(X, X)


def test_it_learns_no_more_where_tensors_differ_each_time(alike: Alike) -> None:
    for size in range(2 * TIMES):
        assert alike.learn(torch.empty(size))

    assert alike.check(torch.empty(TIMES - 2))
    assert not alike.check(torch.empty(2 * TIMES - 1))


def test_without_pytorchs_comparison_the_kernel_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    model = Stack().eval()
    own = copy.deepcopy(model)
    inputs = torch.randn(2, 4, 16), torch.ones(2, 4, 1)

    with torch.no_grad(), guard.apply(model, kernel()) as applied:
        for _ in range(3):
            torch.testing.assert_close(model(*inputs), own(*inputs))
        other = [each.double() for each in inputs]
        torch.testing.assert_close(model.double()(*other), own.double()(*other))
        assert 6 == applied.report().kernel_calls


RELU = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.register_parameter("bias", None)
        self.train(False)

    def forward(self, x):
        y = torch.relu(x)
        return y if self.bias is None else y + self.bias


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def relu() -> Iterator[tuple[nn.Module, guard.Applied]]:
    """A module with a kernel that has run, so that the comparison is there."""
    made = kernel(RELU.replace("class Model(", "class ModelNew("), RELU, "relu_of_this_test")
    module = made.reference.Model()
    with torch.no_grad(), guard.apply(module, made, [""]) as applied:
        for _ in range(3):
            module(torch.randn(4, 8))
        yield module, applied


@pytest.mark.parametrize(
    "unusual",
    [
        lambda: torch.nested.nested_tensor(list(torch.ones(4, 8))),
        lambda: torch.randn(4, 8).to_sparse_csr(),
        lambda: torch.randn(4, 8).to_mkldnn(),
        lambda: torch._efficientzerotensor(4, 8),
        lambda: torch._neg_view(torch.randn(4, 8)),
    ],
    ids=["nested", "sparse", "mkldnn", "zero", "negative"],
)
def test_tensors_that_are_not_read_by_strides_run_the_original(
    relu: tuple[nn.Module, guard.Applied], unusual: Callable[[], torch.Tensor]
) -> None:
    module, applied = relu
    module(unusual())  # PyTorch's comparison would end the process at a nested one

    report = applied.report()
    assert 3 == report.kernel_calls
    assert 1 == sum(report.original_calls.values())


def test_a_parameter_that_was_none_is_noticed(relu: tuple[nn.Module, guard.Applied]) -> None:
    module, applied = relu
    module.bias = nn.Parameter(torch.ones(8))
    x = torch.randn(4, 8)

    assert torch.equal(module(x), torch.relu(x) + 1)
    assert 3 == applied.report().kernel_calls


def test_a_call_with_one_tensor_twice_unlearns_nothing(alike: Alike) -> None:
    for _ in range(2 * TIMES):
        alike.learn(X, X)

    assert alike.check(X, Y)
