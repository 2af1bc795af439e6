"""What a process tells of its profile, and what the judge makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from stark.core.profile import OUTSIDE
from stark.evaluator.candidate.trace import COMPILED, MARK
from stark.evaluator.judge.profiling import ProfileRefused, profile_limit_s, profile_of

Told = dict[str, Any]

LAUNCH = {"registers": 40, "shared_bytes": 0, "blocks": 512, "threads": 256, "occupancy": 0.48}


def entry(
    name: str, us: float, operator: str | None = None, launch: Told | None = LAUNCH, count: int = 2
) -> Told:
    return {"name": name, "operator": operator, "count": count, "us": us, "launch": launch}


def told(entries: list[Told], **changes: object) -> Told:
    """Two calls of a millisecond, of which something ran for 0.9."""
    return {
        "calls": 2,
        "busy_us": 1800.0,
        "total_us": sum(one["us"] for one in entries),
        "count": sum(one["count"] for one in entries),
        "entries": entries,
        "busy_cores": None,
        **changes,
    }


def test_kernels_are_told_per_call_with_their_shares() -> None:
    profile = profile_of(told([entry("mine", 1350.0), entry("gemm", 450.0, "aten::mm")]), "cuda")

    first, second = profile.steps
    assert ("device", 2.0, 0.9) == (profile.clock, profile.count, profile.busy_ms)
    assert ("mine", 1.0, 0.675, 0.75) == (first.name, first.count, first.time_ms, first.share)
    assert ("aten::mm", 0.25) == (second.operator, second.share)
    assert first.launch is not None
    assert (512, 0.48) == (first.launch.blocks, first.launch.occupancy)


@pytest.mark.parametrize(
    ("name", "operator", "own"),
    [
        ("scale_kernel", None, True),
        ("fused", "my::fused", True),
        ("anything", "aten::mm", False),
        ("void at::native::reduce_kernel<512, 1>(int)", None, False),
        ("sm90_xmma_gemm_f32f32_tf32f32", None, False),
        ("ampere_sgemm_128x64_nn", None, False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm>(int)", None, False),
        ("void cudnn::ops::nchwToNhwcKernel<float>(int)", None, False),
        ("Memcpy DtoD (Device -> Device)", None, False),
    ],
)
def test_kernels_of_libraries_are_not_the_programs_own(
    name: str, operator: str | None, own: bool
) -> None:
    profile = profile_of(told([entry(name, 100.0, operator)]), "cuda")

    assert (own, float(own)) == (profile.steps[0].own, profile.own_share)


def test_spills_come_from_triton_or_from_what_nvcc_said() -> None:
    built = (
        "ptxas info    : Compiling entry function '_Z5scaleILi4EEvPf' for 'sm_90a'\n"
        "    16 bytes stack frame, 24 bytes spill stores, 24 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 0 barriers\n"
    )
    entries = [
        entry("void scale<4>(float*)", 3.0),
        entry("triton_kernel", 2.0, launch={**LAUNCH, "spilled_bytes": 8}),
        entry("other", 1.0),
    ]

    profile = profile_of(told(entries), "cuda", built)

    assert [24, 8, None] == [
        step.launch.spilled_bytes for step in profile.steps if step.launch is not None
    ]


def test_time_in_no_operator_is_the_programs_own_on_a_cpu() -> None:
    entries = [
        entry(MARK, 1500.0, launch=None),
        entry("aten::addmm", 400.0, launch=None),
        entry("aten::relu", 100.0, launch=None),
    ]

    profile = profile_of(told(entries, busy_us=2000.0), "cpu")

    assert [(OUTSIDE, 0.75, True), ("aten::addmm", 0.2, False), ("aten::relu", 0.05, False)] == [
        (step.name, step.share, step.own) for step in profile.steps
    ]
    assert ("host", 0.75, 1.0) == (profile.clock, profile.own_share, profile.busy_ms)


def test_a_compiled_function_is_the_programs_own_under_its_own_name() -> None:
    entries = [entry(f"{COMPILED}ema", 90.0, launch=None), entry(MARK, 10.0, launch=None)]

    profile = profile_of(told(entries), "cpu")

    assert [("ema", 0.9, True), (OUTSIDE, 0.1, True)] == [
        (step.name, step.share, step.own) for step in profile.steps
    ]


def test_the_use_of_cores_is_what_was_told() -> None:
    entries = [entry("aten::add", 5.0, launch=None)]
    use = {"busy_cores": 1.5, "system_share": 0.25, "page_faults": 6144.0, "alone": 1.9}

    profile = profile_of(told(entries, **use, scalar_calls=["expf", "lo\ngf"]), "cpu")

    assert use == profile.model_dump(include=set(use))
    assert ("expf", "lo gf") == profile.scalar_calls
    assert profile_of(told(entries), "cpu").busy_cores is None


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "profile",
        [],
        {},
        {**told([entry("mine", 1.0)]), "more": 1},
        told([entry("mine", float("nan"))]),
        told([entry("mine", float("inf"))]),
        told([entry("mine", -1.0)]),
        told([entry("m" * 301, 1.0)]),
        told([entry("mine", 1.0)] * 17),
        told([entry("mine", 1.0, launch={**LAUNCH, "occupancy": float("nan")})]),
        told([entry("mine", 1.0, launch={"registers": 40})]),
        told([entry("mine", 1.0)], calls=0),
        told([entry("mine", 1.0)], calls=10**9),
        told([entry("mine", 1.0)], busy_cores=float("inf")),
        told([entry("mine", 1.0)], system_share=1.5),
        told([entry("mine", 1.0)], page_faults=-1.0),
        told([entry("mine", 1.0)], alone=float("nan")),
        told([entry("mine", 1.0)], scalar_calls=["x" * 21]),
        told([entry("mine", 1.0, launch={**LAUNCH, "spilled_bytes": 1e30})]),
    ],
)
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_whatever_has_another_form_is_refused(odd: object, kind: Any) -> None:
    with pytest.raises(ProfileRefused, match="an invalid profile"):
        profile_of(odd, kind)


def test_a_device_that_ran_nothing_has_no_profile() -> None:
    with pytest.raises(ProfileRefused, match="recorded no kernel"):
        profile_of(told([]), "cuda")


def test_names_are_one_line_without_control_characters() -> None:
    profile = profile_of(told([entry("evil\x1b[2J\nkernel\u2028x", 1.0, "op\x00")]), "cuda")

    bad = "\N{REPLACEMENT CHARACTER}"
    assert (f"evil kernel{bad}x", f"op{bad}") == (profile.steps[0].name, profile.steps[0].operator)


def test_shares_stay_shares_whatever_is_told() -> None:
    profile = profile_of(told([entry("mine", 5e9)], total_us=1.0, busy_us=0.0), "cuda")
    host = profile_of(told([entry("aten::add", 5e9, launch=None)]), "cpu")

    assert 1.0 == profile.steps[0].share
    assert 1.0 == host.steps[0].share


def test_the_deadline_is_short() -> None:
    assert profile_limit_s(0.01) < 5
    assert profile_limit_s(1000.0) == 14
