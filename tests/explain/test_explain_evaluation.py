from __future__ import annotations

import pytest

from stark.core.evaluation import STATUSES, BuildFailed, Evaluation
from stark.core.measurement import Speedup
from stark.explain.evaluation import (
    evidence,
    explain,
    measured,
    reason,
    roofline_share,
    speedup_text,
    verdict,
)
from support.nodes import PROFILE, ROOFLINE, correct, failure, measurement

EXPLANATIONS = {
    "correct": (
        "correct, 0.5 ms: 2.00x vs eager [2.00, 2.00], faster (unconfirmed)\n"
        "1.60x vs compile [1.60, 1.60], faster (unconfirmed)\n"
        "2% of the roofline (memory-bound: estimate 0.01 ms)\n"
        "error 2e-07 (reference 1e-07, allowed 2e-05; meets reference)"
    ),
    "incorrect": "output 0: relative error 0.31 is over its budget of 0.001",
    "build_failed": "line 12: expected ';' before 'return'",
    "crashed": "in the verify phase: CUDA error: an illegal memory access",
    "timed_out": "the build phase did not end within 180 s",
    "out_of_memory": "in the load phase: tried to allocate 96.00 GiB",
    "rejected": "rule calls-reference: it calls torch.nn.functional.relu",
    "unusable": "the reply holds no code block",
}


def example(status: str) -> Evaluation:
    """An evaluation with all that every status carries."""
    made = correct(0.5) if status == "correct" else failure(status)
    common = {
        "seconds": {"build": 9.5},
        "output": "printed\n",
        "warnings": ("a finding",),
        "sandbox": ("landlock", "seccomp"),
    }
    return made.model_copy(update=common)


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_explains_itself(status: str) -> None:
    assert explain(example(status)).startswith(EXPLANATIONS[status])
    assert explain(example(status)).endswith("\nNote: a finding")


def test_a_profile_stands_between_evidence_and_notes() -> None:
    found = correct(0.5).model_copy(update={"profile": PROFILE, "warnings": ("a finding",)})

    lines = explain(found).splitlines()

    assert [
        "2% of the roofline (memory-bound: estimate 0.01 ms)",
        "error 2e-07 (reference 1e-07, allowed 2e-05; meets reference)",
        "bottleneck: latency in scale_kernel, 75% of the kernels' time, at 2% of the measured bandwidth; what it waits for "
        "was not measured: Nsight Compute's counters would tell; 3 kernels run one after the other and pass their data through memory",
        "achieved: 60 GB/s (2%), no kernel in 20% of the call, 75% of kernel time in custom kernels",
        "- 75% scale_kernel: 4096 blocks of 256 threads, 40 registers, occupancy 90%",
        "- 25% aten::zeros (Memset), 2 times",
        "Note: a finding",
    ] == lines[2:]


def test_the_roofline_is_explained_by_what_binds() -> None:
    compute = ROOFLINE.model_copy(update={"compute_ms": 0.4})
    small = ROOFLINE.model_copy(update={"memory_ms": 0.001})

    assert "80% of the roofline (compute-bound: estimate 0.4 ms)\n" in explain(
        correct(0.5).model_copy(update={"roofline": compute})
    )
    for memory_ms in (0.39, 0.41):
        both = compute.model_copy(update={"memory_ms": memory_ms})
        assert "(memory- and compute-bound: estimate" in explain(
            correct(0.5).model_copy(update={"roofline": both})
        )
    assert (
        "10% of the roofline (launch-bound: estimate 0.001 ms, and launching one kernel costs 0.0025 ms)\n"
        in explain(correct(0.01).model_copy(update={"roofline": small}))
    )


def test_a_speedup_names_its_reference() -> None:
    found = Speedup(reference="compile", ratio=2.0, low=1.98, high=2.02)

    assert "2.00x vs compile [1.98, 2.02]" == speedup_text(found)
    assert "2.00x [1.98, 2.02]" == speedup_text(found, named=False)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.004, 1.02, "[1.004, 1.020]"),
        (0.98, 0.996, "[0.980, 0.996]"),
        (0.9997, 1.02, "[0.9997, 1.0200]"),
        (1.0, 1.02, "[1.00, 1.02]"),
        (0.97, 1.03, "[0.97, 1.03]"),
    ],
)
def test_an_interval_shows_on_which_side_of_1_it_ends(low: float, high: float, said: str) -> None:
    unsure = Speedup(reference="eager", ratio=1.0, low=low, high=high)
    assert speedup_text(unsure).endswith(said)


def test_a_reference_that_is_not_beaten_says_so() -> None:
    said = explain(correct(1.0).model_copy(update={"references": {"compile": measurement(1.0)}}))

    assert said.startswith("correct, 1 ms: 1.00x vs compile [1.00, 1.00], no measurable difference")


def test_a_measurement_says_how_it_was_made() -> None:
    one = measurement(1.0).model_copy(update={"samples_ms": (1.0,), "calls_per_sample": 1})
    more = one.model_copy(update={"samples_ms": (1.0, 1.0, 1.0), "calls_per_sample": 10})

    assert measured(one).startswith("1.00 ms (median of 1 sample of 1 call, ")
    assert measured(more).startswith("1.00 ms (median of 3 samples of 10 calls, ")
    assert measured(one).endswith(", timed by events on the device)")
    on_cpu = one.model_copy(update={"clock": "judge_wall"})
    assert measured(on_cpu).endswith(", timed by the judge's clock)")


def test_the_compilers_complaint_is_the_evidence() -> None:
    error = "RuntimeError: ninja exited\n/long/folder/main.cpp:3:5: error: expected ';'\n"

    assert "main.cpp:3:5: error: expected ';'" == reason(BuildFailed(error=error))


@pytest.mark.parametrize(
    ("latency_ms", "said"),
    [(0.5, "faster (unconfirmed)"), (2.0, "slower than the reference")],
)
def test_verdict(latency_ms: float, said: str) -> None:
    assert verdict(correct(latency_ms)).endswith(said)


def test_only_a_final_check_confirms_a_win() -> None:
    found = correct(0.5)

    assert found.effort == "search"
    assert evidence(found).count("faster (unconfirmed)") == len(found.references)
    assert "unconfirmed" not in evidence(found.model_copy(update={"effort": "promote"}))


def test_verdict_without_a_difference() -> None:
    noisy = measurement(1.0).model_copy(update={"samples_ms": (0.9, 1.1) * 5})
    still = correct(1.0)
    same = still.model_copy(
        update={
            "candidate": noisy,
            "references": {"eager": noisy.model_copy(update={"samples_ms": (1.0,) * 10})},
        }
    )

    assert verdict(same).endswith("no measurable difference")


NOISY = Speedup(reference="eager", ratio=0.97, low=0.0, high=1137.63)


def test_an_interval_that_is_too_wide_is_shown_as_too_noisy() -> None:
    assert ("0.97x [0.00, 1137.63], too noisy", "0.97x vs eager [0.00, 1137.63], too noisy") == (
        speedup_text(NOISY, named=False),
        speedup_text(NOISY),
    )


def test_a_noisy_measurement_supports_no_verdict() -> None:
    found = correct(0.5)
    candidate = found.candidate.model_copy(update={"resolution_ms": 500.0})
    noisy = found.model_copy(update={"candidate": candidate})

    assert "2.00x vs eager [0.00, 2002.00], too noisy" == verdict(noisy)
    assert evidence(noisy).startswith(f"correct, 0.5 ms: {verdict(noisy)}\n")


def test_no_share_is_told_of_a_roofline_that_is_not_confirmed() -> None:
    found = correct(0.5)
    unsure = {"roofline": found.roofline.model_copy(update={"is_confirmed": False})}
    text = evidence(found.model_copy(update=unsure))

    assert "roofline unknown: too few judges have measured this bandwidth yet" in text
    assert "unknown" == roofline_share(found.model_copy(update=unsure))


def test_a_time_below_the_roofline_is_called_doubtful() -> None:
    compute = ROOFLINE.model_copy(update={"compute_ms": 2.7})
    found = correct(0.807).model_copy(update={"roofline": compute})

    assert (
        "roofline unknown: the kernel is faster than the fp32 estimate of 2.7 ms (it does less arithmetic, or in "
        "lower precision, or a measurement is off)\n"
    ) in evidence(found)
