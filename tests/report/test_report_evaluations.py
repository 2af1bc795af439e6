"""Judged files on a screen: what each spends its time on."""

from __future__ import annotations

from report_samples import CANDIDATE, reference
from rich.console import Console

from stark.core.candidate import Candidate
from stark.core.problem import Problem
from stark.report.document import evaluation_summary
from stark.report.evaluations import Judged, judged_text
from stark.testing.nodes import PROFILE, correct, failure

PROFILED = correct(0.5).model_copy(update={"profile": PROFILE})


def judged(*names: str) -> str:
    candidate = Candidate(language="cpp", source=CANDIDATE)
    files = [Judged(name, candidate, PROFILED) for name in names]
    console = Console(width=200, markup=False)
    with console.capture() as capture:
        console.print(judged_text(Problem(name="linear", source=""), reference(), files))
    return capture.get()


def test_a_single_file_is_told_with_its_whole_profile() -> None:
    said = judged("a.py")

    assert "a.py: bottleneck: latency: neither memory" in said
    assert "- 75% scale_kernel" in said


def test_of_several_files_only_what_binds_each_is_told() -> None:
    said = judged("a.py", "b.py")

    assert "a.py: latency: neither memory" in said and "b.py: latency: neither memory" in said
    assert "scale_kernel" not in said


def test_programs_get_the_bottleneck_by_its_kind() -> None:
    summary = evaluation_summary(PROFILED)

    assert "latency" == summary["bottleneck"]["kind"]
    assert evaluation_summary(correct(0.5))["bottleneck"] is None
    assert evaluation_summary(failure("incorrect"))["bottleneck"] is None
