"""Which saved buffers the judge varies. Those that it leaves alone are what a captured kernel may have as constants."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stark.capturing.code.attributes import constant_buffers
from stark.evaluator.judge.problem.values import same_values
from stark.evaluator.judge.problem.weights import other_weights, vary

ANGLES = torch.arange(1.0, 9.0).outer(torch.linspace(0.1, 0.9, 4))


class Model(torch.nn.Module):
    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("buffer", buffer.clone())


@pytest.mark.parametrize(
    ("buffer", "varies"),
    [
        (torch.polar(torch.ones(8, 4), ANGLES), True),
        (torch.polar(torch.ones(8, 4), ANGLES - 0.1), False),
        (torch.zeros(4, dtype=torch.complex64), True),
        (torch.full((16,), 1.5).to(torch.float8_e4m3fn), True),
        (torch.tensor([0.3, 0.6, 1.4] * 8).to(torch.float8_e4m3fn), True),
        (torch.tensor([0.0, 1.0, 0.3]).to(torch.float8_e5m2), False),
        (torch.ones(4), True),
        (torch.eye(4), False),
        (torch.tensor(True), False),
    ],
)
def test_buffers_of_every_type_vary_unless_they_look_like_masks(
    buffer: torch.Tensor, varies: bool
) -> None:
    model = Model(buffer)

    vary(model, 0)

    assert varies != same_values(buffer, model.buffer)
    assert varies != bool(constant_buffers(model))
    before = model.buffer.clone()
    for seed in range(8):
        with other_weights(model, seed):
            assert varies != same_values(before, model.buffer)
        assert same_values(before, model.buffer)


@pytest.mark.parametrize(("whole", "varies"), [(1, True), (64, False)])
def test_a_random_buffer_may_hold_a_whole_number_by_chance(whole: int, varies: bool) -> None:
    buffer = torch.rand(1 << 20) + 0.1
    buffer[:whole] = 0.0

    model = Model(buffer)
    vary(model, 0)

    assert varies != same_values(buffer, model.buffer)


def test_tensors_of_other_shapes_and_types_have_other_values() -> None:
    ones = torch.ones(4)

    assert same_values(ones, ones.clone())
    assert not any(same_values(each, ones) for each in (torch.ones(1), ones.half(), None))


class Scaled(torch.nn.Module):
    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(scale.clone())


@pytest.mark.parametrize("value", [1e-6, -1e-6])
def test_a_scale_that_starts_small_counts_afterwards(value: float) -> None:
    model = Scaled(torch.full((256,), value))

    with torch.no_grad():
        vary(model, 0)

    grown = (model.scale / value).clamp(min=0) * abs(value) - abs(value)  # 0 if the sign changed
    assert 0.04 < float(grown.mean()) < 0.06
    assert float(grown.max()) <= 0.1 + 1e-6


@pytest.mark.parametrize(
    "model",
    [
        Scaled(torch.tensor([1e-5])),  # an epsilon, or a step
        Scaled(torch.full((256,), 0.01)),
        Scaled(1e-4 * torch.linspace(-1, 1, 256)),
        Model(torch.full((256,), 5e-4)),  # scales of int8 weights
    ],
)
def test_epsilons_steps_and_scales_stay_small(model: torch.nn.Module) -> None:
    (name, before), *_ = [(name, each.clone()) for name, each in model.state_dict().items()]

    with torch.no_grad():
        vary(model, 0)

    assert 0 < float((model.state_dict()[name] / before - 1).abs().max()) <= 0.1 + 1e-6


@pytest.mark.parametrize("buffer", [torch.full((256,), 0.5), 0.02 * torch.linspace(-1, 1, 256)])
def test_other_weights_change_by_a_tenth_at_most(buffer: torch.Tensor) -> None:
    model = Model(buffer)

    vary(model, 0)

    assert 0.09 < float((model.buffer / buffer - 1).abs().max()) <= 0.1 + 1e-6
