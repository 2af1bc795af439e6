from __future__ import annotations

import pytest

from stark.core.profile import OUTSIDE, Profile, Step
from stark.core.reference import Reference, TensorSpec
from stark.languages.work import CPU_ENTRIES, Work, operator_shares, work_of
from support.nodes import CPU, DEVICE, ROOFLINE, measurement


def profile(count: float, *names: str, on_device: bool = True) -> Profile:
    """A profile with these operators, whose count includes others."""
    steps = [
        Step(
            name="kernel" if on_device else name,
            operator=name if on_device else None,
            count=1.0,
            time_ms=0.1,
            share=1 / len(names),
            own=False,
        )
        for name in names
    ]
    return Profile(
        clock="device" if on_device else "host",
        steps=tuple(steps),
        count=count,
        busy_ms=0.1,
        own_share=0.0,
    )


def reference(
    floor_ms: float, found: Profile | None, outputs: tuple[int, ...] = (4096, 4096)
) -> Reference:
    return Reference(
        device=DEVICE,
        versions={},
        inputs=(),
        outputs=(TensorSpec(shape=outputs, dtype="float32"),),
        eager=measurement(1.0),
        roofline=ROOFLINE.model_copy(update={"memory_ms": floor_ms, "compute_ms": floor_ms / 2}),
        profile=found,
    )


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("aten::mm", {"matmul"}),
        ("aten::addmm", {"matmul"}),
        ("aten::baddbmm", {"matmul"}),
        ("aten::_scaled_mm", {"matmul"}),
        ("aten::mkldnn_linear", {"matmul"}),
        ("aten::_flash_attention_forward", {"matmul", "softmax"}),
        ("aten::cudnn_convolution", {"conv"}),
        ("aten::_slow_conv2d_forward", {"conv"}),
        ("aten::_log_softmax", {"softmax"}),
        ("aten::native_layer_norm", {"norm"}),
        ("aten::_fused_rms_norm", {"norm"}),
        ("aten::linalg_vector_norm", {"reduction"}),
        ("aten::amax", {"reduction"}),
        ("aten::max_pool2d_with_indices", {"reduction"}),
        ("aten::nll_loss_forward", {"reduction"}),
        ("aten::clamp_min", set()),
        ("aten::maximum", set()),
        ("aten::copy_", set()),
    ],
)
@pytest.mark.parametrize("on_device", [True, False], ids=["gpu", "cpu"])
def test_operators_are_those_of_the_profile(
    name: str, operators: set[str], on_device: bool
) -> None:
    found = work_of(reference(1.0, profile(1.0, "aten::add", name, on_device=on_device)))

    assert operators == found.operators


def test_without_a_profile_the_rooflines_operations_tell_of_products() -> None:
    known = reference(1.0, None)
    with_products = ROOFLINE.model_copy(update={"flops": 1000})

    assert (frozenset(), 1) == (work_of(known).operators, work_of(known).steps)
    assert {"matmul", "conv"} == work_of(
        known.model_copy(update={"roofline": with_products})
    ).operators


def gpu(kernels: float, floor_ms: float, outputs: tuple[int, ...] = (4096, 4096)) -> Work:
    return work_of(reference(floor_ms, profile(kernels, "aten::mm"), outputs))


def test_launches_bind_if_the_kernels_launches_take_longer_than_the_least_time() -> None:
    assert 2.5 == DEVICE.launch_us

    assert "memory" == gpu(1, floor_ms=0.009).bound
    assert "launch" == gpu(4, floor_ms=0.009).bound
    assert "memory" == gpu(4, floor_ms=0.011).bound


def test_otherwise_the_roofline_says_what_binds() -> None:
    known = reference(1.0, profile(1.0, "aten::mm"))
    slow = known.roofline.model_copy(update={"compute_ms": 2.0})

    found = work_of(known.model_copy(update={"roofline": slow}))

    assert ("compute", "sm_90") == (found.bound, found.architecture)


def test_a_cpu_has_small_problems_too() -> None:
    found = profile(4 * CPU_ENTRIES, "aten::relu", on_device=False)
    small, larger = (
        reference(floor_ms, found).model_copy(update={"device": CPU}) for floor_ms in (0.01, 0.03)
    )

    assert ("launch", 4) == (work_of(small).bound, work_of(small).steps)
    assert "memory" == work_of(larger).bound


def test_many_steps_do_not_make_a_problem_of_a_cpu_small() -> None:
    found = profile(700 * CPU_ENTRIES, "aten::mul", on_device=False)

    assert "memory" == work_of(reference(0.9, found).model_copy(update={"device": CPU})).bound


def test_few_outputs_are_fewer_tiles_than_processors_of_a_short_program() -> None:
    assert gpu(1, 1.0, (256, 256)).few_outputs
    assert not gpu(1, 1.0, (4096, 4096)).few_outputs
    assert not gpu(4, 1.0, (256, 256)).few_outputs


def test_time_is_shared_among_kinds_of_operators_without_what_is_outside_of_them() -> None:
    names = {"aten::addmm": 0.5, "aten::bmm": 0.1, "aten::mul_": 0.25, OUTSIDE: 0.15}
    steps = tuple(
        Step(name=name, count=1.0, time_ms=share, share=share, own=False)
        for name, share in names.items()
    )
    found = Profile(clock="host", steps=steps, count=4.0, busy_ms=1.0, own_share=0.0)

    shares = operator_shares(reference(1.0, found))

    assert {"matmul": pytest.approx(0.6), "mul": 0.25} == shares
    assert ["matmul", "mul"] == list(shares)
    assert {} == operator_shares(reference(1.0, None))
