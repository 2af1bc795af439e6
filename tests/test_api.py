"""The Python API, with an invented judge and a shell script as the model."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stark
from stark.benches.entry import resume_bench
from stark.core.candidate import Candidate
from stark.core.errors import RecordingError, StoreError
from stark.core.evaluation import Evaluation
from stark.events import AttemptFinished, CheckFinished, Event, Prepared, Started
from stark.languages import language
from stark.recorded import record, write_recording
from stark.regions.results import Captured
from stark.store import Store
from support.examples import guide_example
from support.executor import FakeExecutor
from support.nodes import CPU, correct, failure
from support.regions import region

EXAMPLE = guide_example(language("cpp"))
PROBLEM = stark.Problem(name="normalize", source=EXAMPLE.problem.source)

MODEL = """#!/bin/sh
# Plans a rewrite, or answers with a kernel that is a little different each time; every reply costs $0.018 at 3/15.
folder=$(dirname "$0")
case "$(cat)" in
  *"Your role: plan"*) printf 'ACTION: rewrite\\nTITLE: One pass\\nSTRATEGY:\\nFuse everything.\\n' ;;
  *) echo '```python'; cat "$folder/kernel.py"; echo "# $$ $(date +%N)"; echo '```' ;;
esac
echo '{"input_tokens": 1000, "output_tokens": 1000}' > "$STARK_USAGE_FILE"
"""


def verdict(candidate: Candidate) -> Evaluation:
    """Everything works but what is marked as wrong."""
    return failure("incorrect") if "# wrong" in candidate.source else correct(0.5)


@pytest.fixture
def judge() -> FakeExecutor:
    return FakeExecutor(verdict, device=CPU)


@pytest.fixture
def given(tmp_path: Path, judge: FakeExecutor) -> dict[str, Any]:
    """A store, a judge and a model."""
    (tmp_path / "kernel.py").write_text(EXAMPLE.candidate.source)
    (tmp_path / "model.sh").write_text(MODEL)
    return {
        "store": f"sqlite:///{tmp_path}/runs.db",
        "judge": judge,
        "model": f"exec[scripted]:sh {tmp_path}/model.sh",
        "language": "cpp",
    }


def kept(given: dict[str, Any]) -> dict[str, Any]:
    """What a resumed run needs again."""
    return {name: given[name] for name in ("store", "judge")}


# A run.


def test_a_run_returns_its_best_kernel(given: dict[str, Any], tmp_path: Path) -> None:
    seen: list[Event] = []

    result = stark.optimize(PROBLEM, attempts=2, price="3/15", on_event=seen.append, **given)

    assert result.run_id.startswith("normalize-")
    assert result.ended is not None and "attempts" == result.ended.kind
    assert 4 == result.spent.calls
    assert 4 * 0.018 == pytest.approx(result.spent.dollars)
    assert 2.0 == pytest.approx(result.speedup)
    kernel = result.kernel
    assert kernel is not None and kernel.confirmed and kernel.attempt in (1, 2)
    assert ("cpp", 0.5) == (kernel.language, pytest.approx(kernel.latency_ms))
    assert "2.00x vs eager" in repr(kernel) and repr(kernel) in repr(result)
    assert kernel.source in kernel.save(tmp_path / "new" / "kernel.py").read_text()
    with pytest.raises(StoreError, match="the kernel cannot be written to"):
        kernel.save(tmp_path)
    assert [Prepared, Started] == [type(event) for event in seen[:2]]
    assert 2 == sum(isinstance(event, AttemptFinished) for event in seen)
    assert any(isinstance(event, CheckFinished) for event in seen)
    assert not given["judge"].closed, "a judge that is given is the caller's to close"


@pytest.mark.slow
def test_a_run_without_a_correct_kernel_has_none(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(EXAMPLE.candidate.source + "# wrong\n")

    result = stark.optimize(PROBLEM, attempts=1, **given)

    assert (None, None) == (result.kernel, result.speedup)
    assert ["incorrect"] == [node.evaluation.status for node in result.tree.nodes]
    assert "price unknown" in repr(result)
    assert "kernel=None; 1 of 1 attempts incorrect: output 0: relative error" in repr(result)


def test_progress_prints_a_line_for_each_step(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Event] = []

    stark.optimize(PROBLEM, attempts=1, progress=True, on_event=seen.append, **given)
    said = capsys.readouterr().out
    stark.resume("last", attempts=2, progress=True, **kept(given))

    assert "attempt 1 improves the reference\nattempt 1: planning\n" in said
    assert seen
    assert "continues after 1 attempt" in capsys.readouterr().out


def test_a_problem_in_training_mode_gives_a_warning(given: dict[str, Any]) -> None:
    original = 'ORIGINAL = {"name": "a:B", "arguments": ["x"], "training": True}\n'
    trained = stark.Problem(name="trained", source=f"{PROBLEM.source}\n{original}")

    with pytest.warns(
        UserWarning, match=r"trained was captured in train\(\): kernels are verified"
    ):
        stark.optimize(trained, attempts=1, **given)


def test_regions_share_a_budget(given: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "problem.py"
    file.write_text(PROBLEM.source)
    captured = [
        Captured(region=region("first", 3.0), file=str(file)),
        Captured(region=region("hooked", 2.0), refused="it has a hook"),
        Captured(region=region("second", 1.0), file=str(file)),
    ]
    first, refused, second = stark.optimize_regions(
        captured, attempts=1, dollars=0.08, price="3/15", **given
    )

    assert first.kernel is not None and first.result is not None and second.result is not None
    assert (None, None, "it has a hook") == (refused.result, refused.kernel, refused.reason)
    assert 0.06 == pytest.approx(first.result.run.config.budget.dollars)
    assert 0.08 - 0.036 == pytest.approx(second.result.run.config.budget.dollars)
    assert ["first", "hooked", "second"] == [
        each.region.module for each in (first, refused, second)
    ]


def test_gradients_are_asked_for_in_the_problem_that_is_stored(given: dict[str, Any]) -> None:
    found = stark.optimize(PROBLEM, attempts=1, backward=True, **given)

    assert found.run.problem == PROBLEM.with_backward()
    assert stark.load_run("last", given["store"]).run.problem.declared.backward


def test_a_problem_may_be_a_file(given: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "softmax.py"
    path.write_text(PROBLEM.source)

    assert stark.optimize(path, attempts=1, **given).run_id.startswith("softmax-")


async def test_runs_share_a_budget(given: dict[str, Any]) -> None:
    ledger = stark.Ledger(stark.Budget(dollars=0.05))
    work = partial(stark.aoptimize, PROBLEM, within=ledger, price="3/15", **given)

    first, second = await work(), await work()

    assert 0.05 <= ledger.spent.dollars < 0.05 + 0.018
    assert ledger.spent.dollars == pytest.approx(first.spent.dollars + second.spent.dollars)
    assert (None, None) == (first.ended, second.ended), "both can be resumed"
    resumed = await stark.aresume(first.run_id, attempts=3, **kept(given))
    assert resumed.ended is not None and 3 == len(resumed.tree.nodes)


# Resuming.


def test_resuming_stores_what_was_changed(given: dict[str, Any]) -> None:
    begun = stark.optimize(PROBLEM, attempts=1, **given)

    resumed = stark.resume(begun.run_id, attempts=3, build_s=60, **kept(given))

    assert begun.run_id == resumed.run_id
    assert 3 == len(resumed.tree.nodes)
    config = stark.load_run(begun.run_id, given["store"]).run.config
    assert (3, 60) == (config.budget.attempts, config.limits.build_s)
    assert begun.run.config.models == config.models


def test_with_a_judge_of_its_own_a_resumed_run_opens_no_executor(given: dict[str, Any]) -> None:
    begun = stark.optimize(PROBLEM, attempts=1, executor="command:", **given)

    resumed = stark.resume(begun.run_id, attempts=2, **kept(given))

    assert 2 == len(resumed.tree.nodes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"language": "triton"}, "a run keeps its language"),
        ({"seed": 1, "strategy": "stark"}, "a run keeps its seed and strategy"),
        ({"attempts": 1}, "a limit of 1 attempts is less than the 2 that run"),
        ({"attemps": 3}, "there is no option 'attemps'; the options are model, "),
        ({"replay": "recording.json"}, "is not a replay; leave out replay"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    given: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    begun = stark.optimize(PROBLEM, attempts=2, **given)

    with pytest.raises(stark.UsageError, match=said):
        stark.resume(begun.run_id, **kept(given), **changes)

    again = stark.load_run(begun.run_id, given["store"])
    assert begun.run == again.run and begun.ended == again.ended


# Candidates that exist already.


def test_candidates_are_judged_in_their_order(given: dict[str, Any], tmp_path: Path) -> None:
    kernel = stark.optimize(PROBLEM, attempts=1, **given).kernel
    assert kernel is not None
    (tmp_path / "wrong.py").write_text(EXAMPLE.candidate.source + "# wrong\n")
    files = tmp_path / "wrong.py", tmp_path / "nothing.py", str(tmp_path / "kernel.py")

    judged = stark.evaluate(PROBLEM, *files, kernel, judge=given["judge"])

    assert ["incorrect", "unusable", "correct", "correct"] == [
        each.evaluation.status for each in judged
    ]
    assert "attempt 1" == judged[-1].file
    assert judged[-1].candidate is not None and kernel.source == judged[-1].candidate.source


# Reading.


def test_runs_and_recordings_are_read(given: dict[str, Any], tmp_path: Path) -> None:
    store = given["store"]
    assert [] == stark.runs(store)
    with pytest.raises(stark.UsageError, match="there are no runs yet"):
        stark.load_run("last", store)
    assert not (tmp_path / "runs.db").exists(), "reading creates no store"
    first, last = (stark.optimize(PROBLEM, attempts=n, **given) for n in (1, 2))

    assert [last.run_id, first.run_id] == [run.id for run in stark.runs(store)]
    for name in ("last", last.run_id, last.run_id[:-1]):
        if name == last.run_id[:-1] and first.run_id.startswith(name):
            continue
        assert last.run_id == stark.load_run(name, store).run_id
    with pytest.raises(stark.UsageError):
        stark.load_run("normalize", store)
    with pytest.raises(stark.UsageError):
        stark.load_run("nothing", store)

    path = tmp_path / "run.json.gz"
    with Store.open(store) as opened:
        write_recording(record(opened, opened.run(last.run_id)), path)
    assert last.kernel == stark.load_run(path).kernel == stark.load_run(str(path)).kernel
    with pytest.raises(RecordingError, match="cannot be read"):
        stark.load_run(tmp_path / "nothing.json")


@pytest.mark.slow
def test_a_recording_is_followed_with_as_many_attempts_as_asked_for(
    given: dict[str, Any], tmp_path: Path
) -> None:
    recorded = stark.optimize(PROBLEM, attempts=3, **given)
    with Store.open(given["store"]) as opened:
        write_recording(record(opened, opened.run(recorded.run_id)), tmp_path / "run.json")
    replay = partial(stark.optimize, replay=tmp_path / "run.json", **kept(given))

    sources = [
        [node.candidate for node in replay(**limit).tree.nodes] for limit in ({}, {"attempts": 2})
    ]

    assert [node.candidate for node in recorded.tree.nodes] == sources[0]
    assert sources[0][:2] == sources[1]
    assert 3 == len(replay(attempts=50).tree.nodes)


# Benches.


def test_a_bench_compares_two_strategies_and_goes_on(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "normalize.py").write_text(PROBLEM.source)
    bench = partial(
        stark.bench, [tmp_path / "small"], strategies=["team-only", "sampling"], attempts=2, **given
    )

    report = bench()
    judged = len(given["judge"].evaluated)
    again = bench()

    assert ["team-only", "sampling"] == [summary.strategy for summary in report.summaries]
    assert 2 == len(report.ended)
    assert 4 == judged == len(given["judge"].evaluated), "nothing is done twice"
    assert report.summaries == again.summaries
    assert not given["judge"].closed


def test_a_bench_refuses_what_it_could_not_do(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "normalize.py").write_text(PROBLEM.source)

    for changes, said in (
        ({"seeds": 0}, "should be at least 1"),
        ({"parallel": 0}, "should be at least 1"),
        ({"seed": 7}, "leave out `seed`"),
    ):
        with pytest.raises(stark.UsageError, match=said):
            stark.bench([tmp_path], **given, **changes)
    with pytest.raises(stark.UsageError, match="at least one problem"):
        stark.bench([], **given)
    assert [] == stark.runs(given["store"])


def test_the_runs_of_a_bench_keep_their_attempts(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "normalize.py").write_text(PROBLEM.source)
    stark.bench([tmp_path], attempts=1, **given)

    with pytest.raises(stark.UsageError, match="attempts per run is fixed"):
        asyncio.run(resume_bench(store=given["store"], attempts=4))


# Errors.


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attemps": 3}, r"there is no option 'attemps'; the options are model, .*memory_gb"),
        ({"attempts": 0}, "attempts is 0, and should be greater than or equal to 1"),
        ({"price": "free"}, "price is .free., and should be written INPUT/OUTPUT"),
        ({"strategy": "best"}, "best"),
        ({"language": "fortran"}, "fortran"),
        ({"model": None}, "no model is given: set model to one"),
        ({"model": "exec:no-such-program-anywhere"}, "cannot find the program"),
        ({"dollars": 1}, "the price of exec:scripted is unknown, so a dollar limit would not hold"),
        (
            {"within": stark.Ledger(stark.Budget(dollars=1))},
            "the price of exec:scripted is unknown",
        ),
        ({"problem": "nothing.py"}, "There is no file nothing.py"),
        ({"problem": None}, "name a problem"),
        ({"problem": [1]}, "a list is not a problem; write a module as one with stark.capture"),
        ({"replay": "nothing.json"}, "nothing.json cannot be read"),
        ({"store": "no-url"}, "no-url"),
        ({"judge": None, "executor": "cloud"}, "'cloud' is not an executor"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_request_is_refused_before_anything_is_stored(
    given: dict[str, Any], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(stark.StarkError, match=said) as refused:
        stark.optimize(**{"problem": PROBLEM, **given, **changes})

    assert not re.search(r"--[a-z]", str(refused.value))
    assert 2 == refused.value.exit_code
    assert not list(tmp_path.glob("*.db")) or [] == stark.runs(given["store"])


def test_a_dollar_limit_may_be_given_although_a_price_is_unknown(given: dict[str, Any]) -> None:
    result = stark.optimize(PROBLEM, attempts=1, dollars=1, unpriced=True, **given)

    assert 2 == result.spent.unpriced_calls


async def test_in_a_running_event_loop_the_awaited_function_is_named(given: dict[str, Any]) -> None:
    for call in (
        lambda: stark.optimize(PROBLEM, **given),
        lambda: stark.resume(store=given["store"]),
        lambda: stark.evaluate(PROBLEM),
        lambda: stark.bench([]),
    ):
        with pytest.raises(stark.UsageError, match=r"write `await stark\.a"):
            call()
