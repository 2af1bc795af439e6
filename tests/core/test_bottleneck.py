"""What binds a program, over profiles made by hand."""

from __future__ import annotations

import pytest

from stark.core.bottleneck import Profiled, short_name, step_lines
from stark.core.device import Device, Roofline
from stark.core.profile import OUTSIDE, Launch, Profile, Step
from stark.testing.nodes import CPU, DEVICE


def roofline(memory_ms: float, compute_ms: float = 0.0) -> Roofline:
    """On the invented GPU of 3000 GB/s and 50 TFLOP/s."""
    return Roofline(
        least_bytes=int(memory_ms * 3e9),
        flops=int(compute_ms * 5e10),
        arithmetic="fp32",
        memory_ms=memory_ms,
        compute_ms=compute_ms,
    )


def launch(blocks: int = 4096, occupancy: float | None = 0.75, spilled: int | None = 0) -> Launch:
    return Launch(
        registers=40,
        shared_bytes=4096,
        blocks=blocks,
        threads=256,
        occupancy=occupancy,
        spilled_bytes=spilled,
    )


def step(
    name: str = "scale_kernel",
    share: float = 1.0,
    launched: Launch | None = None,
    operator: str | None = None,
    count: float = 1.0,
) -> Step:
    return Step(
        name=name,
        count=count,
        time_ms=share,
        share=share,
        own=operator is None,
        operator=operator,
        launch=launched,
    )


def on_gpu(
    steps: tuple[Step, ...], roof: Roofline, busy_ms: float = 1.0, count: float = 1.0
) -> Profiled:
    """A call of one millisecond."""
    own = sum(each.share for each in steps if each.own)
    profile = Profile(clock="device", steps=steps, count=count, busy_ms=busy_ms, own_share=own)
    return Profiled(profile=profile, latency_ms=1.0, roofline=roof, device=DEVICE)


def on_cpu(steps: tuple[Step, ...], cores: float | None, device: Device = CPU) -> Profiled:
    """A call of one millisecond that moves a tenth of what it could."""
    profile = Profile(
        clock="host", steps=steps, count=3, busy_ms=1.0, own_share=0.0, busy_cores=cores
    )
    return Profiled(profile=profile, latency_ms=1.0, roofline=roofline(0.1), device=device)


@pytest.mark.parametrize(
    ("profiled", "kind", "text"),
    [
        (
            on_gpu((step(launched=launch()),), roofline(0.71, 0.2)),
            "memory",
            "memory-bound: 71% of the measured bandwidth, every byte counted once",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.8)),
            "compute",
            "compute-bound: 80% of the measured fp32 peak",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.1), busy_ms=0.36, count=14),
            "launch",
            "launch-bound: in 64% of the call no kernel ran, 14 kernels a call",
        ),
        (
            on_gpu((step(launched=launch(occupancy=0.12)),), roofline(0.1, 0.03)),
            "latency",
            "latency: neither memory nor matrix arithmetic is busy, 10% of the measured bandwidth "
            "and 3% of the fp32 peak, low occupancy 12% in scale_kernel",
        ),
        (
            on_gpu((step(launched=launch(spilled=3652)),), roofline(0.1)),
            "spills",
            "spilling registers: scale_kernel keeps 3652 bytes a thread in memory, at 10% of the "
            "measured bandwidth",
        ),
        (
            on_gpu((step(launched=launch(blocks=64)),), roofline(0.1)),
            "blocks",
            "too few blocks: scale_kernel has 64 for 132 multiprocessors, at 10% of the measured bandwidth",
        ),
        (
            on_cpu((step("aten::add", 0.9),), cores=1.0),
            "cores",
            "idle cores: 1.0 of 8 work, at 10% of the measured bandwidth",
        ),
        (
            on_cpu((step("aten::add", 0.5), step("aten::mul", 0.4), step(OUTSIDE, 0.1)), cores=7.9),
            "latency",
            "neither memory nor matrix arithmetic is busy, 10% of the measured bandwidth; 2 operators "
            "take turns, and what passes between them goes through memory",
        ),
    ],
)
def test_what_takes_most_of_the_call_binds_it(profiled: Profiled, kind: str, text: str) -> None:
    assert (kind, text) == (profiled.bottleneck.kind, profiled.bottleneck.text)


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


def test_lines_name_the_bottleneck_first_then_what_was_achieved_then_the_steps() -> None:
    steps = (
        step(launched=launch(spilled=16), share=0.8),
        step(
            "sm90_xmma_gemm_f32f32",
            0.2,
            launch(occupancy=None, spilled=None),
            operator="aten::mm",
            count=3,
        ),
    )

    assert [
        "bottleneck: memory-bound: 60% of the measured bandwidth, every byte counted once",
        "achieved: 1.8e+03 GB/s (60%), 10 TFLOP/s fp32 (20%), no kernel in 10% of the call, "
        "80% of kernel time in kernels of its own",
        "- 80% scale_kernel: 4096 blocks of 256 threads, 40 registers, 16 bytes spilled, 4 KB shared, occupancy 75%",
        "- 20% aten::mm (sm90_xmma_gemm_f32f32), 3 times: 4096 blocks of 256 threads, 40 registers, 4 KB shared",
    ] == list(on_gpu(steps, roofline(0.6, 0.2), busy_ms=0.9, count=4).lines())


def test_cores_are_told_where_they_are_known_and_never_more_than_there_are() -> None:
    lines = list(on_cpu((step("aten::add"),), cores=8.4).lines())

    assert lines[1].endswith("8.0 of 8 cores busy")
    assert "cores" not in "".join(on_cpu((step("aten::add"),), cores=None).lines())


def test_at_most_five_steps_are_shown_and_the_rest_is_summed_up() -> None:
    many = tuple(step(f"kernel_{n}", 0.125) for n in range(8))
    few = (step("kernel", 0.97), step("other", 0.02))

    assert [*(f"- 12% kernel_{n}" for n in range(4)), "- 50% everything else"] == list(
        step_lines(on_gpu(many, roofline(0.1)).profile)
    )
    assert ["- 97% kernel", "- 3% everything else"] == list(
        step_lines(on_gpu(few, roofline(0.1)).profile)
    )


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
    assert short == short_name(name)
