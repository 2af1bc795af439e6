"""Judged files on a screen: what each spends its time on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from report_samples import CANDIDATE, reference
from rich.console import Console

from stark.core.candidate import Candidate
from stark.core.evaluation import Correct
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluating import Judged
from stark.report.evaluation_document import evaluation_document
from stark.report.evaluations import judged_text
from support.nodes import PROFILE, correct, failure, measurement

PROFILED = correct(0.5).model_copy(update={"profile": PROFILE})


def judged(*names: str) -> str:
    candidate = Candidate(language="cpp", source=CANDIDATE)
    return table_of(Judged(file=name, candidate=candidate, evaluation=PROFILED) for name in names)


def test_a_single_file_is_told_with_its_whole_profile() -> None:
    said = judged("a.py")

    assert "a.py: bottleneck: latency in scale_kernel" in said
    assert "- 75% scale_kernel" in said


def test_of_several_files_only_what_binds_each_is_told() -> None:
    said = judged("a.py", "b.py")

    assert "a.py: latency in scale_kernel" in said and "b.py: latency in scale_kernel" in said
    assert "- 75% scale_kernel" not in said


def test_what_looked_for_memory_errors_is_said_to_have_found_none() -> None:
    sanitized = PROFILED.model_copy(update={"sanitized": ("memcheck",)})

    assert "; compute-sanitizer found no errors: memcheck" in " ".join(table(sanitized).split())
    assert "found no errors" not in table(PROFILED)


def test_programs_get_the_bottleneck_by_its_kind() -> None:
    summary = evaluation_document(PROFILED).model_dump(mode="json")

    assert "latency" == summary["bottleneck"]["kind"]
    assert evaluation_document(correct(0.5)).model_dump(mode="json")["bottleneck"] is None
    assert evaluation_document(failure("incorrect")).model_dump(mode="json")["bottleneck"] is None


def test_programs_get_the_errors_and_the_class() -> None:
    accuracy = evaluation_document(PROFILED).model_dump(mode="json")["accuracy"]

    assert (2e-7, 1e-7, 2e-5) == (
        accuracy["relative_rms"],
        accuracy["reference_relative_rms"],
        accuracy["budget"],
    )
    assert ("fp32-split", "reference") == (accuracy["precision"], accuracy["meets"])
    assert evaluation_document(failure("incorrect")).model_dump(mode="json")["accuracy"] is None


def test_every_correct_file_shows_its_errors_and_the_class() -> None:
    said = table(PROFILED)

    assert "error meets" in said
    assert "a.py: error 2e-07 (reference 1e-07, allowed 2e-05; meets reference)" in said


def test_an_interval_too_wide_to_rank_by_is_called_too_noisy() -> None:
    doubtful = measurement(0.5).model_copy(update={"resolution_ms": 0.4})
    noisy = PROFILED.model_copy(update={"candidate": doubtful})
    assert noisy.speedup_vs("eager").too_noisy

    assert "2.00x [1.11, 3.60], too noisy" in table(noisy)
    assert "2.00x [2.00, 2.00]" in table(PROFILED)


def test_torch_compile_has_a_column_where_it_was_timed() -> None:
    eager_only = {"eager": PROFILED.references["eager"]}
    without = PROFILED.model_copy(update={"references": eager_only})

    assert "vs compile" not in table(without)
    assert "1.60x [1.60, 1.60]" in table(PROFILED)
    assert "not measured" in table(PROFILED, without)


def test_a_share_is_of_the_runs_roofline() -> None:
    own = reference()
    half = own.roofline.model_copy(
        update={"memory_ms": own.roofline.memory_ms / 2, "compute_ms": own.roofline.compute_ms / 2}
    )
    files = [Judged(file="a.py", candidate=None, evaluation=PROFILED)]
    shares = [
        re.search(r" (\d+)% ", table_of(files, one).split("error meets")[1])
        for one in (own, own.model_copy(update={"roofline": half}))
    ]

    assert all(shares) and 2 == round(int(shares[0][1]) / int(shares[1][1]))  # type: ignore[index]


def test_a_file_name_is_whole_while_other_columns_can_be_left_out() -> None:
    name = "kernels/ma_rows_with_a_long_name.py"
    candidate = Candidate(language="cpp", source=CANDIDATE)
    files = [Judged(file=name, candidate=candidate, evaluation=PROFILED)]
    wide, narrow = table_of(files, width=200), table_of(files, width=120)

    assert "seconds" in wide and "seconds" not in narrow
    assert all(f"{name}  " in each for each in (wide, narrow))

    doubtful = measurement(0.5).model_copy(update={"resolution_ms": 0.4})
    noisy = PROFILED.model_copy(update={"candidate": doubtful})
    short = [Judged(file="rmsnorm_rows.py", candidate=candidate, evaluation=noisy)]
    assert "rmsnorm_rows.py  " in table_of(short, width=120)


def test_the_shapes_that_the_final_check_tried_are_named() -> None:
    checked = PROFILED.model_copy(
        update={"effort": "promote", "generalizes": True, "shapes_tried": ("N = 33",)}
    )

    assert "; also correct with N = 33; no other shapes were tried" in table(checked)
    assert "no other shapes were tried" in table(PROFILED.model_copy(update={"effort": "promote"}))
    assert "other shapes" not in table(PROFILED)


def table(*evaluations: Correct) -> str:
    candidate = Candidate(language="cpp", source=CANDIDATE)
    return table_of(
        Judged(file="a.py", candidate=candidate, evaluation=each) for each in evaluations
    )


def table_of(
    files: Iterable[Judged], own: Reference | None = None, width: int | None = None
) -> str:
    console = Console(width=width or 200, markup=False)
    problem = Problem(name="linear", source="")
    with console.capture() as capture:
        console.print(judged_text(problem, reference(), [*files], own, width))
    return capture.get()
