from __future__ import annotations

from pathlib import Path

import pytest
from cli_samples import BETTER, BROKEN, GOOD, Stark, candidate_source, verdict

from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable
from stark.core.evaluation import Evaluation
from stark.languages import LANGUAGES
from stark.testing.executor import FakeExecutor
from stark.testing.nodes import CPU


@pytest.fixture(autouse=True)
def candidates(workplace: Path) -> None:
    (workplace / "kernels").mkdir()
    (workplace / "kernels" / "a.py").write_text(candidate_source(GOOD))
    (workplace / "kernels" / "b.py").write_text(candidate_source(BETTER))
    (workplace / "broken.py").write_text(candidate_source(BROKEN))


def test_correct_files_exit_0(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "kernels")

    assert 0 == ended.code
    assert {"cpp"} == {candidate.language for candidate in executor.promoted}
    assert "2.00x" in ended.out and "4.00x" in ended.out
    assert executor.closed


def test_one_failure_exits_1_with_its_evidence(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "kernels/a.py", "broken.py")

    assert 1 == ended.code
    assert "relative error 0.31 is over its budget" in ended.out


def test_the_sandbox_that_held_them_all_is_told(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = iter([("limits", "network", "seccomp"), ("limits", "seccomp"), ()])

    def held(candidate: Candidate) -> Evaluation:
        return verdict(candidate).model_copy(update={"sandbox": next(layers)})

    executor = FakeExecutor(held, device=CPU)
    monkeypatch.setattr("stark.cli.evaluating.open_executor", lambda *_: executor)

    both = stark("evaluate", "problem.py", "kernels")
    none = stark("evaluate", "problem.py", "broken.py")

    assert "sandbox: limits, seccomp" == both.out.splitlines()[-1]
    assert "sandbox" not in none.out


def test_json(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "kernels/b.py", "--json")

    (candidate,) = ended.document["candidates"]
    assert ("kernels/b.py", "cpp", "correct") == tuple(
        candidate[key] for key in ("file", "language", "status")
    )
    assert pytest.approx(4.0) == candidate["speedups"]["eager"]["ratio"]


def test_a_judge_that_cannot_be_had_is_told_in_a_sentence(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(candidate: Candidate) -> Evaluation:
        raise JudgeUnavailable("the judge died")

    executor = FakeExecutor(unavailable, device=CPU)
    monkeypatch.setattr("stark.cli.evaluating.open_executor", lambda *_: executor)

    ended = stark("evaluate", "problem.py", "kernels")

    assert (2, "error: the judge died\n") == (ended.code, ended.err)
    assert executor.closed


def test_a_language_can_be_named(stark: Stark, executor: FakeExecutor) -> None:
    stark("evaluate", "problem.py", "broken.py", "--language", "cpp")

    assert ["cpp"] == [candidate.language for candidate in executor.promoted]


@pytest.mark.parametrize("notation", ["local", "folder:queue", "local:cuda:0"])
def test_the_language_is_what_the_source_is_in(
    stark: Stark, executor: FakeExecutor, notation: str
) -> None:
    stark("evaluate", "problem.py", "broken.py", "--executor", notation)

    assert ["cpp"] == [candidate.language for candidate in executor.promoted]


def test_of_several_languages_it_is_the_one_that_the_device_can_run(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, workplace: Path
) -> None:
    source = candidate_source(GOOD) + "\nload_inline = tvm_ffi.cpp.load_inline\n"
    assert None is LANGUAGES["cpp"].check(source) is LANGUAGES["cuda"].check(source)
    (workplace / "either.py").write_text(source)
    on_gpu, on_cpu = FakeExecutor(), FakeExecutor(device=CPU)

    for executor in (on_gpu, on_cpu):
        monkeypatch.setattr("stark.cli.evaluating.open_executor", lambda *_, e=executor: e)
        stark("evaluate", "problem.py", "either.py")

    assert ["cuda"] == [candidate.language for candidate in on_gpu.promoted]
    assert ["cpp"] == [candidate.language for candidate in on_cpu.promoted]


def test_a_language_that_the_judges_device_cannot_run_is_refused(
    stark: Stark, executor: FakeExecutor
) -> None:
    ended = stark("evaluate", "problem.py", "broken.py", "--language", "cuda")

    assert (2, []) == (ended.code, executor.promoted)
    assert (
        f"error: broken.py is a candidate in cuda, which the judge's {CPU.name} cannot run; "
        "choose another judge with --executor, or judge candidates in cpp\n"
    ) == ended.err
    assert executor.closed


def test_an_effort_that_there_is_not(stark: Stark) -> None:
    ended = stark("evaluate", "problem.py", "kernels", "--effort", "maximal")

    assert 2 == ended.code
    assert "use search or promote" in ended.out + ended.err


def test_what_to_beware_of_is_told_before_anything_runs(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(candidate: Candidate) -> Evaluation:
        raise JudgeUnavailable("the judge died")

    executor = FakeExecutor(unavailable, device=CPU, warnings=("it can reach the network",))
    monkeypatch.setattr("stark.cli.evaluating.open_executor", lambda *_: executor)

    ended = stark("evaluate", "problem.py", "kernels")

    assert "it can reach the network\n" == ended.out
