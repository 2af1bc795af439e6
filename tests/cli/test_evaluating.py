from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_samples import BETTER, BROKEN, GOOD, Stark, candidate_source, verdict

from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable
from stark.core.evaluation import Evaluation
from stark.languages import LANGUAGES
from support.executor import FakeExecutor
from support.nodes import CPU, correct, measurement


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


def test_gradients_can_be_asked_for(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = []
    describe = executor.describe
    monkeypatch.setattr(
        executor, "describe", lambda problem: described.append(problem) or describe(problem)
    )

    stark("evaluate", "problem.py", "kernels", "--backward")
    stark("evaluate", "problem.py", "kernels")

    assert [True, False] == [problem.declared.backward for problem in described]


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
    monkeypatch.setattr("stark.configuration.open_executor", lambda *_, **__: executor)

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
    monkeypatch.setattr("stark.configuration.open_executor", lambda *_, **__: executor)

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
    source = candidate_source(GOOD) + "\nload_inline = tvm_ffi.cpp.load_inline\nNOTE = 'CUDA'\n"
    assert None is LANGUAGES["cpp"].check(source) is LANGUAGES["cuda"].check(source)
    (workplace / "either.py").write_text(source)
    on_gpu, on_cpu = FakeExecutor(), FakeExecutor(device=CPU)

    for executor in (on_gpu, on_cpu):
        monkeypatch.setattr("stark.configuration.open_executor", lambda *_, e=executor, **__: e)
        stark("evaluate", "problem.py", "either.py")

    assert ["cuda"] == [candidate.language for candidate in on_gpu.promoted]
    assert ["cpp"] == [candidate.language for candidate in on_cpu.promoted]


def test_a_language_that_the_judges_device_cannot_run_is_unusable(
    stark: Stark, executor: FakeExecutor
) -> None:
    ended = stark("evaluate", "problem.py", "broken.py", "--language", "cuda")

    assert (1, []) == (ended.code, executor.promoted)
    assert f"written in cuda, which the judge's device ({CPU.name}) cannot run" in ended.out
    assert executor.closed


def test_a_language_that_does_not_exist_is_refused(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "broken.py", "--language", "rust")

    assert 2 == ended.code
    assert "choose one of cpp, triton, cuda" in ended.err


def test_bad_files_in_a_folder_do_not_block_the_others(
    stark: Stark, executor: FakeExecutor, workplace: Path
) -> None:
    (workplace / "kernels" / "empty.py").write_text("")
    (workplace / "kernels" / "latin.py").write_bytes(b"# caf\xe9")
    (workplace / "kernels" / "plain.py").write_text("import torch")

    ended = stark("evaluate", "problem.py", "kernels", "--json")

    found = {Path(c["file"]).name: c for c in ended.document["candidates"]}
    statuses = {name: candidate["status"] for name, candidate in found.items()}
    assert {
        "a.py": "correct",
        "b.py": "correct",
        "empty.py": "unusable",
        "latin.py": "unusable",
        "plain.py": "unusable",
    } == statuses
    assert (1, 2) == (ended.code, len(executor.promoted))
    no_model = "The file does not define a class ModelNew at its top level."
    assert no_model == found["empty.py"]["evidence"]
    assert "cannot be read as UTF-8 text" in found["latin.py"]["evidence"]
    assert "does not define a class ModelNew" in found["plain.py"]["evidence"]
    assert None is found["plain.py"]["language"]


def test_a_file_that_does_not_exist_is_an_error(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("evaluate", "problem.py", "kernels", "missing.py")

    assert (2, "error: there is no file missing.py\n") == (ended.code, ended.err)


# A required speedup.


@pytest.mark.parametrize(("least", "code"), [("2.0", 0), ("2.1", 1)])
def test_a_required_speedup_counts_the_lower_end(
    stark: Stark, executor: FakeExecutor, least: str, code: int
) -> None:
    ended = stark("evaluate", "problem.py", "kernels", "--min-speedup", least)

    assert code == ended.code
    short = "kernels/a.py: 2.00x vs eager [2.00, 2.00]: the lower end is below the required 2.1x"
    assert (code == 1) == (short in ended.out)
    assert "kernels/b.py: 4.00x" not in ended.out


def test_a_speedup_over_torch_compile_can_be_required(stark: Stark, executor: FakeExecutor) -> None:
    against = ("--min-speedup", "2", "--against", "compile")

    ended = stark("evaluate", "problem.py", "kernels", *against)

    assert 1 == ended.code
    assert "vs compile" in ended.out and "3.20x" in ended.out
    assert "a.py: 1.60x vs compile [1.60, 1.60]: the lower end is below" in ended.out


def test_what_was_not_measured_is_not_fast_enough(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_eager = correct(0.5).model_copy(update={"references": {"eager": measurement(1.0)}})
    executor = FakeExecutor(lambda _: only_eager, device=CPU)
    monkeypatch.setattr("stark.configuration.open_executor", lambda *_, **__: executor)
    against = ("--min-speedup", "1", "--against", "compile")

    ended = stark("evaluate", "problem.py", "kernels", *against)

    assert 1 == ended.code
    assert "compile was not measured" in ended.out


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("--against", "triton"), "--against is 'triton'; use eager or compile"),
        (
            ("--min-speedup", "1", "--against", "compile", "--effort", "search"),
            "--effort search does not time torch.compile",
        ),
        (
            ("--junit", "/proc/x/report.xml"),
            "written to /proc/x: No such file or directory; choose another --junit",
        ),
    ],
)
def test_demands_that_cannot_be_met_are_refused(
    stark: Stark, executor: FakeExecutor, options: tuple[str, ...], fault: str
) -> None:
    ended = stark("evaluate", "problem.py", "kernels", *options)

    assert 2 == ended.code
    assert fault in ended.err


def test_a_report_for_ci_is_written(stark: Stark, executor: FakeExecutor, workplace: Path) -> None:
    ended = stark("evaluate", "problem.py", "kernels", "broken.py", "--junit", "report.xml")

    assert 1 == ended.code
    suite = ElementTree.parse(workplace / "report.xml").getroot()
    assert ("3", "1") == (suite.get("tests"), suite.get("failures"))


def test_results_are_shown_before_a_report_that_can_no_longer_be_written(
    stark: Stark, monkeypatch: pytest.MonkeyPatch, workplace: Path
) -> None:
    def verdict_and_folder(candidate: Candidate) -> Evaluation:
        (workplace / "report.xml").mkdir(exist_ok=True)
        return verdict(candidate)

    fake = FakeExecutor(verdict_and_folder, device=CPU)
    monkeypatch.setattr("stark.configuration.open_executor", lambda *_, **__: fake)

    ended = stark("evaluate", "problem.py", "kernels", "--junit", "report.xml")

    assert 2 == ended.code
    assert "vs eager" in ended.out
    assert "report.xml: Is a directory; choose another --junit" in ended.err


def test_a_notice_is_a_line_where_there_is_no_terminal(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*arguments: object, **_: object) -> FakeExecutor:
        on_notice = arguments[-1]
        assert callable(on_notice)

        def waited(candidate: Candidate) -> Evaluation:
            on_notice("waiting for another judge on cpu")
            on_notice("")
            return verdict(candidate)

        return FakeExecutor(waited, device=CPU)

    monkeypatch.setattr("stark.configuration.open_executor", opened)

    ended = stark("evaluate", "problem.py", "broken.py")

    assert "waiting for another judge on cpu" == ended.out.splitlines()[0]


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
    monkeypatch.setattr("stark.configuration.open_executor", lambda *_, **__: executor)

    ended = stark("evaluate", "problem.py", "kernels")

    assert "it can reach the network\n" == ended.out
