from __future__ import annotations

from stark.core.bottleneck import Profiled
from stark.core.device import Device, Roofline
from stark.core.profile import STALLS, KernelCounters, Launch, Profile, Step
from stark.explain.counters import WAITS, facts, limiter
from stark.explain.profile import bottleneck_text, profile_lines

DEVICE = Device(
    kind="cuda",
    name="made up",
    architecture="sm_90",
    processors=132,
    memory_gb=80,
    bandwidth_gb_s=4000,
    peak_tflop_s={"fp32": 50},
    launch_us=2.0,
    last_level_cache_mb=50,
)


def counted(**more: object) -> KernelCounters:
    return KernelCounters.model_validate({"name": "mine", "time_ms": 0.9, "share": 1.0, **more})


def profiled(*kernels: KernelCounters, memory_ms: float = 0.2) -> Profiled:
    launch = Launch(registers=32, shared_bytes=0, blocks=4096, threads=256, occupancy=0.9)
    step = Step(name="mine", count=1, time_ms=0.9, share=1, own=True, launch=launch)
    profile = Profile(
        clock="device", steps=(step,), count=1, busy_ms=0.95, own_share=1, counters=kernels
    )
    roof = Roofline(
        least_bytes=800_000_000,
        flops=0,
        arithmetic="fp32",
        memory_ms=memory_ms,
        compute_ms=0.0,
        own_arithmetic="fp32",
        own_compute_ms=0.0,
    )
    return Profiled(profile=profile, latency_ms=1.0, roofline=roof, device=DEVICE)


def test_every_stall_that_is_read_has_words() -> None:
    assert set(STALLS) == set(WAITS)


def test_what_is_busy_limits_a_kernel_before_what_its_warps_wait_for() -> None:
    waits = {"long_scoreboard": 0.7, "barrier": 0.1}

    assert "memory is busy 85% of the time" == limiter(counted(dram=0.85, stalls=waits))
    assert "the tensor cores are busy 70% of the time" == limiter(counted(tensor=0.7, issue=0.8))
    assert "the multiprocessors work at 80% of their peak" == limiter(counted(issue=0.8))
    both = "warps wait 70% of their time for data from memory, and the multiprocessors work at 30% of their peak"
    assert both == limiter(counted(dram=0.2, issue=0.3, stalls=waits))


def test_a_little_more_load_does_not_turn_the_words_round() -> None:
    waits = {"long_scoreboard": 0.4}
    wait = "and warps wait 40% of their time for data from memory"

    assert f"memory is busy 59% of the time, {wait}" == limiter(counted(dram=0.59, stalls=waits))
    assert f"memory is busy 61% of the time, {wait}" == limiter(counted(dram=0.61, stalls=waits))


def test_a_wait_that_is_short_or_unknown_is_not_named() -> None:
    for stalls in ({"barrier": 0.2}, {"sleeping": 0.9}, {}):
        assert "no single wait stands out" == limiter(counted(stalls=stalls))


def test_facts_name_what_can_be_improved_and_leave_out_what_is_well() -> None:
    well = counted(dram=0.3, occupancy=0.9, loads_used=1.0, bank_conflicts=0.0, tensor=0.0)
    ill = counted(dram=0.3, loads_used=0.25, stores_used=0.125, bank_conflicts=0.5, l2_hits=0.4)

    assert ["DRAM 30%", "achieved occupancy 90%"] == list(facts(well))
    assert [
        "DRAM 30%",
        "loads use 25% of the bytes that they move",
        "stores use 12% of the bytes that they move",
        "50% of shared-memory accesses were repeated because of bank conflicts",
        "cache hits L2 40%",
    ] == list(facts(ill))


def test_a_kernel_that_moves_more_than_it_needs_is_memory_bound_whatever_the_roofline_says() -> (
    None
):
    found = profiled(counted(dram=0.9, dram_bytes=3.2e9))

    assert "memory" == found.bottleneck.kind
    assert (
        "memory-bound: memory is busy 90% of the time in mine, and it moves 4.0 times the bytes that the call needs, "
        "at 20% of the measured bandwidth" == bottleneck_text(found)
    )


def test_counters_name_a_kernel_that_computes_and_what_its_warps_wait_for() -> None:
    assert "compute" == profiled(counted(issue=0.8)).bottleneck.kind
    waits = profiled(counted(issue=0.3, stalls={"barrier": 0.5}))
    assert "latency" == waits.bottleneck.kind
    assert "; warps wait 50% of their time for other warps at a barrier" in bottleneck_text(waits)


def test_counters_decide_nothing_where_the_roofline_does_or_the_kernel_is_a_small_part() -> None:
    assert bottleneck_text(profiled(counted(issue=0.9), memory_ms=0.8)).startswith(
        "memory-bound: 80%"
    )
    assert "latency" == profiled(counted(share=0.4, issue=0.9)).bottleneck.kind


def test_counters_stand_in_the_lines_with_at_most_three_kernels_that_matter() -> None:
    kernels = [
        counted(name=f"k{n}", share=share, dram=0.5) for n, share in enumerate((0.4, 0.3, 0.2, 0.1))
    ]
    lines = [line for line in profile_lines(profiled(*kernels)) if line.startswith("counters")]

    assert 3 == len(lines)
    assert lines[0] == ("counters of k0 (40%): memory is busy 50% of the time; DRAM 50%")
    assert not [
        line for line in profile_lines(profiled(counted(share=0.01))) if line.startswith("counters")
    ]
