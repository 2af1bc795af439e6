"""Several cases in English."""

from __future__ import annotations

import pytest

from stark.explain.device import reference_text, signature_text
from stark.explain.evaluation import checked, evidence, explain, objective_text, reason
from support.cases import correct_in, reference, weighing
from support.nodes import PROFILE, failure

LATENCIES_MS = {"decode": 0.5, "prefill": 16.0}


def test_a_correct_kernel_has_a_line_for_each_case_and_names_the_one_behind() -> None:
    assert [
        "correct, weighted geometric mean of 2 cases: 1.68x vs eager [1.68, 1.68], faster (unconfirmed)",
        "1.35x vs compile [1.35, 1.35], faster (unconfirmed)",
        "- decode (weight 3): 0.5 ms, 2.00x vs eager [2.00, 2.00], 1.60x vs compile [1.60, 1.60]; "
        "2% of the roofline (memory-bound: estimate 0.01 ms); "
        "error 2e-07 (reference 1e-07, allowed 2e-05; meets reference)",
        "- prefill (weight 1): 16 ms, 1.00x vs eager [1.00, 1.00], 0.80x vs compile [0.80, 0.80]; "
        "0% of the roofline (memory-bound: estimate 0.01 ms); "
        "error 2e-07 (reference 1e-07, allowed 2e-05; meets reference)",
        "prefill has the smallest speedup of all cases",
    ] == evidence(correct_in(LATENCIES_MS)).splitlines()


def test_no_case_is_behind_where_the_intervals_overlap() -> None:
    assert "smallest" not in evidence(correct_in({"decode": 0.5, "prefill": 8.0}))


def test_the_objective_says_how_the_cases_count() -> None:
    equal = weighing().model_copy(update={"weights": {"a": 2.0, "b": 2.0, "c": 2.0}})

    assert "weighted geometric mean of 2 cases" == objective_text(weighing())
    assert "geometric mean of 3 cases" == objective_text(equal)
    assert "worst of 2 cases" == objective_text(weighing("worst"))


def test_each_case_has_its_profile() -> None:
    found = correct_in(LATENCIES_MS)
    prefill = found.cases["prefill"].model_copy(update={"profile": PROFILE})
    found = found.model_copy(update={"cases": found.cases | {"prefill": prefill}})

    said = explain(found)

    assert "\ncase prefill:\n  bottleneck: " in said
    assert "case decode:" not in said


@pytest.mark.parametrize("status", ["incorrect", "timed_out", "crashed", "build_failed"])
def test_a_failure_begins_with_its_case(status: str) -> None:
    plain = failure(status)
    found = plain.model_copy(update={"case": "prefill"})

    assert f"case prefill: {evidence(plain)}" == evidence(found)
    assert f"case prefill: {reason(plain)}" == reason(found)
    assert f": case prefill: {reason(plain)}" in checked(found)


def test_a_compilers_line_is_short_in_a_case_too() -> None:
    failed = failure("build_failed").model_copy(
        update={"error": "In file x\n/tmp/build/k.cpp:3: error: expected ;", "case": "decode"}
    )

    assert "case decode: k.cpp:3: error: expected ;" == reason(failed)


def test_the_reference_and_its_signature_are_those_of_each_case() -> None:
    said, signature = reference_text(reference()), signature_text(reference("worst"))

    decode, prefill = said.split("Case prefill:\n")
    assert decode.startswith("Case decode:\n- eager PyTorch takes 1 ms\n")
    assert prefill.startswith("- eager PyTorch takes 16 ms\n")
    assert "- decode (weight 3): inputs float32[8, 256]; outputs float32[8, 256]" in signature
    assert signature.endswith("The speedup that counts is the worst of 2 cases.")
