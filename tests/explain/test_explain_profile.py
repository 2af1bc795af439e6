from __future__ import annotations

from dataclasses import replace

import pytest

from profile_samples import launch, on_cpu, on_gpu, roofline, step
from stark.core.bottleneck import Profiled
from stark.core.device import Roofline
from stark.core.profile import OUTSIDE
from stark.explain.profile import bottleneck_text, profile_lines, step_lines


@pytest.mark.parametrize(
    ("profiled", "text"),
    [
        (
            on_gpu((step(launched=launch()),), roofline(0.71, 0.2)),
            "memory-bound: 71% of the measured bandwidth, every byte counted once",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.8)),
            "compute-bound: 80% of the measured fp32 peak",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.1), busy_ms=0.36, count=14),
            "launch-bound: in 64% of the call no kernel ran, 14 kernels per call",
        ),
        (
            on_gpu((step(launched=launch(occupancy=0.12)),), roofline(0.1, 0.03)),
            "latency: neither memory nor matrix arithmetic is busy, 10% of the measured bandwidth "
            "and 3% of the fp32 peak, low occupancy 12% in scale_kernel",
        ),
        (
            on_gpu((step(launched=launch(spilled=3652)),), roofline(0.1)),
            "spilling registers: scale_kernel keeps 3652 bytes per thread in memory, at 10% of the "
            "measured bandwidth",
        ),
        (
            on_gpu((step(launched=launch(blocks=64)),), roofline(0.1)),
            "too few blocks: scale_kernel has 64 for 132 multiprocessors, at 10% of the measured bandwidth",
        ),
        (
            on_cpu((step("aten::add", 0.9),), cores=1.0),
            "idle cores: 1.0 of 8 work, at 10% of the measured bandwidth",
        ),
        (
            on_cpu((step("aten::add", 0.5), step("aten::mul", 0.4), step(OUTSIDE, 0.1)), cores=7.9),
            "neither memory nor matrix arithmetic is busy, 10% of the measured bandwidth; 2 operators "
            "run one after the other and pass their data through memory",
        ),
    ],
)
def test_every_bottleneck_in_words(profiled: Profiled, text: str) -> None:
    assert text == bottleneck_text(profiled)


def test_a_noisy_time_leaves_the_bottleneck_unsure() -> None:
    certain = on_gpu((step(launched=launch()),), roofline(0.71, 0.2))

    said = bottleneck_text(replace(certain, noisy=True))

    assert f"unsure, since the time is too noisy; probably {bottleneck_text(certain)}" == said


def test_every_run_of_an_operator_counts() -> None:
    many = step("aten::mul", 0.9).model_copy(update={"count": 18.0})

    assert "18 operators run one after the other" in bottleneck_text(on_cpu((many,), cores=7.9))


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
        "80% of kernel time in custom kernels",
        "- 80% scale_kernel: 4096 blocks of 256 threads, 40 registers, 16 bytes spilled, 4 KB shared, occupancy 75%",
        "- 20% aten::mm (sm90_xmma_gemm_f32f32), 3 times: 4096 blocks of 256 threads, 40 registers, 4 KB shared",
    ] == list(profile_lines(on_gpu(steps, roofline(0.6, 0.2), busy_ms=0.9, count=4)))


def test_cores_are_told_where_they_are_known_and_never_more_than_there_are() -> None:
    lines = list(profile_lines(on_cpu((step("aten::add"),), cores=8.4)))

    assert lines[1].endswith("8.0 of 8 cores busy")
    assert "cores" not in "".join(profile_lines(on_cpu((step("aten::add"),), cores=None)))


def test_at_most_five_steps_are_shown_and_the_rest_is_summed_up() -> None:
    many = tuple(step(f"kernel_{n}", 0.125) for n in range(8))
    few = (step("kernel", 0.97), step("other", 0.02))

    assert [*(f"- 12% kernel_{n}" for n in range(4)), "- 50% everything else"] == list(
        step_lines(on_gpu(many, roofline(0.1)).profile)
    )
    five = tuple(step(f"kernel_{n}", 0.164) for n in range(5))
    assert "- 18% everything else" == list(step_lines(on_gpu(five, roofline(0.1)).profile))[5]
    assert ["- 97% kernel", "- 3% everything else"] == list(
        step_lines(on_gpu(few, roofline(0.1)).profile)
    )


def test_an_occupancy_of_zero_is_unknown() -> None:
    top = step(launched=launch(occupancy=0.0))

    assert "occupancy" not in "".join(profile_lines(on_gpu((top,), roofline(0.1))))


@pytest.mark.parametrize(
    ("roof", "doubt"),
    [
        (
            roofline(0.1, 1.5),
            "over 100% of the measured fp32 peak; it uses lower-precision arithmetic",
        ),
        (roofline(1.5), "every byte counted once; its data stays in a cache"),
    ],
)
def test_more_than_the_device_can_do_is_called_doubtful(roof: Roofline, doubt: str) -> None:
    assert f"{doubt}, or a measurement is off" in bottleneck_text(on_gpu((step(),), roof))
