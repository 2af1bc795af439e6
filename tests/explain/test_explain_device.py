from __future__ import annotations

import re

import pytest

from stark.core.reference import Reference, TensorSpec
from stark.explain.device import device_text, reference_text
from support.nodes import CPU, DEVICE, EAGER_MS, PROFILE, ROOFLINE, measurement

SPEC = TensorSpec(shape=(64, 256), dtype="float32")
REFERENCE = Reference(
    device=DEVICE,
    versions={},
    inputs=(SPEC,),
    outputs=(SPEC,),
    eager=measurement(EAGER_MS),
    roofline=ROOFLINE,
)


def test_the_device_sheet_has_every_number_of_the_device() -> None:
    text = device_text(DEVICE)

    for fact in (
        "Invented GPU (sm_90), 132 streaming multiprocessors",
        "memory 80 GB, measured bandwidth 3000 GB/s",
        "last-level cache 50 MB",
        "fp32 50 TFLOP/s, tf32 400 TFLOP/s, bf16 800 TFLOP/s",
        "at most 227 KB",
        "about 2.5 us",
    ):
        assert fact in text


def test_a_cpu_has_cores_and_nothing_of_a_gpu() -> None:
    text = device_text(CPU)

    assert "Invented CPU (x86_64), 8 cores\n" in text
    assert not re.search("multiprocessor|shared memory|launching|None|instruction|L1|L2", text)


def test_a_cpu_says_what_its_kernels_can_use() -> None:
    known = {
        "features": ("AVX2", "AVX-512"),
        "l1_kb": 48.0,
        "l2_kb": 2048.0,
        "threads": 4,
        "blas": "MKL and oneDNN",
    }

    assert [
        "- Invented CPU (x86_64), 8 cores; a candidate gets 4 OpenMP threads",
        "- instruction sets: AVX2, AVX-512",
        "- memory 32 GB, measured bandwidth 40 GB/s (read plus written)",
        "- L1 data cache 48 KB per core, L2 cache 2048 KB per core, last-level cache 32 MB",
        "- measured peak of a matrix product by MKL and oneDNN: fp32 0.4 TFLOP/s",
    ] == device_text(CPU.model_copy(update=known)).splitlines()


def test_rates_that_are_not_confirmed_are_the_least_that_the_device_has() -> None:
    text = device_text(CPU.model_copy(update={"unconfirmed": ("memory", "fp32")}))

    assert "measured bandwidth at least 40 GB/s" in text
    assert "fp32 at least 0.4 TFLOP/s" in text


def test_a_cpus_bandwidth_is_the_one_that_the_roofline_uses() -> None:
    cpu = CPU.model_copy(update={"bandwidths_gb_s": {30_000_000: 60.0}})
    roofline = ROOFLINE.model_copy(update={"memory_ms": 0.5})
    text = reference_text(REFERENCE.model_copy(update={"device": cpu, "roofline": roofline}))

    assert "0.5 ms at the measured bandwidth for data of this size, 60 GB/s" in text
    assert (
        "measured bandwidth 40 GB/s with arrays far beyond the caches, more with smaller ones (read plus written)"
        in device_text(cpu)
    )


@pytest.mark.parametrize(
    ("memory_ms", "compute_ms", "bound"),
    [(0.25, 0.1, "0.25 ms, memory-bound"), (0.1, 0.25, "0.25 ms, compute-bound")],
)
def test_the_reference_is_told_with_its_roofline(
    memory_ms: float, compute_ms: float, bound: str
) -> None:
    roofline = ROOFLINE.model_copy(
        update={"memory_ms": memory_ms, "compute_ms": compute_ms, "flops": 3_000_000_000}
    )
    text = reference_text(REFERENCE.model_copy(update={"roofline": roofline}))

    assert "eager PyTorch takes 1 ms" in text
    assert f"least memory traffic 30.0 MB: {memory_ms:g} ms" in text
    assert f"3 GFLOP in matrix products and convolutions: {compute_ms:g} ms" in text
    assert f"the roofline is about {bound}; eager is 4.0 times that" in text


def test_a_reference_that_moves_and_computes_nothing_has_no_roofline() -> None:
    nothing = ROOFLINE.model_copy(update={"least_bytes": 0, "memory_ms": 0.0})

    text = reference_text(REFERENCE.model_copy(update={"roofline": nothing}))

    assert "no roofline is known" in text


def test_an_eager_time_below_the_roofline_is_explained() -> None:
    slow = ROOFLINE.model_copy(update={"memory_ms": 0.1, "compute_ms": 2.0})

    text = reference_text(REFERENCE.model_copy(update={"roofline": slow}))

    assert "the roofline is unknown: eager mode is faster than the fp32 estimate of 2 ms" in text
    assert "times that" not in text


def test_a_roofline_that_is_not_confirmed_is_unknown() -> None:
    unsure = ROOFLINE.model_copy(update={"compute_ms": 0.2, "is_confirmed": False})

    text = reference_text(REFERENCE.model_copy(update={"roofline": unsure}))

    assert "the roofline is unknown: too few judges have measured this peak yet" in text
    assert "times that" not in text


def test_the_allowed_error_is_stated_in_the_type_of_each_output() -> None:
    outputs = [TensorSpec(shape=(8,), dtype=name) for name in ("bfloat16", "bfloat16", "int64")]
    mixed = {"outputs": tuple(outputs), "error_budgets": (4e-3, 4e-3, None)}

    text = reference_text(REFERENCE.model_copy(update=mixed))

    assert (
        "- accuracy against the reference in float64: relative RMS error at most 0.004 in bfloat16; "
        "the int64 output must be equal"
    ) in text
    assert "accuracy" not in reference_text(REFERENCE)


def test_the_budgets_of_gradients_follow_those_of_the_outputs() -> None:
    outputs = (TensorSpec(shape=(8,), dtype="float32"),)
    budgets = {"outputs": outputs, "error_budgets": (2e-5, 2e-5, 4e-5, 1e9)}

    text = reference_text(REFERENCE.model_copy(update=budgets))

    assert "ms for forward with backward, which is what is timed" in text
    assert (
        "at most 2e-05 in float32; relative RMS error at most 2e-05 to 4e-05 in each gradient"
        in text
    )


def test_what_the_judge_found_odd_in_the_problem_is_told() -> None:
    odd = REFERENCE.model_copy(update={"warnings": ("the problem is degenerate",)})

    assert reference_text(odd).endswith("\n- note: the problem is degenerate")


def test_the_reference_tells_where_its_time_goes() -> None:
    text = reference_text(REFERENCE.model_copy(update={"profile": PROFILE}))

    assert [
        "- eager's bottleneck: mostly launch-bound: in 60% of the call no kernel ran, 3 kernels per call; also latency in "
        "scale_kernel, 75% of the kernels' time",
        "- achieved: 30 GB/s (1%), no kernel in 60% of the call, 75% of kernel time in custom kernels",
        "  - 75% scale_kernel: 4096 blocks of 256 threads, 40 registers, occupancy 90%",
        "  - 25% aten::zeros (Memset), 2 times",
    ] == text.splitlines()[-4:]
