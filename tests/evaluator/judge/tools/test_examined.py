"""What tools that stand for NVIDIA's make of a correct candidate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from stark.core.evaluation import Correct, Incorrect
from stark.core.judging import Tools
from stark.core.profile import KernelCounters
from stark.evaluator.judge.tools import memory_errors, sanitizer
from stark.evaluator.judge.tools.examined import examined
from stark.evaluator.judge.tools.running import NotRun
from stark.explain.evaluation import explain
from support.nodes import PROFILE, correct

TARGET: Any = SimpleNamespace(language="cuda")
BOTH = Tools(counters=True, sanitizer=True)
COUNTED = KernelCounters(name="mine", time_ms=0.4, share=1.0, dram=0.9)

COUNTERS: Any = SimpleNamespace(of=None)


def candidate(effort: str = "promote") -> Correct:
    return correct(0.5).model_copy(update={"effort": effort, "profile": PROFILE})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was run, of tools that find nothing."""
    ran: list[str] = []

    def counters(_: object) -> tuple[KernelCounters, ...]:
        ran.append("counters")
        return (COUNTED,)

    def findings(_: object, check: str) -> list[str]:
        ran.append(check)
        return []

    monkeypatch.setattr(COUNTERS, "of", counters)
    monkeypatch.setattr(sanitizer, "findings", findings)
    return ran


def test_a_candidate_that_is_well_has_counters_and_is_told_to_be_clean(asked: list[str]) -> None:
    found = examined(candidate(), BOTH, TARGET, COUNTERS)

    assert ["counters", "memcheck", "racecheck", "synccheck"] == asked
    assert isinstance(found, Correct) and found.profile is not None
    assert (COUNTED,) == found.profile.counters
    assert found.seconds["tools"] >= 0
    said = explain(found)
    assert "compute-sanitizer found no errors: memcheck, racecheck, synccheck" in said
    assert "counters of mine (100%): memory is busy 90% of the time; DRAM 90%" in said


def test_nothing_runs_that_was_not_asked_for_and_the_sanitizer_at_promote_alone(
    asked: list[str],
) -> None:
    assert candidate() == examined(candidate(), Tools(), TARGET, COUNTERS)
    searched = candidate("search")
    assert searched == examined(searched, Tools(sanitizer=True), TARGET, COUNTERS)
    assert [] == asked
    examined(searched, BOTH, TARGET, COUNTERS)
    assert ["counters"] == asked


def test_a_finding_makes_it_incorrect_and_ends_the_checks(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def findings(_: object, check: str) -> list[str]:
        asked.append(check)
        return ["race in shared memory at mine in candidate.py:7"] if check == "racecheck" else []

    monkeypatch.setattr(sanitizer, "findings", findings)
    found = examined(candidate(), Tools(sanitizer=True), TARGET, COUNTERS)

    assert isinstance(found, Incorrect)
    assert ["memcheck", "racecheck"] == asked
    assert (
        "its outputs are correct, but compute-sanitizer's racecheck found:\n"
        "race in shared memory at mine in candidate.py:7"
    ) == found.error
    assert "tools" in found.seconds


def test_tools_that_do_not_run_leave_the_verdict_and_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_there(*_: object) -> Any:
        raise NotRun("there is no such tool")

    monkeypatch.setattr(COUNTERS, "of", not_there)
    monkeypatch.setattr(sanitizer, "findings", not_there)
    found = examined(candidate(), BOTH, TARGET, COUNTERS)

    assert isinstance(found, Correct) and () == found.sanitized
    assert "Nsight Compute gave no result: there is no such tool" in found.warnings
    assert "compute-sanitizer's memcheck gave no result: there is no such tool" in found.warnings


def test_after_a_tool_that_had_to_be_ended_nothing_else_is_run(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hanging(*_: object) -> Any:
        asked.append("hung")
        raise NotRun("it did not end within 120 s", ended=True)

    monkeypatch.setattr(sanitizer, "findings", hanging)
    found = examined(candidate(), BOTH, TARGET, COUNTERS)
    assert isinstance(found, Correct) and () == found.sanitized
    assert ["counters", "hung"] == asked
    monkeypatch.setattr(COUNTERS, "of", hanging)
    found = examined(candidate(), BOTH, TARGET, COUNTERS)
    assert isinstance(found, Correct) and ["counters", "hung", "hung"] == asked
    assert (
        "Nsight Compute gave no result, and no further tool was run: it did not end within 120 s"
        in found.warnings
    )


def test_what_triton_guards_itself_is_not_checked_there(asked: list[str]) -> None:
    found = examined(
        candidate(), Tools(sanitizer=True), SimpleNamespace(language="triton"), COUNTERS
    )  # type: ignore[arg-type]

    assert isinstance(found, Correct) and ("memcheck",) == found.sanitized


CPP: Any = SimpleNamespace(language="cpp")


def on_cpu(effort: str = "promote") -> Correct:
    found = candidate(effort)
    return found.model_copy(update={"device": found.device.model_copy(update={"kind": "cpu"})})


def test_on_a_cpu_nvidias_tools_are_not_run(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_errors, "findings", lambda _: [])
    found = examined(on_cpu(), BOTH, CPP, COUNTERS)

    assert isinstance(found, Correct) and [] == asked
    assert ("Nsight Compute was not run: it needs an NVIDIA GPU",) == found.warnings[-1:]
    assert memory_errors.CHECKS == found.sanitized
    assert "AddressSanitizer and UndefinedBehaviorSanitizer found no errors" in explain(found)


def test_on_a_cpu_the_final_check_of_cpp_looks_for_memory_errors_unless_told_not_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = "heap-buffer-overflow: read of 4 bytes at line 7 of the file (`x[-1]`)"
    monkeypatch.setattr(memory_errors, "findings", lambda _: [error])
    found = examined(on_cpu(), Tools(), CPP, COUNTERS)

    assert isinstance(found, Incorrect)
    assert (
        f"its outputs are correct, but a check for memory errors and undefined arithmetic found:\n{error}"
        == found.error
    )
    assert on_cpu() == examined(on_cpu(), Tools(sanitizer=False), CPP, COUNTERS)
    assert on_cpu("search") == examined(on_cpu("search"), Tools(), CPP, COUNTERS)
    assert on_cpu() == examined(on_cpu(), Tools(), TARGET, COUNTERS)  # CUDA C++ is not for a CPU
