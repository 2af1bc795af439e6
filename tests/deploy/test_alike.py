from __future__ import annotations

import copy

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
