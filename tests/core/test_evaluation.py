from __future__ import annotations

import math
from typing import get_args

import pytest
from pydantic import ValidationError

from stark.core.evaluation import (
    STATUSES,
    Correct,
    Evaluation,
    EvaluationBase,
    Untimed,
    evaluation_adapter,
)
from stark.core.measurement import Measurement
from support.nodes import PROFILE, ROOFLINE, correct, failure

FAILURES = tuple(status for status in STATUSES if status != "correct")


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


def classes() -> tuple[type[EvaluationBase], ...]:
    """The members of the union."""
    union, _ = get_args(Evaluation)
    found: tuple[type[EvaluationBase], ...] = get_args(union)
    return found


def test_the_statuses_are_those_of_the_union() -> None:
    declared = [kind.model_fields["status"].default for kind in classes()]

    assert sorted(STATUSES) == sorted(declared)
    assert {*classes(), Untimed} == set(EvaluationBase.__subclasses__())


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


def test_a_profile_comes_back_from_json() -> None:
    found = correct(0.5).model_copy(update={"profile": PROFILE})

    assert found == evaluation_adapter.validate_json(evaluation_adapter.dump_json(found))


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


def test_what_takes_less_than_a_launch_is_bound_by_it() -> None:
    small = ROOFLINE.model_copy(update={"memory_ms": 0.001})
    evaluation = correct(0.01).model_copy(update={"roofline": small})

    assert "launch" == evaluation.bound


@pytest.mark.parametrize(
    ("latency_ms", "headroom", "near"),
    [(0.012, 0.2, False), (0.0104, 0.04, True), (0.0096, 0.0, True), (0.009, 0.0, False)],
)
def test_near_the_roofline_is_at_most_5_percent_off_on_either_side(
    latency_ms: float, headroom: float, near: bool
) -> None:
    found = correct(latency_ms)

    assert pytest.approx(headroom) == found.headroom
    assert math.ceil(100 * headroom - 1e-6) == found.headroom_percent
    assert near == found.near_roofline


def test_a_roofline_that_is_not_confirmed_counts_for_nothing() -> None:
    near = correct(0.0104)
    unsure = ROOFLINE.model_copy(update={"is_confirmed": False})
    found = near.model_copy(update={"roofline": unsure})

    assert near.near_roofline
    assert not found.near_roofline
    assert found.roofline_fraction is None
