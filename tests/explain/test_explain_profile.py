from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from profile_samples import launch, on_cpu, on_gpu, roofline, step
from stark.core.bottleneck import Profiled
from stark.core.device import Roofline
from stark.core.profile import OUTSIDE
from stark.explain.profile import bottleneck_text, profile_lines, step_lines

UNKNOWN = (
    "what it goes to was not measured: scalar arithmetic, chains of dependent operations, or waiting for data (cache "
    "misses) or other threads"
)


@pytest.mark.parametrize(
    ("profiled", "text"),
    [
        (
            on_gpu((step(launched=launch()),), roofline(0.81, 0.2)),
            "memory-bound: 81% of the measured bandwidth, every byte counted once",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.8)),
            "compute-bound: 80% of the measured fp32 peak",
        ),
        (
            on_gpu((step(launched=launch()),), roofline(0.2, 0.1), busy_ms=0.36, count=14),
            "mostly launch-bound: in 64% of the call no kernel ran, 14 kernels per call; also latency in scale_kernel, 100% "
            "of the kernels' time",
        ),
        (
            on_gpu((step(launched=launch(occupancy=0.12)),), roofline(0.1, 0.03)),
            "latency in scale_kernel, 100% of the kernels' time, at 10% of the measured bandwidth and 3% of the fp32 peak; "
            "its occupancy is low, 12%; what it waits for was not measured: Nsight Compute's counters would tell",
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
            "idle cores: 1.0 of 8 busy, at 10% of the measured bandwidth; 90% of the time in aten::add",
        ),
        (
            on_cpu((step("aten::add", 0.5), step("aten::mul", 0.4), step(OUTSIDE, 0.1)), cores=7.9),
            "time in the cores: 7.9 of 8 busy, at 10% of the measured bandwidth; 50% of the time in aten::add; 2 operators "
            f"run one after the other and pass their data through memory; {UNKNOWN}",
        ),
        (
            on_cpu((step("ema"),), cores=7.9, scalar_calls=("expf", "logf")),
            "time in the cores: 7.9 of 8 busy, at 10% of the measured bandwidth; 100% of the time in ema (compiled "
            f"code); somewhere the compiled code calls expf and logf for one number at a time; {UNKNOWN}",
        ),
        (
            on_cpu((step(OUTSIDE),), cores=7.9, page_faults=6144.0, system_share=0.4),
            "new memory: 6,144 page faults in a call, 40% of the processor time in the operating system, at 10% of the "
            "measured bandwidth; 100% of the time outside PyTorch's operators",
        ),
    ],
)
def test_every_bottleneck_in_words(profiled: Profiled, text: str) -> None:
    assert text == bottleneck_text(profiled)


def test_no_share_of_rates_that_are_not_confirmed_is_told() -> None:
    unsure = roofline(0.81, 0.2).model_copy(update={"is_confirmed": False})
    (first, second, *_) = profile_lines(on_gpu((step(launched=launch()),), unsure))

    assert "memory-bound: an unknown share of the measured bandwidth" in first
    assert "GB/s (an unknown share)" in second
    assert "%" not in first


def test_a_little_more_bandwidth_does_not_turn_the_words_round() -> None:
    """Whatever takes most comes first; both parts stand on both sides of the threshold."""
    below, above = (
        bottleneck_text(on_cpu((step("ema"),), cores=8.0, memory_ms=share))
        for share in (0.47, 0.51)
    )

    own = "time in the cores: 8.0 of 8 busy"
    assert below.startswith(f"{own}; partly memory-bound: 47% of the measured bandwidth")
    assert (
        f"mostly memory-bound: 51% of the measured bandwidth, every byte counted once; also {own}"
        == above
    )


def test_a_kernel_is_not_called_idle_in_one_line_and_busy_in_the_next() -> None:
    for cores in (4.7, 4.9):
        bottleneck, achieved, *_ = profile_lines(on_cpu((step("aten::add"),), cores=cores))

        assert f"{cores} of 8 busy" in bottleneck and f"{cores} of 8 cores busy" in achieved


def test_what_is_not_known_of_compiled_code_is_said_with_what_to_do() -> None:
    known = on_cpu((step("aten::add"),), cores=8.0)
    compiled = on_cpu((step("ema"),), cores=8.0)

    assert not [line for line in profile_lines(known) if "was not measured:" in line][1:]
    *_, entry, advice = profile_lines(compiled)
    assert "- 100% ema (compiled code)" == entry
    assert advice.startswith("the inside of ema was not measured: to learn more, ")
    streams = on_cpu((step("ema"),), cores=8.0, memory_ms=0.6)
    assert not [line for line in profile_lines(streams) if "the inside of" in line]


def test_one_thread_waits_for_no_other() -> None:
    many = on_cpu((step("ema"),), cores=8.0)
    one = replace(many, device=many.device.model_copy(update={"threads": 1}))

    assert "(cache misses) or other threads" in bottleneck_text(many)
    assert bottleneck_text(one).endswith("or waiting for data (cache misses)")


def test_threads_and_new_memory_are_among_what_was_achieved() -> None:
    lines = list(profile_lines(on_cpu((step("ema"),), cores=8.0, alone=6.5, page_faults=6144.0)))
    none = list(profile_lines(on_cpu((step("ema"),), cores=8.0, page_faults=0.2)))

    few = list(profile_lines(on_cpu((step("ema"),), cores=8.0, page_faults=13.0)))
    assert few[1].endswith("8.0 of 8 cores busy, 13 page faults in a call")
    assert lines[1].endswith("8 threads are 6.5 times as fast as one, 6,144 page faults in a call")
    assert none[1].endswith("8.0 of 8 cores busy")


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
        "bottleneck: mostly memory-bound: 60% of the measured bandwidth, every byte counted once; also spilling registers: "
        "scale_kernel keeps 16 bytes per thread in memory",
        "achieved: 1.8e+03 GB/s (60%), 10 TFLOP/s fp32 (20%), no kernel in 10% of the call, "
        "80% of kernel time in custom kernels",
        "- 80% scale_kernel: 4096 blocks of 256 threads, 40 registers, 16 bytes spilled, 4 KB shared, occupancy 75%",
        "- 20% aten::mm (sm90_xmma_gemm_f32f32), 3 times: 4096 blocks of 256 threads, 40 registers, 4 KB shared",
    ] == list(profile_lines(on_gpu(steps, roofline(0.6, 0.2), busy_ms=0.9, count=4)))


def test_cores_are_told_where_they_are_known_and_never_more_than_there_are() -> None:
    lines = list(profile_lines(on_cpu((step("aten::add"),), cores=8.4)))

    assert lines[1].endswith("8.0 of 8 cores busy")
    assert "cores" not in next(
        islice(profile_lines(on_cpu((step("aten::add"),), cores=None)), 1, None)
    )


def test_at_most_five_steps_are_shown_and_the_rest_is_summed_up() -> None:
    many = tuple(step(f"aten::op{n}", 0.125) for n in range(8))
    few = (step("aten::op", 0.97), step("other", 0.02))

    assert [*(f"- 12% aten::op{n}" for n in range(4)), "- 50% everything else"] == list(
        step_lines(on_gpu(many, roofline(0.1)).profile)
    )
    five = tuple(step(f"aten::op{n}", 0.164) for n in range(5))
    assert "- 18% everything else" == list(step_lines(on_gpu(five, roofline(0.1)).profile))[5]
    assert ["- 97% aten::op", "- 3% everything else"] == list(
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
