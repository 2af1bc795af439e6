"""What is shown of a problem with cases: the objective, then each case."""

from __future__ import annotations

import ast

from report_samples import CANDIDATE, RUN, node_of_source, reference, text_of

from stark.core.candidate import Candidate
from stark.core.evaluation import Evaluation
from stark.evaluating import Judged, shortfall
from stark.report.attempt_document import judgement
from stark.report.evaluation_document import evaluation_document
from stark.report.evaluations import judged_text
from stark.report.junit import junit_xml
from stark.report.kernel import kernel_file
from stark.report.node import judgement_table
from support import cases
from support.nodes import failure

LATENCIES_MS = {"decode": 0.5, "prefill": 16.0}
FOUND = cases.correct_in(LATENCIES_MS)
FAILED = failure("incorrect").model_copy(update={"case": "prefill"})


def judged(evaluation: Evaluation) -> Judged:
    candidate = Candidate(language="cpp", source=CANDIDATE)
    return Judged(file="a.py", candidate=candidate, evaluation=evaluation)


def test_a_judged_file_has_a_row_for_each_case() -> None:
    said = text_of(judged_text(cases.PROBLEM, cases.reference(), [judged(FOUND)]))

    rows = [line.split() for line in said.splitlines()]
    table = [row for row in rows if row and row[0] in ("a.py", "decode", "prefill")]
    assert [("a.py", "1.68x"), ("decode", "2.00x"), ("prefill", "1.00x")] == [
        (row[0], next(cell for cell in row if cell.endswith("x"))) for row in table
    ]


def test_a_failure_names_its_case() -> None:
    said = text_of(judged_text(cases.PROBLEM, cases.reference(), [judged(FAILED)]))

    assert "case prefill: output 0: relative error 0.31" in said
    assert "case prefill: output 0" in junit_xml(cases.PROBLEM, [judged(FAILED)], {})
    assert "prefill" == evaluation_document(FAILED).case


def test_an_attempt_is_shown_over_all_cases_and_in_each() -> None:
    said = " ".join(text_of(judgement_table(judgement(FOUND, None))).split())

    assert "objective weighted geometric mean of 2 cases latency 1.19 ms (geometric mean)" in said
    assert (
        "eager 2.00 ms beside the kernel; weighted geometric mean of 2 cases: 1.68x vs eager"
        in said
    )
    assert "case decode weight 3 latency 500 µs (median of" in said
    assert "case prefill weight 1 latency 16.0 ms (median of" in said
    assert "eager 16.0 ms beside the kernel; median of paired ratios: 1.00x vs eager" in said


def test_a_required_speedup_is_that_of_the_objective() -> None:
    worst = cases.correct_in(LATENCIES_MS, "worst")

    assert shortfall(FOUND, 1.6, "eager") is None
    assert shortfall(worst, 1.6, "eager") == (
        "1.00x vs eager [1.00, 1.00]: the lower end is below the required 1.6x"
    )


def test_a_kernel_file_states_each_case() -> None:
    node = node_of_source(CANDIDATE).model_copy(update={"evaluation": FOUND})

    said = ast.get_docstring(ast.parse(kernel_file(RUN, node, cases.reference())))

    assert said is not None
    for fact in (
        "Speedup:   1.68x vs eager [1.68, 1.68], faster (unconfirmed) (95 % interval, weighted geometric mean of 2 cases)",
        "- decode:  500 µs; the reference in eager mode takes 1.00 ms; 2.00x vs eager",
        "- prefill: 16.0 ms; the reference in eager mode takes 16.0 ms; 1.00x vs eager",
        "the forward pass on float32[8, 256] and on float32[1024, 256]; no other shapes",
    ):
        assert fact in said
    assert "Latency" not in said
    assert "Latency" in kernel_file(RUN, node_of_source(CANDIDATE), reference())
