"""What binds a program, over profiles made by hand."""

from __future__ import annotations

import pytest

from profile_samples import launch, on_cpu, on_gpu, roofline, step
from stark.core.bottleneck import Profiled, kernel_name
from stark.core.profile import OUTSIDE
from support.nodes import CPU


@pytest.mark.parametrize(
    ("profiled", "kind"),
    [
        (
            on_gpu((step(launched=launch()),), roofline(0.71, 0.2)),
            "memory",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.8)),
            "compute",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.1), busy_ms=0.36, count=14),
            "launch",
        ),
        (
            on_gpu((step(launched=launch(occupancy=0.12)),), roofline(0.1, 0.03)),
            "latency",
        ),
        (
            on_gpu((step(launched=launch(spilled=3652)),), roofline(0.1)),
            "spills",
        ),
        (
            on_gpu((step(launched=launch(blocks=64)),), roofline(0.1)),
            "blocks",
        ),
        (
            on_cpu((step("aten::add", 0.9),), cores=1.0),
            "cores",
        ),
        (
            on_cpu((step("ema"),), cores=7.9, page_faults=6144.0, system_share=0.4),
            "pages",
        ),
        (
            on_cpu((step("ema"),), cores=7.9, page_faults=0.0, system_share=0.4),
            "latency",
        ),
        (
            on_cpu((step("aten::add", 0.5), step("aten::mul", 0.4), step(OUTSIDE, 0.1)), cores=7.9),
            "latency",
        ),
    ],
)
def test_what_takes_most_of_the_call_binds_it(profiled: Profiled, kind: str) -> None:
    assert kind == profiled.bottleneck.kind


def test_what_binds_at_the_device_comes_before_spills_and_few_blocks() -> None:
    spilling = launch(blocks=64, spilled=128)

    assert "memory" == on_gpu((step(launched=spilling),), roofline(0.6)).bottleneck.kind


def test_a_single_core_has_none_idle_and_unknown_cores_are_no_finding() -> None:
    alone = CPU.model_copy(update={"processors": 1})
    steps = (step("aten::add"),)

    assert "latency" == on_cpu(steps, cores=0.4, device=alone).bottleneck.kind
    assert "latency" == on_cpu(steps, cores=None).bottleneck.kind


def test_a_call_that_the_profiler_saw_longer_than_it_is_has_no_idle_time() -> None:
    assert 0.0 == on_gpu((step(),), roofline(0.1), busy_ms=1.3).idle_share


def test_only_a_device_has_idle_time_between_kernels() -> None:
    assert on_cpu((step("aten::add"),), cores=None).idle_share is None


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, "
            "std::array<char*, 3ul> >(int, at::native::AddFunctor<float>)",
            "at::native::vectorized_elementwise_kernel",
        ),
        ("void (anonymous namespace)::scale<4>(float*, float, long)", "scale"),
        ("scale_kernel", "scale_kernel"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("<>", "<>"),
        ("k" * 80, "k" * 59 + "…"),
    ],
)
def test_a_kernels_name_is_shown_without_its_arguments(name: str, short: str) -> None:
    assert short == kernel_name(name)
