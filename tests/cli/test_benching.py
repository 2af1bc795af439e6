from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from cli_samples import Stark

from stark.benches.preset import PAPER_LEVELS, PAPER_STRATEGIES
from stark.cli.benching import parse_numbers
from stark.core.errors import ProblemError, UsageError
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.languages import language
from stark.store import STORE, Store
from support.examples import guide_example
from support.executor import FakeExecutor, kind_of
from support.nodes import CPU, EAGER_MS, correct

OTHER = CPU.model_copy(update={"name": "Other CPU"})

MODEL = """#!/bin/sh
# Plans, and answers every other question with the same candidate under a mark of its own.
question=$(cat)
case "$question" in
  *"Your role: plan"*) printf 'ACTION: rewrite\\nSTRATEGY:\\nFuse everything into one pass.\\n'; exit ;;
esac
printf '```python\\n'
cat candidate.py
printf '\\n# %s\\n```\\n' "$(printf '%s' "$question" | cksum)"
"""


@pytest.fixture
def bench(workplace: Path, executor: FakeExecutor, without_pictures: None) -> list[str]:
    """A command for two problems, two strategies and four attempts each, of about a second."""
    example = guide_example(language("cpp"))
    folder = workplace / "small"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(f"{example.problem.source}# {name}\n")
    (workplace / "candidate.py").write_text(example.candidate.source)
    (workplace / "answer.sh").write_text(MODEL)
    return [
        *("bench", "run", "small", "--strategy", "stark:latest,reflexion", "--attempts", "4"),
        *("--model", "exec[scripted]:sh answer.sh", "--language", "cpp"),
    ]


@pytest.mark.slow
def test_a_bench_is_worked_on_reported_and_listed(stark: Stark, bench: list[str]) -> None:
    ended = stark(*bench)

    assert 0 == ended.code, ended.err
    name = re.search(
        r"bench (small-\w{4}): 2 problems x stark:latest, reflexion x 1 seed", ended.out
    )
    assert name is not None
    for title in ("Kernels", "Mean speedups", "Search and cost", "Cost by role", "Differences"):
        assert f"\n{title}\n" in ended.out
    assert "[4/4]" in ended.out
    assert "not measured" in ended.out
    folder = Path(".stark/bench") / name[1]
    assert f"report: {folder / 'report.md'}" in ended.out
    assert {"report.md", "report.json", "summary.csv", "roles.csv", "runs.csv"} <= {
        file.name for file in folder.iterdir()
    }
    assert f"{name[1]}: 2 problems" in stark("bench", "list").out
    assert "4 of 4 runs have ended" in stark("bench", "list").out


@pytest.mark.slow
def test_leaders_are_judged_on_a_second_kind_of_machine_and_shown_there(
    stark: Stark, bench: list[str], executor: FakeExecutor
) -> None:
    other = FakeExecutor(lambda _: correct(EAGER_MS / 3), device=OTHER)
    executor.others = (other,)

    ended = stark(*bench, "--device-class", "Invented CPU,Other CPU")

    assert 0 == ended.code, ended.err
    assert "\nKinds of machines\n" in ended.out
    (report,) = Path(".stark/bench").glob("*/report.md")
    assert "| 3.00x [3.00, 3.00], 333 µs of 1.00 ms |" in report.read_text()
    assert not other.evaluated
    assert len(executor.promoted) == len(other.promoted)
    document = stark("bench", "report", "--json").document
    assert {True, False} == {row["own"] for row in document["classes"]}
    shown, run = stark("show", "last"), stark("show", "last", "--json").document
    ((kind, there),) = run["elsewhere"].items()
    assert kind == kind_of(OTHER)
    (attempt,) = there["final_checks"]
    assert f"\non {kind}\nreference: 1.00 ms in eager mode\n" in shown.out
    assert f"final check of attempt {attempt}: 333 µs, 3.00x vs eager" in shown.out
    assert f"final check on {kind}" in stark("show", "last", attempt).out


@pytest.mark.slow
def test_the_report_is_made_again_from_the_store_alone(
    stark: Stark, bench: list[str], workplace: Path
) -> None:
    first = stark(*bench, "--json").document
    for file in (workplace / "small").iterdir():
        file.unlink()

    again = stark("bench", "report", "--json", "--output", "elsewhere").document

    assert first | {"folder": "elsewhere"} == again
    assert (workplace / "elsewhere" / "report.md").is_file()


def nothing_twice(executor: FakeExecutor) -> bool:
    """Whether each candidate was judged once; those that did not build and were replaced count, too."""
    digests = [candidate.digest for candidate in executor.evaluated]
    return len(digests) == len(set(digests))


@pytest.mark.slow
def test_the_same_command_goes_on_and_asks_nothing_twice(
    stark: Stark, bench: list[str], executor: FakeExecutor
) -> None:
    stopped = stark(*bench, "--total-attempts", "5", "--json")
    made = len(executor.evaluated)

    assert 1 == stopped.code
    assert "unfinished: a limit of the whole bench was reached" in stopped.err
    assert re.search(r"`stark bench resume small-\w{4}` continues the bench", stopped.err)
    assert 5 <= made < 16

    finished = stark(*bench, "--json")

    assert 0 == finished.code, finished.err
    assert nothing_twice(executor)
    assert [4] * 4 == [run["attempts"] for run in finished.document["runs"]]
    made = len(executor.evaluated)
    assert 0 == stark(*bench).code
    assert made == len(executor.evaluated)


@pytest.mark.slow
def test_resume_needs_the_name_alone(
    stark: Stark, bench: list[str], executor: FakeExecutor, workplace: Path
) -> None:
    stark(*bench, "--total-attempts", "5", "--name", "mine")
    (workplace / "small" / "one.py").unlink()

    still = stark("bench", "resume", "mi")
    ended = stark("bench", "resume", "mine", "--total-attempts", "99", "--json")

    assert (1, 0) == (still.code, ended.code)
    assert [4] * 4 == [run["attempts"] for run in ended.document["runs"]]
    assert nothing_twice(executor)
    assert "mine" == ended.document["bench"]["name"]
    assert [] == ended.document["bench"].get("cells", [])


@pytest.mark.slow
def test_a_refused_problem_is_named_and_its_runs_have_ended(
    stark: Stark, bench: list[str], executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = executor.describe

    async def describe(problem: Problem) -> Reference:
        if problem.name == "two":
            raise ProblemError("two: line 3: forward raised")
        return await measure(problem)

    monkeypatch.setattr(executor, "describe", describe)

    ended = stark(*bench, "--name", "mine")
    again = stark("bench", "resume", "mine", "--model", "exec[other]:sh answer.sh")

    assert "two: two: line 3: forward raised" in ended.out
    said = "refused problems: two, for the reasons in the report; `stark bench resume mine` continues the bench and tries them again"
    for each in (ended, again):
        assert (1, True) == (each.code, said in each.err), each.err
        assert "unreachable" not in each.err and "unfinished" not in each.err
    assert 8 == len(executor.evaluated)
    assert "4 of 4 runs have ended" in stark("bench", "list").out
    with Store.open(STORE) as store:
        asked = {
            (run.problem.name, entry.model)
            for run in (store.run(summary.id) for summary in store.summaries())
            for entry in run.config.models.values()
        }
    assert {("one", "exec[scripted]:sh answer.sh"), ("two", "exec[other]:sh answer.sh")} == asked


@pytest.mark.slow
def test_a_model_for_a_role_that_no_strategy_of_it_has_is_refused(
    stark: Stark, bench: list[str], executor: FakeExecutor
) -> None:
    refused = stark(*bench, "--strategy", "sampling,reflexion", "--plan-model", "exec:sh answer.sh")

    assert 2 == refused.code
    assert "the strategy sampling has no plan role, so leave out its model" in refused.err
    assert 0 == stark(*bench, "--plan-model", "exec:sh answer.sh").code, "stark:latest has it"
    Path("stark.toml").write_text('plan_model = "exec:exit 3"\n')
    assert 0 == stark(*bench, "--strategy", "sampling").code, "the file's is for other benches"


@pytest.mark.slow
def test_its_runs_are_shown_like_any_other(stark: Stark, bench: list[str]) -> None:
    runs = stark(*bench, "--json").document["runs"]

    shown = stark("show", runs[0]["run_id"])

    assert 0 == shown.code
    assert "strategy   stark:latest, in cpp, seed 1" in shown.out


def test_an_interruption_says_how_to_go_on(
    stark: Stark, bench: list[str], executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(30)

    monkeypatch.setattr(executor, "evaluate", interrupted)

    one = ("--runs", "1")  # since a second signal would end the process at once
    ended = stark(*bench, *one, "--name", "mine", "--store", "sqlite:///elsewhere.db")

    assert 130 == ended.code
    assert (
        "`stark bench resume mine --store sqlite:///elsewhere.db` continues the bench" in ended.err
    )
    assert executor.closed


def test_a_request_that_the_judge_refuses_is_not_to_be_resumed(
    stark: Stark, bench: list[str]
) -> None:
    ended = stark(*bench, "--language", "triton")

    assert 2 == ended.code
    assert "triton kernels do not run on the judge's Invented CPU" in ended.err
    assert "resume" not in ended.err


@pytest.mark.slow
def test_a_bench_goes_on_with_another_model(
    stark: Stark, bench: list[str], executor: FakeExecutor
) -> None:
    failed = stark(*bench, "--model", "exec:exit 3", "--name", "mine")
    assert 2 == failed.code
    assert "error: exec:exit exited with status 3" in failed.err
    assert "`stark bench resume mine` continues the bench" in failed.err

    again = stark("bench", "resume", "mine", "--model", "exec:sh answer.sh", "--parallel", "2")

    assert 0 == again.code, again.err
    with Store.open(STORE) as store:
        runs = [store.run(summary.id) for summary in store.summaries()]
    assert {(2, "exec:sh answer.sh")} == {
        (run.config.parallel, entry.model) for run in runs for entry in run.config.models.values()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "kind"),
    [
        (("--total-minutes", "0.001"), "minutes"),
        (("--total-dollars", "0.2", "--price", "3/15"), "dollars"),
        (("--total-tokens", "9000"), "tokens"),
        (("--total-attempts", "5"), "attempts"),
    ],
)
def test_limits_of_the_whole_stop_it(
    stark: Stark, bench: list[str], executor: FakeExecutor, limit: tuple[str, ...], kind: str
) -> None:
    stopped = stark(*bench, *limit, "--name", "mine", "--runs", "2", "--json")

    assert 1 == stopped.code, stopped.err
    assert len(executor.evaluated) < 16
    assert float(limit[1]) == stopped.document["bench"]["budget"][kind]
    unlimited = stark("bench", "resume", limit[0], "9999999", "--json")
    assert 0 == unlimited.code
    assert [4] * 4 == [run["attempts"] for run in unlimited.document["runs"]]
    assert nothing_twice(executor)


@pytest.mark.slow
def test_a_dollar_limit_of_the_whole_needs_a_known_price(stark: Stark, bench: list[str]) -> None:
    refused = stark(*bench, "--total-dollars", "5")

    assert (2, True) == (refused.code, "so a dollar limit would not hold" in refused.err)
    limits = ("--total-dollars", "5", "--total-attempts", "4")
    assert 1 == stark(*bench, *limits, "--unpriced").code
    assert 2 == stark("bench", "resume", "--total-dollars", "6").code
    assert 0 == stark("bench", "resume", "--total-attempts", "999").code


def test_the_papers_protocol_needs_kernelbench_and_a_model_alone(
    stark: Stark, bench: list[str], workplace: Path
) -> None:
    for level in PAPER_LEVELS:
        folder = workplace / "checkout" / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        (folder / f"1_Problem{level}.py").write_text(
            f"{(workplace / 'problem.py').read_text()}# {level}"
        )
    ask = ("--kernelbench", "checkout", "--preset", "paper", *bench[-4:])

    made = stark("bench", "run", *ask, "--total-attempts", "1", "--json").document
    assert (30, 15) == (made["bench"]["attempts"], len(made["runs"]))
    assert {(f"level{level}", name, 1) for level in PAPER_LEVELS for name in PAPER_STRATEGIES} == {
        (run["level"], run["strategy"], run["seed"]) for run in made["runs"]
    }
    with Store.open(STORE) as store:
        config = store.run(made["runs"][0]["run_id"]).config
    assert (30, 1) == (config.budget.attempts, config.parallel)

    other = ("--attempts", "1", "--seeds", "2", "--strategy", "stark", "--level", "2")
    fewer = stark("bench", "run", *ask, *other, "--total-attempts", "1", "--json").document
    assert (1, 2) == (fewer["bench"]["attempts"], len(fewer["runs"])), "what is written wins"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nowhere", "--model", "exec:x"), "nowhere"),
        (("run", "small", "--strategy", "starc", "--model", "exec:x"), "no strategy 'starc'"),
        (("run", "small"), "no model is given"),
        (
            ("run", "small", "--model", "exec:x", "--total-dollars", "0"),
            "the limit on dollars of the whole bench should",
        ),
        (("run", "--model", "exec:x"), "or a checkout of KernelBench as --kernelbench"),
        (("run", "small", "--model", "exec:x", "--output", "/proc/x"), "written to /proc/x"),
        (("resume", "--output", "/proc/x"), "nothing can be written to /proc/x"),
        (
            ("run", "small", "--model", "exec:x", "--name", "../x/y"),
            "cannot be the name of a bench",
        ),
        (("run", "small", "--model", "exec:x", "--store", "sqlite://"), "name a file, such as"),
        (
            ("run", "--kernelbench", ".", "--level", "one"),
            "--level is 'one'; write numbers and ranges",
        ),
        (("resume",), "there are no benches yet"),
        (("report", "mine"), "there are no benches yet"),
    ],
)
def test_what_cannot_be_is_refused(
    stark: Stark, bench: list[str], arguments: tuple[str, ...], said: str
) -> None:
    ended = stark("bench", *arguments)

    assert (2, True) == (ended.code, said in ended.err), ended.err


@pytest.mark.parametrize(
    ("written", "meant"),
    [("7", [7]), ("1,5-8", [1, 5, 6, 7, 8]), (" 3 - 4 , 1,3", [3, 4, 1])],
)
def test_numbers_and_spans(written: str, meant: list[int]) -> None:
    assert meant == parse_numbers(written, "--problems")


@pytest.mark.parametrize("written", ["", "1,", "a", "5-1", "1-2-3", "-3"])
def test_what_is_no_number_or_span(written: str) -> None:
    with pytest.raises(UsageError, match="--problems is"):
        parse_numbers(written, "--problems")
