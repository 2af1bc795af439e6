from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_samples import OPTIMIZE, Stark, verdict

from stark.core.candidate import Candidate
from stark.core.errors import JudgeUnavailable, ProblemError
from stark.core.evaluation import Effort, Evaluation
from stark.core.judging import Limits, Tools
from stark.core.problem import Problem
from stark.store import STORE, Store
from support.executor import FakeExecutor
from support.nodes import CPU, ROOFLINE, correct
from support.processes import eventually, is_gone, pids

THREE = [*OPTIMIZE, "--attempts", "3"]


def test_a_run_ends_with_its_tree_and_the_best_kernel(
    stark: Stark, executor: FakeExecutor, workplace: Path
) -> None:
    ended = stark(*THREE)

    (kernel,) = (workplace / ".stark" / "kernels").glob("problem_*.py")
    assert 0 == ended.code
    assert "attempt 2 repairs attempt 1" in ended.out
    assert "3 attempts: 2 correct, 1 incorrect; 1 failure debugged, 1 repaired" in ended.out
    assert "4.00x vs eager [3.95, 4.05], faster" in ended.out.replace(
        "[4.00, 4.00]", "[3.95, 4.05]"
    )
    assert f"kernel: .stark/kernels/{kernel.name}" in ended.out
    assert "price" in ended.out and "unknown" in ended.out and "$" not in ended.out
    assert kernel.read_text().count("# better") == 1
    assert executor.closed


def test_output_names_the_file(stark: Stark, executor: FakeExecutor, workplace: Path) -> None:
    assert 0 == stark(*THREE, "--output", "mine/kernel.py").code

    assert (workplace / "mine" / "kernel.py").is_file()
    assert not (workplace / ".stark" / "kernels").exists()


@pytest.mark.parametrize("store", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_store_that_would_be_gone_is_refused(
    stark: Stark, executor: FakeExecutor, store: str
) -> None:
    ended = stark(*THREE, "--store", store)

    assert (2, True) == (ended.code, f"the store {store} is in memory" in ended.err)
    assert 0 == len(executor.evaluated)


def test_an_output_that_cannot_be_written_is_refused_first(
    stark: Stark, executor: FakeExecutor
) -> None:
    ended = stark(*THREE, "--output", "/proc/x/kernel.py")

    assert (2, True) == (ended.code, "nothing can be written to /proc/x" in ended.err)
    assert "There are no runs yet" in stark("runs").out

    stark(*OPTIMIZE, "--attempts", "1")
    ended = stark("resume", "--attempts", "3", "--output", "/proc/x/kernel.py")

    assert 2 == ended.code
    assert 1 == len(executor.evaluated)


def test_without_a_correct_kernel_the_exit_code_is_1(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark(*OPTIMIZE, "--attempts", "1")

    assert 1 == ended.code
    assert "No correct kernel was found." in ended.out


def test_json_is_all_there_is_on_standard_output(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark(*THREE, "--json")

    document = ended.document
    assert ["incorrect", "correct", "correct"] == [a["status"] for a in document["attempts"]]
    assert 3 == document["best"]
    assert pytest.approx(4.0) == document["attempts"][2]["speedups"]["eager"]["ratio"]
    assert Path(document["kernel"]).is_file()
    spent = document["spent"]
    assert 0 < spent["unpriced_calls"] == spent["calls"]
    assert "attempt 3: correct" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["optimize", "resume"])
def test_a_dollar_limit_needs_a_known_price(
    stark: Stark, executor: FakeExecutor, command: str
) -> None:
    """The model behind `exec:` has no list price and reports neither tokens nor dollars."""
    begin = [*OPTIMIZE, "--attempts", "9"]
    if command == "resume":
        stark(*OPTIMIZE, "--attempts", "1")
        begin = ["resume", "last", "--attempts", "9"]

    refused = stark(*begin, "--dollars", "0.05")
    assert 2 == refused.code
    assert "the price of exec:scripted is unknown, so a dollar limit would not hold" in refused.err
    assert "set --price, such as 3/15" in refused.err and "set --unpriced" in refused.err

    ended = stark(*begin, "--dollars", "0.05", "--price", "3/15", "--json")
    spent = ended.document["spent"]
    assert "dollars" == ended.document["ended"]["kind"], ended.out
    assert 0.05 <= spent["dollars"] < 0.08, "by one call at most"
    assert 0 < spent["estimated_calls"]


@pytest.mark.slow
def test_unknown_prices_may_be_accepted(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark(*THREE, "--dollars", "0.05", "--unpriced")

    assert 0 == ended.code
    assert "price unknown" in ended.out and "ended: 3 attempts made" in ended.out
    assert 0 == stark("resume", "--attempts", "4").code, "they stay accepted"
    assert 2 == stark("resume", "--dollars", "1").code, "not for another limit"


@pytest.mark.slow
def test_the_estimate_comes_before_anything_else_happens(
    stark: Stark, executor: FakeExecutor
) -> None:
    said = stark(*THREE, "--price", "3/15", "--tokens", "900000").out.splitlines()

    assert said[2].startswith("estimate for 3 attempts: 6 model calls, ")
    assert ", $0.35, " in said[2] and said[2].endswith("limits: 3 attempts, 900,000 tokens")
    assert said[3].startswith("device: ")


@pytest.mark.slow
def test_a_dumb_terminal_gets_lines(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes any output a terminal to Rich
    monkeypatch.setenv("TERM", "dumb")

    assert "attempt 3: judging" in stark(*THREE).out


@pytest.mark.slow
def test_resume_spends_a_larger_budget(stark: Stark, executor: FakeExecutor) -> None:
    stark(*OPTIMIZE, "--attempts", "1")

    ended = stark("resume", "last", "--attempts", "3")

    assert 0 == ended.code
    assert "continues after 1 attempt" in ended.out
    assert 3 == len(executor.evaluated)


@pytest.mark.slow
def test_resume_stores_the_options_that_it_changes_and_keeps_the_others(
    stark: Stark, executor: FakeExecutor, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[Limits, Tools]] = []

    def open_executor(notation: str, limits: Limits, tools: Tools, *_: object) -> FakeExecutor:
        opened.append((limits, tools))
        return executor

    monkeypatch.setattr("stark.sessions.open_executor", open_executor)
    settings = workplace / "stark.toml"
    settings.write_text("build_s = 600\nmemory_gb = 8\n")
    stark(*OPTIMIZE, "--attempts", "1", "--sanitizer")
    settings.write_text("memory_gb = 32\n")

    assert 0 == stark("resume", "last", "--attempts", "2", "--counters", "--build-s", "60").code
    assert 0 == stark("resume", "last", "--attempts", "3", "--parallel", "2").code
    assert 0 == stark("resume", "last", "--attempts", "3", "--no-sanitizer").code

    began = (Limits(build_s=600, memory_gb=8), Tools(sanitizer=True))
    limits = Limits(build_s=60, memory_gb=8)
    checked = (limits, Tools(counters=True, sanitizer=True))
    changed = (limits, Tools(counters=True, sanitizer=False))
    assert [began, checked, checked, changed] == opened
    with Store.open(STORE) as store:
        config = store.run("last").config
    assert (3, 2, *changed) == (
        config.budget.attempts,
        config.parallel,
        config.limits,
        config.tools,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (("--attempts", "2"), "a limit of 2 attempts is less than the 3 that run problem-"),
        (("--minutes", "1e-9"), "a limit of 1e-09 minutes is less than the "),
    ],
)
def test_resume_refuses_a_limit_below_what_is_used(
    stark: Stark, executor: FakeExecutor, limit: tuple[str, str], said: str
) -> None:
    stark(*THREE)

    ended = stark("resume", "last", *limit)

    assert (2, True) == (ended.code, said in ended.err), ended.err
    assert {"attempts": 3, "minutes": None}.items() <= stark("show", "--json").document["run"][
        "config"
    ]["budget"].items()


def test_resume_tells_the_models_that_it_asks(stark: Stark, executor: FakeExecutor) -> None:
    stark(*OPTIMIZE, "--attempts", "1")

    ended = stark("resume", "--attempts", "3", "--code-model", "exec[other]:sh model.sh")

    models = "exec[scripted]:sh model.sh (plan, debug); exec[other]:sh model.sh (code)"
    assert 2 == ended.out.count(models), ended.out
    assert 0 == stark("resume").code


def test_resume_with_the_budget_used_says_so(stark: Stark, executor: FakeExecutor) -> None:
    stark(*THREE)

    ended = stark("resume")

    assert "ended: 3 attempts made" in ended.out
    assert 3 == len(executor.evaluated)


@pytest.mark.slow
def test_a_run_that_stopped_by_itself_goes_on_to_its_budget_when_it_is_told_to(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def evaluate(*_: object) -> Evaluation:
        return correct(1.02 * ROOFLINE.floor_ms)

    monkeypatch.setattr(executor, "evaluate", evaluate)
    assert "ended: within 2 % of the roofline" in stark(*THREE, "--stop", "auto").out
    assert "ended: within 2 % of the roofline" in stark("resume").out

    assert "ended: 3 attempts made" in stark("resume", "--stop", "budget").out


class InterruptedExecutor(FakeExecutor):
    """Is asked about a good candidate when someone ends the run."""

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        if "# good" in candidate.source:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(30)
        return await super().evaluate(problem, candidate, effort)


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(
    stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    executors = [InterruptedExecutor(verdict, device=CPU), FakeExecutor(verdict, device=CPU)]
    left = iter(executors)
    monkeypatch.setattr("stark.sessions.open_executor", lambda *_, **__: next(left))
    stopped = stark(*THREE)
    (run_id,) = {word.strip("`") for word in stopped.err.split() if word.startswith("problem-")}
    resumed = stark("resume", run_id)

    assert 130 == stopped.code
    assert executors[0].closed
    assert (
        f"1 attempt is stored (0 correct); `stark resume {run_id}` continues the run" in stopped.err
    )
    assert "error" not in stopped.err
    assert 0 == resumed.code
    assert "3 attempts: 2 correct, 1 incorrect" in resumed.out


@pytest.mark.slow
def test_an_interrupted_run_waits_for_the_reply_that_it_pays_for(
    stark: Stark, executor: FakeExecutor, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH", str(os.getpid()))
    script = (workplace / "model.sh").read_text()
    (workplace / "model.sh").write_text(
        script.replace(
            "printf", "test -e asked || kill -INT $SEARCH; touch asked; sleep 0.2; printf"
        )
    )

    stopped = stark(*THREE)

    assert 130 == stopped.code
    assert "stopping: waiting for replies that are charged in any case" in stopped.out
    assert "interrupted\n0 attempts are stored (0 correct); `stark resume problem-" in stopped.err
    with Store.open(STORE) as store:
        run = store.run("last").id
        assert [(1, "plan")] == [(call.attempt, call.role) for call in store.calls(run)]
    assert 0 == stark("resume").code
    with Store.open(STORE) as store:
        assert [] == store.lost_calls(run)
        assert 5 == len(store.calls(run))


def test_a_model_for_a_role_that_the_strategy_lacks_is_refused_as_a_flag_alone(
    stark: Stark, executor: FakeExecutor, workplace: Path
) -> None:
    (workplace / "stark.toml").write_text('plan_model = "exec:exit 3"\n')
    sampling = ["--language", "cpp", "--strategy", "sampling", "--model", "exec:sh model.sh"]
    began = stark("optimize", "problem.py", *sampling, "--attempts", "2")
    assert 0 == began.code, began.err
    (workplace / "stark.toml").unlink()

    refused = stark("optimize", "problem.py", *sampling, "--plan-model", "exec:sh model.sh")
    resumed = stark("resume", "--attempts", "3", "--plan-model", "exec:sh model.sh")

    for each in (refused, resumed):
        said = "the strategy sampling has no plan role, so leave out its model"
        assert (2, True) == (each.code, said in each.err), each.err
    assert 2 == len(executor.evaluated)


def test_a_model_that_fails_leaves_a_run_to_resume(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark("optimize", "problem.py", "--language", "cpp", "--model", "exec:exit 3")

    assert 2 == ended.code
    assert "error: exec:exit exited with status 3" in ended.err
    assert "2 attempts are stored (0 correct); `stark resume problem-" in ended.err
    assert "` continues the run, once the model works or with another --model" in ended.err

    assert 0 == stark("resume", "--attempts", "4", "--model", "exec:sh model.sh").code


def test_prompts_have_the_limit_that_is_given(stark: Stark, executor: FakeExecutor) -> None:
    assert 0 == stark(*THREE, "--window-tokens", "3300").code

    document = stark("show", "last", "3", "--json").document
    assert {3300} == {call["fit"]["limit_tokens"] for call in document["calls"]}


def test_a_limit_that_holds_no_prompt_is_refused(stark: Stark, executor: FakeExecutor) -> None:
    ended = stark(*THREE, "--window-tokens", "50")

    assert 2 == ended.code
    assert "start a run with a larger window_tokens" in ended.err
    assert "There are no runs yet" in stark("runs").out


def test_a_language_that_the_judge_cannot_run_leaves_no_run(
    stark: Stark, executor: FakeExecutor
) -> None:
    stark(*OPTIMIZE, "--attempts", "1")
    ended = stark(*THREE, "--language", "triton")

    assert 2 == ended.code
    assert "triton kernels do not run on the judge's Invented CPU" in ended.err
    assert "resume" not in ended.err
    assert 1 == len(stark("runs", "--json").document["runs"])


def test_a_judge_that_cannot_start_leaves_nothing_to_resume(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise JudgeUnavailable("the judge could not start")

    monkeypatch.setattr(executor, "describe", fail)
    ended = stark(*THREE)

    assert 2 == ended.code
    assert "the run had not begun, so nothing is stored; run the same command again" in ended.err
    assert "There are no runs yet" in stark("runs").out


def test_a_refused_problem_is_not_to_be_resumed(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise ProblemError("the reference is random")

    monkeypatch.setattr(executor, "describe", refuse)
    ended = stark(*THREE)

    assert (2, "error: the reference is random\n") == (ended.code, ended.err)
    assert "There are no runs yet" in stark("runs").out


@pytest.mark.slow
def test_a_replay_follows_its_recording(stark: Stark, executor: FakeExecutor) -> None:
    stark(*THREE)
    assert 0 == stark("record", "last", "run.json").code
    executor.evaluated.clear()

    ended = stark("optimize", "--replay", "run.json")

    said = "replies are recorded, from scripted; builds, checks and timings are live"
    assert 0 == ended.code
    assert ended.out.count(said) >= 2
    assert "recorded:scripted" in ended.out
    assert "5 recorded replies; no model was called, and nothing was paid" in ended.out
    assert 3 == len(executor.evaluated)


@pytest.mark.slow
def test_the_demo_needs_no_model_and_costs_nothing(
    stark: Stark, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is set for other runs, and although the invented judge finds something else than the recorded one."""
    monkeypatch.setenv("STARK_MODEL", "exec:exit 3")
    monkeypatch.setenv("STARK_DOLLARS", "1")
    monkeypatch.setenv("STARK_EXECUTOR", "local:cpu")

    document = stark("demo", "--json").document

    assert {"recorded:"} == {
        entry["model"][:9] for entry in document["run"]["config"]["models"].values()
    }
    assert (0.0, len(document["attempts"])) == (
        document["spent"]["dollars"],
        document["run"]["config"]["budget"]["attempts"],
    )


@pytest.mark.slow
def test_a_replay_refuses_the_flags_that_it_does_not_take(
    stark: Stark, executor: FakeExecutor
) -> None:
    stark(*THREE)
    stark("record", "last", "run.json")
    executor.evaluated.clear()

    several = stark("optimize", "--replay", "run.json", "--attempts", "1", "--model", "foo:bar")
    one = stark("optimize", "--replay", "run.json", "--language", "cuda")

    assert (2, 2) == (several.code, one.code)
    assert "takes no --model, --attempts; leave them out, or leave out --replay" in several.err
    assert "takes no --language; leave it out" in one.err
    assert 0 == len(executor.evaluated)
    assert 1 == len(stark("runs", "--json").document["runs"])

    stark("optimize", "--replay", "run.json")
    ended = stark("resume", "last", "--replay", "run.json", "--code-model", "foo:bar")

    assert (2, True) == (
        ended.code,
        "replays a recording and asks no model; leave out" in ended.err,
    )


@pytest.mark.slow
def test_a_recording_without_its_problem_is_replayed_with_the_file(
    stark: Stark, executor: FakeExecutor
) -> None:
    stark(*THREE)
    assert 0 == stark("record", "last", "run.json", "--without-problem").code

    alone = stark("optimize", "--replay", "run.json")
    with_file = stark("optimize", "problem.py", "--replay", "run.json")
    resumed = stark("resume", "last", "--replay", "run.json")

    assert (2, True) == (alone.code, "name that problem's file too" in alone.err)
    assert 0 == with_file.code
    assert 0 == resumed.code


def test_a_replay_is_resumed_only_with_its_recording(stark: Stark, executor: FakeExecutor) -> None:
    stark(*THREE)
    stark("record", "last", "run.json")
    stark("optimize", "--replay", "run.json")

    without = stark("resume", "last")
    with_it = stark("resume", "last", "--replay", "run.json")

    assert 2 == without.code
    assert "set replay to the recording's path" in without.err
    assert 0 == with_it.code


def test_a_replay_of_another_problem_is_refused(
    stark: Stark, executor: FakeExecutor, workplace: Path
) -> None:
    stark(*THREE)
    stark("record", "last", "run.json")
    (workplace / "other.py").write_text((workplace / "problem.py").read_text() + "\n# other\n")

    ended = stark("optimize", "other.py", "--replay", "run.json")

    assert 2 == ended.code
    assert "run.json is a recording of problem" in ended.err


def test_a_live_run_takes_no_recording_on_resume(stark: Stark, executor: FakeExecutor) -> None:
    stark(*THREE)
    stark("record", "last", "run.json")

    ended = stark("resume", "last", "--replay", "run.json")

    assert (2, True) == (ended.code, "asks live models" in ended.err)


TESTS = Path(__file__).parents[1]
SCRIPT = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import stark.sessions
import stark.benches.entry
from stark.cli.app import main
from support.executor import FakeExecutor
from support.nodes import CPU
for module in (stark.sessions, stark.benches.entry):
    module.open_executor = lambda *_, **__: FakeExecutor(device=CPU)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [THREE, ["bench", "run", "problem.py", *THREE[2:4], *THREE[8:], "--name", "mine"]],
    ids=["optimize", "bench"],
)
def test_whoever_stops_reading_ends_no_search(workplace: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-c", f"{SCRIPT}sys.exit(main({arguments!r}))"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workplace
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        process.wait(60)

    assert "" == said
    assert process.returncode in (0, 1)
    with Store.open(f"sqlite:///{workplace}/.stark/stark.db") as store:
        assert ["3 attempts made"] == [run.ended and run.ended.detail for run in store.summaries()]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [[signal.SIGINT, signal.SIGTERM], [signal.SIGKILL]])
def test_however_it_ends_no_command_goes_on_and_no_call_is_in_flight(
    stark: Stark, workplace: Path, ending: list[signal.Signals]
) -> None:
    (workplace / "model.sh").write_text("sleep 60 & echo $! $$ > pids; wait\n")
    command = [sys.executable, "-c", f"{SCRIPT}sys.exit(main({THREE!r}))"]
    started = workplace / "pids"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=workplace) as process:
        assert eventually(lambda: len(pids(started)) == 2)
        assert "1 call in flight" in stark("show").out
        for number in ending:
            process.send_signal(number)
            time.sleep(0.2)
        process.wait(10)

    assert eventually(lambda: all(map(is_gone, pids(started))))
    assert "in flight" not in stark("show").out


@pytest.mark.slow
def test_a_whole_run_never_imports_torch(workplace: Path) -> None:
    script = f"""{SCRIPT}
code = main({[*THREE, "--json"]!r})
print([name for name in ("torch", "pydantic_ai") if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=workplace, timeout=60
    )

    assert "[]" == done.stderr.strip().splitlines()[-1]
    assert done.returncode in (0, 1)
