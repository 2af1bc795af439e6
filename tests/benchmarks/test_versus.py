from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from versus import theirs
from versus.cases import Case, cases
from versus.ours import finding_of, schedule
from versus.results import FAILED, Finding, Results, read
from versus.tables import pairs, report, summary

from evaluator import input_bytes
from stark.core.evaluation import Incorrect
from stark.core.problem import Problem
from stark.languages import language

FAST = Case("level1/88", "triton", "correct")
BIG = Case("level1/19", "triton", "correct")
WRONG = Case("level2/12", "cuda", "wrong")

CASES = [*cases("cpu"), *cases("cuda:0")]


def results_of(**kinds: dict[Case, Finding]) -> Results:
    results = Results(large={BIG.spec: True, FAST.spec: False, WRONG.spec: False})
    for kind, found in kinds.items():
        results.judged(kind).update({str(case): one for case, one in found.items()})
    return results


def both_judged() -> Results:
    return results_of(
        alone={
            FAST: Finding("correct", 1.0, first=True, beyond_s=0.9),
            BIG: Finding("correct", 3.0, first=True, beyond_s=0.9),
            WRONG: Finding("incorrect", 1.0, beyond_s=0.25),
        },
        theirs={
            FAST: Finding("correct", 5.0),
            BIG: Finding("correct", 60.0),
            WRONG: Finding("incorrect", 35.0, process_s=41.5),
        },
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_candidate_is_what_it_is_called(case: Case) -> None:
    source = case.candidate.source
    assert "VARIANT" not in source
    if case.variant == "unparsable":
        with pytest.raises(SyntaxError):
            ast.parse(source)
    else:
        assert language(case.candidate.language).check(source) is None


def test_a_broken_kernel_differs_from_the_correct_one() -> None:
    for case in CASES:
        correct = Case(case.spec, case.route, "correct")
        same = case.candidate.source == correct.candidate.source
        assert (case.variant == "correct") == same, case


def test_a_variant_that_the_kernel_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="no edit makes one"):
        _ = Case("level1/88", "triton", "unbuildable").candidate


def test_a_gpu_gets_every_level_route_and_kind() -> None:
    found = cases("cuda:0")
    assert len(found) >= 30
    assert len(found) == len(set(found))
    assert {case.level for case in found} == {"level 1", "level 2", "level 3"}
    assert {case.route for case in found} == {"triton", "cuda", "load_inline"}
    assert {case.expected for case in found} == {"correct", "incorrect", "build_failed", "crashed"}


def test_long_builds_are_asked_for_first_and_problems_stay_together() -> None:
    inline = Case("level1/1", "load_inline", "correct")
    beside = Case("level1/1", "cuda", "correct")
    ahead, batches = schedule([WRONG, inline, FAST, beside, BIG])
    assert [inline] == ahead
    assert [[BIG], [FAST], [WRONG], [beside]] == batches


def test_what_is_neither_build_nor_run_is_what_the_phases_leave() -> None:
    found = Incorrect(error="all of it", seconds={"build": 1.0, "verify": 0.5})
    finding = finding_of(found, 1.75, first=False)
    assert finding == Finding("incorrect", 1.75, "all of it", beyond_s=0.25)


def test_their_results_in_our_words() -> None:
    def of(compiled: bool, correct: bool, *errors: str) -> str:
        return theirs.verdict({"compiled": compiled, "correct": correct, "errors": [*errors]})

    assert of(True, True) == "correct"
    assert of(True, False, "correctness_issue") == "incorrect"
    assert of(True, False, "runtime_error", "runtime_error_name") == "crashed"
    assert of(False, False, "cuda_error") == "crashed"
    assert of(False, False, "compilation_error_name") == "build_failed"


def test_theirs_stops_when_the_time_is_up_and_goes_on_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = Problem(name="any", source="")
    problems = {case.spec: problem for case in (FAST, BIG)}
    asked: list[Case] = []

    def ask(checkout: Path, device: str, case: Case, problem: Problem, left_s: float):  # type: ignore[no-untyped-def]
        asked.append(case)
        return Finding("correct", 2.0) if len(asked) != 2 else None

    def judge(results: Results, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        theirs.judge(tmp_path, "cuda:0", results, [FAST, BIG], problems, deadline, ask)

    path = tmp_path / "found.json"
    first = read(path)
    judge(first)
    assert [FAST, BIG] == asked
    assert {str(FAST)} == set(first.theirs)
    assert "time is up" in capsys.readouterr().out

    judge(read(path), seconds=-1.0)
    assert [FAST, BIG] == asked

    later = read(path)
    judge(later)
    assert [FAST, BIG, BIG] == asked
    assert {str(FAST), str(BIG)} == set(read(path).theirs)


def test_an_evaluator_that_failed_is_asked_again_and_not_compared() -> None:
    results = both_judged()
    results.theirs[str(BIG)] = Finding(FAILED, 3.0, "no wheel")
    assert [BIG] == results.missing("theirs", [FAST, BIG])
    assert [FAST, WRONG] == [pair.case for pair in pairs(results, [FAST, BIG, WRONG])]


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    results = both_judged()
    results.path = tmp_path / "found.json"
    results.together_s = 4.5
    results.note("something")
    assert results == read(results.path)


def test_totals_ratios_and_groups() -> None:
    said = report(both_judged(), [FAST, BIG, WRONG])
    assert (
        "| level1/19 | triton | correct | correct | correct | 3.00 | correct | 60.00 | 20.0 |"
        in said
    )
    assert "| large inputs | 1 | 3.0 | 60.0 | 20.0 | 1 |" in said
    assert "| all | 3 | 5.0 | 100.0 | 20.0 | 3 |" in said
    assert "- one at a time: ours 5.0 s, theirs 100.0 s: 20.0 times" in said
    assert "KernelBench's processes took 41.5 s" in said
    assert "disagreements on whether a candidate is correct: none" in said
    assert "level1/88 1.00 s including preparing the problem" in said
    assert "besides build and run: median 0.25 s, maximum 0.25 s (1 candidates)" in said


def test_all_at_once_has_a_ratio_only_when_both_have_judged_all() -> None:
    results = both_judged()
    results.together_s = 5.0
    chosen = [FAST, BIG, WRONG]
    assert any("no ratio" in line for line in summary(results, chosen))
    results.together.update({str(case): Finding("correct", 1.0) for case in chosen})
    assert any("theirs 100.0 s: 20.0 times" in line for line in summary(results, chosen))


def test_a_disagreement_and_an_unexpected_verdict_are_named() -> None:
    results = both_judged()
    results.theirs[str(WRONG)] = Finding("correct", 2.0)
    said = "\n".join(summary(results, [FAST, BIG, WRONG]))
    assert f"{WRONG}: ours incorrect, theirs correct" in said
    assert f"theirs, unexpected verdicts: {WRONG}: correct, not incorrect" in said


def test_another_way_to_fail_is_no_disagreement() -> None:
    results = both_judged()
    results.theirs[str(WRONG)] = Finding("build_failed", 2.0)
    assert "is correct: none" in "\n".join(summary(results, [FAST, BIG, WRONG]))


def test_the_size_of_inputs_is_found_without_making_them() -> None:
    source = "import torch\nn = 1 << 40\ndef get_inputs():\n    return [torch.rand(n), 3.5]\n"
    assert input_bytes(Problem(name="huge", source=source)) == 4 << 40


def theirs_by(child: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_s: float = 60.0):  # type: ignore[no-untyped-def]
    """What becomes of a process that does this in the place of KernelBench's."""
    script = tmp_path / "child.py"
    script.write_text("import json, os, sys, time\nfrom pathlib import Path\n" + child)
    monkeypatch.setattr(theirs, "CHILD", script)
    monkeypatch.setattr(theirs, "LIMIT_S", 1.0)
    return theirs.evaluate(tmp_path, "cuda:0", WRONG, Problem(name="any", source=""), left_s)


def test_the_answer_of_their_process_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = """
asked = json.loads(Path(sys.argv[1]).read_text())
assert asked["backend"] == "cuda" and "scaled_leaky_relu" in asked["candidate"]
assert os.environ["TRITON_CACHE_DIR"].startswith(asked["folder"])
answer = {"seconds": 0.25, "compiled": True, "correct": False, "errors": [], "said": "Output mismatch"}
Path(asked["folder"], "answer.json").write_text(json.dumps(answer))
os.abort()
"""
    found = theirs_by(child, tmp_path, monkeypatch)
    assert (found.verdict, found.seconds, found.said) == ("incorrect", 0.25, "Output mismatch")
    assert found.process_s > 0.0


def test_a_process_of_theirs_that_dies_is_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = theirs_by("print('so long', flush=True)\nos.abort()", tmp_path, monkeypatch)
    assert found.verdict == "crashed"
    assert found.said == "died by signal 6: so long\n"


def test_a_process_of_theirs_that_fails_by_itself_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = theirs_by("import no_such_wheel", tmp_path, monkeypatch)
    assert found.verdict == FAILED
    assert "no_such_wheel" in found.said


@pytest.mark.slow
def test_their_limit_is_a_verdict_and_the_end_of_our_time_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = theirs_by("time.sleep(60)", tmp_path, monkeypatch)
    assert (found.verdict, found.seconds) == ("timed_out", 1.0)
    assert theirs_by("time.sleep(60)", tmp_path, monkeypatch, left_s=0.3) is None
