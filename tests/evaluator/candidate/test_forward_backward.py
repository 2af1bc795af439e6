from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stark.evaluator.candidate.backward import (
    ForwardBackward,
    GradientFault,
    Gradients,
    as_leaves,
)
from stark.evaluator.judge.trial import WAYS

WANTED = Gradients(2, (0,), (0, 1), ("weight",), (True, True, True))
"""Two outputs, of which the first has a gradient; gradients of two inputs and of a weight."""

Function = Callable[[Any, Any, Any], tuple[Any, Any]]


def honest(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
    return x * y.sin() * weight, (x > 0).float()


def call(
    forward: Function = honest, mode: str | None = None, wanted: Gradients = WANTED
) -> list[Any]:
    """One call on fixed numbers, as a runner makes it. Gradients are off outside of it, as in a candidate's process."""
    generator = torch.Generator().manual_seed(7)
    x, y, cotangent = (torch.randn(3, 4, generator=generator) for _ in range(3))
    weight = torch.nn.Parameter(torch.randn(4, generator=generator))
    leaves = as_leaves([x, y], wanted)
    module = ForwardBackward(lambda x, y: forward(x, y, weight), [weight], wanted)
    arguments = (*leaves, [[cotangent], leaves])
    with torch.no_grad():
        return module(*arguments) if mode is None else module.in_mode(mode, *arguments)


def test_a_call_returns_outputs_and_then_gradients() -> None:
    out, sign, of_x, of_y, of_weight = call()

    assert not any(each.requires_grad for each in (out, sign, of_x, of_y, of_weight))
    assert [(3, 4)] * 4 == [tuple(each.shape) for each in (out, sign, of_x, of_y)]
    assert (4,) == tuple(of_weight.shape)
    generator = torch.Generator().manual_seed(7)
    _, y, cotangent, weight = (torch.randn(n, generator=generator) for n in [(3, 4)] * 3 + [(4,)])
    assert torch.allclose(cotangent * y.sin() * weight, of_x)


@pytest.mark.parametrize("mode", sorted(WAYS.keys() - {"expanded"}))
def test_another_way_of_calling_gives_the_same_results(mode: str) -> None:
    pairs = zip(call(), call(mode=mode), strict=True)

    assert all(torch.allclose(simple, other) for simple, other in pairs)


def test_an_expanded_cotangent_has_the_values_of_its_first_row() -> None:
    seen = []

    def forward(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        out = x * y * weight
        out.register_hook(lambda cotangent: seen.append(cotangent))
        return out, (x > 0).float()

    call(forward)
    call(forward, "expanded")

    assert (0, 1) == seen[1].stride()
    assert torch.equal(seen[0][:1].expand(3, 4), seen[1])


def test_a_transposed_cotangent_has_the_same_values_and_gaps() -> None:
    seen = []

    def forward(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        out = x * y * weight
        out.register_hook(lambda cotangent: seen.append(cotangent))
        return out, (x > 0).float()

    call(forward)
    call(forward, "transposed")

    assert (2, 6) == seen[1].stride()
    assert torch.equal(seen[0], seen[1])


def test_each_call_finds_another_version_of_the_parameters() -> None:
    seen = []

    def forward(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        seen.append(weight._version)
        return honest(x, y, weight)

    call(forward)

    assert [1] == seen


FAULTS: dict[str, tuple[Function, GradientFault]] = {
    "an output without a gradient": (
        lambda x, y, weight: (x.detach() * 2, x.detach()),
        GradientFault(detached=(0,), missing=(0, 1, 2)),
    ),
    "a gradient that is missing": (
        lambda x, y, weight: (x * y.detach() * weight, x.detach()),
        GradientFault(missing=(1,)),
    ),
    "an output that must have no gradient": (
        lambda x, y, weight: (x * y * weight, x * 2),
        GradientFault(attached=(1,)),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_gradients_that_are_not_the_references_are_reported(name: str) -> None:
    forward, expected = FAULTS[name]

    assert [expected] == call(forward)


def test_a_gradient_that_the_reference_lacks_is_reported() -> None:
    wanted = Gradients(2, (0,), (0, 1), ("weight",), (True, False, True))

    assert [GradientFault(extra=(1,))] == call(wanted=wanted)


def test_another_number_of_outputs_is_returned_as_it_is() -> None:
    returned = call(lambda x, y, weight: (x * y * weight,))  # type: ignore[arg-type, return-value]

    assert [(3, 4)] == [tuple(each.shape) for each in returned]


def test_a_changed_tensor_may_raise_or_leave_the_gradients_as_they_were() -> None:
    class Stale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, weight: Any) -> Any:
            ctx.kept = y, weight
            ctx.save_for_backward(x)
            return x * y * weight

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> tuple[Any, ...]:
            y, weight = ctx.kept
            (x,) = ctx.saved_tensors
            terms = cotangent * x * y
            return cotangent * y * weight, cotangent * x * weight, terms.sum(0)

    def forward(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        return Stale.apply(x, y, weight), (x > 0).float()

    simple, changed = call(forward), call(forward, "changed")

    assert torch.equal(simple[0], changed[0])
    assert not torch.allclose(simple[2], changed[2]), "it reads y or the weight after their change"


@pytest.mark.parametrize("kept", ["itself", "a view"])
def test_pytorch_may_refuse_a_saved_tensor_that_has_changed(kept: str) -> None:
    """Of a view that was saved, PyTorch says something else than of the tensor itself."""

    class Flat(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, weight: Any) -> Any:
            ctx.save_for_backward(x.reshape(-1) if kept == "a view" else x, y, weight)
            return x * y * weight

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> tuple[Any, ...]:
            x, y, weight = ctx.saved_tensors
            x = x.view_as(y)
            terms = cotangent * x * y
            return cotangent * y * weight, cotangent * x * weight, terms.sum(0)

    def forward(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        return Flat.apply(x, y, weight), (x > 0).float()

    simple, changed = call(forward), call(forward, "changed")

    assert all(map(torch.equal, simple, changed))


def test_a_mode_leaves_inputs_and_requirements_as_they_were() -> None:
    x = torch.ones(2).requires_grad_()
    weight = torch.nn.Parameter(torch.full((2,), 3.0))
    wanted = Gradients(1, (0,), (0,), ("weight",), (True, True))
    module = ForwardBackward(lambda x: x * weight, [weight], wanted)

    for mode in WAYS:
        module.in_mode(mode, x, [[torch.ones(2)], [x]])

    assert (True, True) == (x.requires_grad, weight.requires_grad)
    assert torch.equal(torch.ones(2), x)
    assert torch.equal(torch.full((2,), 3.0), weight)


@pytest.mark.parametrize("reason", ["compiled with non-empty donated buffers", "odd"])
def test_only_the_compiler_may_refuse_to_retain_a_graph(reason: str) -> None:
    class Refuses(torch.autograd.Function):
        refused = False

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            if not Refuses.refused:
                Refuses.refused = True
                raise RuntimeError(reason)
            return cotangent * 2

    def forward(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        return Refuses.apply(x) * y * weight, (x > 0).float()

    if reason == "odd":
        with pytest.raises(RuntimeError, match="odd"):
            call(forward, "twice")
    else:
        assert 5 == len(call(forward, "twice"))
