from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from stark.core.evaluation import (
    STATUSES,
    Correct,
    Evaluation,
    Outcome,
    evaluation_adapter,
    explain,
)
from stark.core.measurement import Measurement
from stark.testing.nodes import PROFILE, ROOFLINE, correct, failure, measurement

FAILURES = tuple(status for status in STATUSES if status != "correct")


EXPLANATIONS = {
    "correct": (
        "correct, 0.5 ms: 2.00x vs eager [2.00, 2.00], faster\n1.60x vs compile [1.60, 1.60], faster\n"
        "2% of the roofline (memory-bound: 0.01 ms at best)"
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


def classes() -> tuple[type[Outcome], ...]:
    """The members of the union."""
    union, _ = get_args(Evaluation)
    found: tuple[type[Outcome], ...] = get_args(union)
    return found


def test_the_statuses_are_those_of_the_union() -> None:
    declared = [kind.model_fields["status"].default for kind in classes()]

    assert sorted(STATUSES) == sorted(declared)
    assert set(classes()) == set(Outcome.__subclasses__())


@pytest.mark.parametrize("status", STATUSES)
def test_an_evaluation_comes_back_from_json_as_it_was(status: str) -> None:
    evaluation = example(status)

    text = evaluation_adapter.dump_json(evaluation)

    assert status == evaluation.status
    assert evaluation == evaluation_adapter.validate_json(text)


def test_an_evaluation_of_before_there_was_a_sandbox_says_nothing_of_it() -> None:
    stored = failure("crashed").model_dump(mode="json")
    del stored["sandbox"]

    assert () == evaluation_adapter.validate_python(stored).sandbox


def test_an_evaluation_of_before_there_were_profiles_has_none() -> None:
    stored = correct(0.5).model_dump(mode="json")
    del stored["profile"]

    assert correct(0.5) == evaluation_adapter.validate_python(stored)


def test_a_profile_comes_back_from_json_and_stands_between_evidence_and_notes() -> None:
    found = correct(0.5).model_copy(update={"profile": PROFILE, "warnings": ("a finding",)})

    lines = explain(found).splitlines()

    assert found == evaluation_adapter.validate_json(evaluation_adapter.dump_json(found))
    assert [
        "2% of the roofline (memory-bound: 0.01 ms at best)",
        "bottleneck: latency: neither memory nor matrix arithmetic is busy, 2% of the measured bandwidth; "
        "2 kernels take turns, and what passes between them goes through memory",
        "achieved: 60 GB/s (2%), no kernel in 20% of the call, 75% of kernel time in kernels of its own",
        "- 75% scale_kernel: 4096 blocks of 256 threads, 40 registers, occupancy 90%",
        "- 25% aten::zeros (Memset), 2 times",
        "Note: a finding",
    ] == lines[2:]


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_explains_itself(status: str) -> None:
    assert explain(example(status)).startswith(EXPLANATIONS[status])
    assert explain(example(status)).endswith("\nNote: a finding")


def test_only_a_correct_candidate_has_measurements() -> None:
    for kind in classes():
        measured = {
            name for name, field in kind.model_fields.items() if field.annotation is Measurement
        }
        assert (kind is Correct) == ("candidate" in measured)


@pytest.mark.parametrize("status", FAILURES)
def test_a_failure_with_measurements_cannot_be_written(status: str) -> None:
    values = example(status).model_dump() | {"candidate": correct(0.5).candidate.model_dump()}

    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        evaluation_adapter.validate_python(values)


@pytest.mark.parametrize("values", [{}, {"status": "fine"}, {"status": "crashed"}])
def test_what_is_no_evaluation_cannot_be_read(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        evaluation_adapter.validate_python(values)


def test_an_evaluation_is_never_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        example("correct").output = "another"  # type: ignore[misc]


def test_a_correct_candidate_is_compared_with_the_references_that_were_measured() -> None:
    evaluation = correct(0.5)

    assert pytest.approx(2.0) == evaluation.speedup_vs().ratio
    assert pytest.approx(1.6) == evaluation.speedup_vs("compile").ratio
    with pytest.raises(KeyError, match="tuned"):
        evaluation.speedup_vs("tuned")


def test_the_roofline_fraction_is_the_share_of_the_best_possible_speed() -> None:
    bound = ROOFLINE.model_copy(update={"compute_ms": 0.4})
    evaluation = correct(0.5).model_copy(update={"roofline": bound})

    assert pytest.approx(0.8) == evaluation.roofline_fraction
    assert explain(evaluation).endswith("80% of the roofline (compute-bound: 0.4 ms at best)")


def test_what_takes_less_than_a_launch_is_bound_by_it() -> None:
    small = ROOFLINE.model_copy(update={"memory_ms": 0.001})
    evaluation = correct(0.01).model_copy(update={"roofline": small})

    assert "launch" == evaluation.bound
    assert explain(evaluation).endswith(
        "10% of the roofline (launch-bound: 0.001 ms at best, and launching one kernel costs 0.0025 ms)"
    )


def test_a_reference_that_is_not_beaten_says_so() -> None:
    said = explain(correct(1.0).model_copy(update={"references": {"compile": measurement(1.0)}}))

    assert said.startswith(
        "correct, 1 ms: 1.00x vs compile [1.00, 1.00], no difference that can be measured"
    )
