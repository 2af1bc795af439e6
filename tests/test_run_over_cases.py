"""A run whose problem has cases: its tree, its store, its recording and its report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import loop_samples as samples
from stark.core.candidate import Candidate
from stark.core.evaluation import Correct, Evaluation
from stark.core.run import Ended
from stark.recorded import RecordedReplies, read_recording, record, write_recording
from stark.report.document import run_document
from stark.report.run import run_text
from stark.report.view import RunView
from stark.search.policies.recorded import Recorded
from stark.search.tree import Tree
from stark.stopping import enough
from stark.store import Store
from support.cases import EAGER_MS, PROBLEM, FakeCases, correct_in
from support.executor import invented
from support.nodes import ROOFLINE, correct, working
from support.replies import prompt_of, role_of

ATTEMPTS = 8
RUN = samples.run(attempts=ATTEMPTS, problem=PROBLEM)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def faster_in_decode(case: str, candidate: Candidate) -> Evaluation:
    """As `invented` in decode; otherwise every candidate takes eager's time."""
    eager_ms = EAGER_MS["prefill"]
    return invented(candidate) if case == "decode" else correct(eager_ms, eager_ms)


async def test_the_tree_the_ranking_and_the_store_are_over_all_cases(store: Store) -> None:
    replies, _ = samples.scripted(samples.distinct())

    worked = await samples.work(store, RUN, FakeCases(faster_in_decode), replies)

    assert worked.tree.root_latency_ms == pytest.approx(2.0)
    found = [node.evaluation for node in worked.tree.nodes if isinstance(node.evaluation, Correct)]
    assert found
    for each in found:
        decode = each.cases["decode"].speedup_vs().ratio
        assert each.speedup_vs().ratio == pytest.approx(decode**0.75)
    judged = [node.evaluation for node in worked.tree.nodes if node.candidate]
    assert {"decode"} == {each.case for each in judged if each.status != "correct"}
    assert list(worked.tree.nodes) == store.nodes(RUN.id)
    outcome = store.outcome(RUN.id, ATTEMPTS)
    assert outcome.best is not None
    assert outcome.best.speedup_vs() == outcome.checks[outcome.best_attempt or 0]
    assert store.reference(RUN.id) == RunView.of_store(store, RUN.id).reference


async def test_prompts_state_every_case_and_what_counts(store: Store) -> None:
    replies, model = samples.scripted(samples.distinct())

    await samples.work(store, RUN, FakeCases(faster_in_decode), replies)

    for asked in model.asked:
        said = prompt_of(asked.messages)
        assert "- decode (weight 3): inputs float32[8, 256]; outputs float32[8, 256]\n" in said
        assert (
            "- prefill (weight 1): inputs float32[1024, 256]; outputs float32[1024, 256]\n" in said
        )
        assert "The speedup that counts is the weighted geometric mean of 2 cases." in said
        if role_of(asked.messages) == "plan":
            assert "Case prefill:\n- eager PyTorch takes 16 ms\n" in said
    plans = [prompt_of(each.messages) for each in model.asked if role_of(each.messages) == "plan"]
    assert any("- prefill (weight 1): 16 ms, 1.00x vs eager" in said for said in plans)


async def test_a_recorded_run_is_read_and_replayed(store: Store, tmp_path: Path) -> None:
    replies, _ = samples.scripted(samples.distinct())
    await samples.work(store, RUN, FakeCases(faster_in_decode), replies)
    write_recording(record(store, RUN), tmp_path / "run.json")

    recording = read_recording(tmp_path / "run.json")

    with Store.open("sqlite://") as other:
        again = await samples.work(
            other,
            RUN,
            FakeCases(faster_in_decode),
            RecordedReplies(recording),
            policy=Recorded(recording.selections),
        )
    assert record(store, RUN) == recording
    assert recording.nodes == again.tree.nodes


async def test_a_report_shows_the_objective_and_each_case(store: Store) -> None:
    replies, _ = samples.scripted(samples.distinct())
    await samples.work(store, RUN, FakeCases(faster_in_decode), replies)
    view = RunView.of_store(store, RUN.id)

    document = json.loads(run_document(view).model_dump_json())

    assert document["reference_latency_ms"] == pytest.approx(2.0)
    best = next(each for each in document["attempts"] if each["attempt"] == document["best"])
    assert ("geomean", "decode") == (best["objective"], best["main_case"])
    assert {"decode": 3.0, "prefill": 1.0} == {
        case: found["weight"] for case, found in best["cases"].items()
    }
    ratio = best["speedups"]["eager"]["ratio"]
    decode = best["cases"]["decode"]["speedups"]["eager"]["ratio"]
    assert ratio == pytest.approx(decode**0.75)
    console = Console(width=200)
    with console.capture() as capture:
        console.print(run_text(run_document(view), 200))
    said = " ".join(capture.get().split())
    assert "reference 2.00 ms in eager mode (geometric mean) objective weighted geometric" in said
    assert "- decode 1.00 ms in eager mode; roofline" in said
    assert "- prefill 16.0 ms in eager mode; roofline" in said


def test_a_kernel_that_can_hardly_gain_in_any_case_is_enough() -> None:
    floor_ms = ROOFLINE.floor_ms
    near, far = (
        working(1).model_copy(update={"evaluation": correct_in(times)})
        for times in (
            {"decode": 1.02 * floor_ms, "prefill": 1.04 * floor_ms},
            {"decode": 1.02 * floor_ms, "prefill": 1.50 * floor_ms},
        )
    )

    assert Ended(
        kind="converged", detail="within 3 % of the least possible times of its cases"
    ) == enough(Tree.replay(2.0, [near]))
    assert enough(Tree.replay(2.0, [far])) is None
