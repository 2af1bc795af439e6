"""What a store promises, on every database it can be in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import store_samples as samples
from sqlalchemy import func, select

from stark.core.call import Cut, Fit
from stark.core.candidate import Candidate
from stark.core.errors import StoreError, UsageError
from stark.core.evaluation import (
    BuildFailed,
    Crashed,
    Evaluation,
    Incorrect,
    OutOfMemory,
    Rejected,
    TimedOut,
)
from stark.core.node import Selection
from stark.core.run import Ended
from stark.core.standing import best_node
from stark.core.usage import Budget
from stark.store import RunSummary, Store
from stark.store.schema import ArtifactRow

RUN = "layernorm-3f9a"
ANYTHING = "before\x00between\udc80\ud800after é 𝄞\r\n\x1b[0m"
"""Text with what databases and encoders refuse."""


@pytest.fixture
def begun(store: Store) -> Store:
    """A store with a run of three attempts begun."""
    store.create_run(samples.run(RUN))
    for attempt in (1, 2, 3):
        store.begin_attempt(RUN, attempt, samples.IMPROVE_ROOT)
    return store


def test_a_run_is_read_as_it_was_stored(store: Store) -> None:
    store.create_run(samples.run())
    assert samples.run() == store.run(RUN)


def test_a_run_is_held_under_its_exact_id(store: Store) -> None:
    assert not store.holds(RUN)
    store.create_run(samples.run())
    assert store.holds(RUN)
    assert not store.holds(RUN[:-1])


def test_a_run_id_is_taken_once(store: Store) -> None:
    store.create_run(samples.run())
    with pytest.raises(StoreError, match=f"storing run {RUN} failed: the row exists already"):
        store.create_run(samples.run(source="another"))


def test_a_run_is_found_by_a_unique_prefix(store: Store) -> None:
    for run_id in ("relu-1a", "relu-1ab", "gelu-77"):
        store.create_run(samples.run(run_id))
    assert store.run("g").id == "gelu-77"
    assert store.run("relu-1a").id == "relu-1a"
    assert store.run("last").id == "gelu-77"


def test_an_ambiguous_prefix_names_the_runs_it_could_be(store: Store) -> None:
    for run_id in ("relu-1a", "relu-2b", "gelu-77"):
        store.create_run(samples.run(run_id))
    with pytest.raises(UsageError, match="'relu' could be relu-1a, relu-2b; write more of its id"):
        store.run("relu")


def test_an_unknown_run_names_close_ones_or_the_command_that_lists_them(store: Store) -> None:
    with pytest.raises(UsageError, match="no runs yet; `stark optimize"):
        store.run("last")
    store.create_run(samples.run("relu-1a"))
    with pytest.raises(UsageError, match="no run 'rleu-1a'; did you mean relu-1a"):
        store.run("rleu-1a")
    with pytest.raises(UsageError, match="no run 'xyz'; `stark runs` lists"):
        store.run("xyz")


def test_a_reference_is_none_until_it_is_set(store: Store) -> None:
    store.create_run(samples.run())
    assert store.reference(RUN) is None
    store.set_reference(RUN, samples.reference())
    assert samples.reference() == store.reference(RUN)


ENDS = [
    Ended(kind="attempts", detail="30 attempts made"),
    Ended(kind="dollars", detail="$2.51 of $2.50 spent"),
    Ended(kind="converged", detail="within 2 % of the roofline"),
    Ended(kind="refused", detail="line 3: forward raised"),
]


@pytest.mark.parametrize("ended", ENDS, ids=lambda ended: ended.kind)
def test_why_a_run_ended_is_kept_until_it_goes_on(store: Store, ended: Ended) -> None:
    store.create_run(samples.run())
    assert store.ended(RUN) is None
    store.end_run(RUN, ended)
    assert ended == store.ended(RUN)
    assert [ended] == [summary.ended for summary in store.summaries()]
    assert ended == store.outcome(RUN, 30).ended
    store.reopen_run(RUN)
    assert store.ended(RUN) is None
    assert [None] == [summary.ended for summary in store.summaries()]


def test_a_run_goes_on_with_another_configuration(store: Store) -> None:
    store.create_run(samples.run())
    run = samples.run()
    other = {"budget": Budget(attempts=50, minutes=10), "parallel": 4, "models": {}}
    run = run.model_copy(update={"config": run.config.model_copy(update=other)})
    store.reconfigure(run)
    assert run == store.run(RUN)
    assert [50] == [summary.budget_attempts for summary in store.summaries()]


def test_a_run_that_is_not_there_cannot_be_changed(store: Store) -> None:
    with pytest.raises(StoreError, match="there is no run nowhere; `stark runs`"):
        store.end_run("nowhere", ENDS[0])
    with pytest.raises(StoreError, match="attempt 1 of run nowhere failed"):
        store.begin_attempt("nowhere", 1, samples.IMPROVE_ROOT)


EVALUATIONS: list[Evaluation] = [
    BuildFailed(error="SyntaxError: line 3"),
    Crashed(phase="load", error="signal 11", output="Segmentation fault"),
    TimedOut(phase="verify", limit_s=60.0, seconds={"verify": 60.01}),
    OutOfMemory(phase="time", error="tried to allocate 80 GB"),
    Incorrect(error="nan at [3, 4]", warnings=("slow",)),
    Rejected(rule="calls_torch", error="torch.matmul on line 9"),
    samples.correct(0.125),
]


@pytest.mark.parametrize("evaluation", EVALUATIONS, ids=lambda evaluation: evaluation.status)
def test_a_node_is_read_as_it_was_stored(begun: Store, evaluation: Evaluation) -> None:
    begun.add_node(RUN, samples.edited_node(1, evaluation), elapsed_s=1.0)
    assert [samples.edited_node(1, evaluation)] == begun.nodes(RUN)


def test_a_node_without_a_candidate_is_read_as_it_was_stored(begun: Store) -> None:
    begun.add_node(RUN, samples.unusable_node(2), elapsed_s=1.0)
    assert [samples.unusable_node(2)] == begun.nodes(RUN)


def test_nodes_come_in_the_order_of_completion(begun: Store) -> None:
    for seconds, attempt in enumerate((2, 3, 1), start=1):
        begun.add_node(RUN, samples.node(attempt), elapsed_s=float(seconds))
    assert [node.id for node in begun.nodes(RUN)] == [2, 3, 1]


def test_elapsed_time_is_noted_by_calls_by_nodes_and_at_the_end(begun: Store) -> None:
    assert begun.elapsed_s(RUN) == 0.0
    samples.answer(begun, RUN, samples.call(1), elapsed_s=12.5)
    assert begun.elapsed_s(RUN) == 12.5
    begun.add_node(RUN, samples.node(2), elapsed_s=61.5)
    assert begun.elapsed_s(RUN) == 61.5
    begun.note_elapsed(RUN, 75.25)
    assert begun.elapsed_s(RUN) == 75.25
    assert begun.outcome(RUN, 2).elapsed_s == 61.5


def test_attempts_without_a_node_are_unfinished(begun: Store) -> None:
    debug = Selection(parent=2, action="debug")
    begun.begin_attempt(RUN, 4, debug)
    begun.add_node(RUN, samples.node(2), elapsed_s=1.0)
    improve = samples.IMPROVE_ROOT
    assert {1: improve, 3: improve, 4: debug} == begun.unfinished(RUN)
    assert {1: improve, 2: improve, 3: improve, 4: debug} == begun.selections(RUN)


def test_an_attempt_begins_once_and_ends_once(begun: Store) -> None:
    with pytest.raises(StoreError, match="storing attempt 2 of run"):
        begun.begin_attempt(RUN, 2, Selection(parent=1, action="debug"))
    begun.add_node(RUN, samples.node(2), elapsed_s=1.0)
    with pytest.raises(StoreError, match="storing the node of attempt 2 of run"):
        begun.add_node(RUN, samples.unusable_node(2), elapsed_s=2.0)
    assert [samples.node(2)] == begun.nodes(RUN)
    assert begun.selections(RUN)[2] == samples.IMPROVE_ROOT


def test_a_node_belongs_to_the_attempt_that_was_begun(begun: Store) -> None:
    with pytest.raises(StoreError, match="no attempt 4 that was begun as `improve` of attempt 0"):
        begun.add_node(RUN, samples.node(4), elapsed_s=1.0)
    elsewhere = samples.node(3, selection=Selection(parent=2, action="debug"))
    with pytest.raises(StoreError, match="no attempt 3 that was begun as `debug` of attempt 2"):
        begun.add_node(RUN, elsewhere, elapsed_s=1.0)
    assert begun.nodes(RUN) == []


def test_calls_are_read_as_they_were_stored(begun: Store) -> None:
    for attempt, turn in ((2, 0), (1, 1), (1, 0)):
        samples.answer(begun, RUN, samples.call(attempt, turn, reply=f"{attempt}.{turn}"))
    silent = samples.call(3).model_copy(update={"messages": ()})
    samples.answer(begun, RUN, silent)
    first = [samples.call(1, turn, reply=f"1.{turn}") for turn in (0, 1)]
    assert first == begun.calls(RUN, 1)
    assert [*first, samples.call(2, 0, reply="2.0"), silent] == begun.calls(RUN)


def test_how_a_prompt_was_fitted_comes_back(begun: Store) -> None:
    fit = Fit(limit_tokens=900, tokens=880, cuts=(Cut(attempt=2, kept="line"),))
    samples.answer(begun, RUN, samples.call(1).model_copy(update={"fit": fit}))
    samples.answer(begun, RUN, samples.call(2))
    assert [fit, None] == [call.fit for call in begun.calls(RUN)]


def test_a_turn_is_paid_for_once(begun: Store) -> None:
    samples.answer(begun, RUN, samples.call(1, reply="first"))
    with pytest.raises(StoreError, match="storing turn 0 of attempt 1"):
        samples.answer(begun, RUN, samples.call(1, reply="second"))
    assert [samples.call(1, reply="first")] == begun.calls(RUN)


def test_runs_do_not_see_each_other(begun: Store) -> None:
    begun.create_run(samples.run("other"))
    begun.begin_attempt("other", 1, samples.IMPROVE_ROOT)
    samples.answer(begun, "other", samples.call(1))
    begun.add_node("other", samples.node(1), elapsed_s=5.0)
    assert (begun.calls(RUN), begun.nodes(RUN), begun.elapsed_s(RUN)) == ([], [], 0.0)
    assert {1, 2, 3} == set(begun.unfinished(RUN))
    assert begun.unfinished("other") == {}


def test_any_text_comes_back_as_it_was(store: Store) -> None:
    store.create_run(samples.run(source=ANYTHING))
    for attempt in (1, 2):
        store.begin_attempt(RUN, attempt, samples.IMPROVE_ROOT)
    samples.answer(store, RUN, samples.call(1, text=ANYTHING, reply=ANYTHING))
    crashed = Crashed(phase="load", error=ANYTHING, output=ANYTHING)
    store.add_node(RUN, samples.node(1, crashed, source=ANYTHING), elapsed_s=1.0)
    ended = Ended(kind="refused", detail=ANYTHING)
    store.end_run(RUN, ended)
    assert ended == store.ended(RUN)
    assert samples.run(source=ANYTHING) == store.run(RUN)
    assert [samples.call(1, text=ANYTHING, reply=ANYTHING)] == store.calls(RUN)
    assert [samples.node(1, crashed, source=ANYTHING)] == store.nodes(RUN)


def test_final_checks_come_back_and_are_what_a_list_shows(begun: Store) -> None:
    begun.add_node(RUN, samples.node(1), elapsed_s=1.0)
    begun.add_node(RUN, samples.node(2), elapsed_s=1.0)
    assert {} == begun.promotions(RUN)

    begun.add_promotion(RUN, 1, samples.correct(0.8))
    begun.add_promotion(RUN, 2, Incorrect(error="only sometimes right"))

    assert {1: samples.correct(0.8), 2: Incorrect(error="only sometimes right")} == (
        begun.promotions(RUN)
    )
    assert [0.8] == [summary.latency_ms for summary in begun.summaries()]
    with pytest.raises(StoreError):
        begun.add_promotion(RUN, 1, samples.correct(0.1))


def test_a_run_of_which_nothing_held_has_no_speedup(begun: Store) -> None:
    begun.add_node(RUN, samples.node(1, samples.correct(0.5)), elapsed_s=1.0)
    assert [0.5] == [summary.latency_ms for summary in begun.summaries()]

    begun.add_promotion(RUN, 1, Incorrect(error="only sometimes right"))

    assert [(None, None)] == [(s.latency_ms, s.speedup) for s in begun.summaries()]


def test_other_kinds_of_machines_are_kept_apart_and_shown_in_no_list(begun: Store) -> None:
    kinds = ("Large GPU, 192 GB; torch 2.13.0", "Small GPU, 24 GB; torch 2.13.0")
    begun.set_reference(RUN, samples.reference(), dict.fromkeys(kinds, samples.reference()))
    begun.add_node(RUN, samples.node(1, samples.correct(0.5)), elapsed_s=1.0)
    begun.add_promotion(RUN, 1, samples.correct(0.8))
    before = begun.summaries(), begun.promotions(RUN)

    begun.add_elsewhere(RUN, 1, kinds[1], samples.correct(0.1))

    assert before == (begun.summaries(), begun.promotions(RUN))
    large, small = (begun.elsewhere(RUN)[kind] for kind in kinds)
    assert [samples.reference()] * 2 == [large.reference, small.reference]
    assert ({}, {1: samples.correct(0.1)}) == (large.checks, small.checks)
    with pytest.raises(StoreError):
        begun.add_elsewhere(RUN, 1, kinds[1], samples.correct(0.2))
    own, *others = begun.outcome(RUN, 30).classes.values()
    assert [0.8, 0.1] == [each[1].latency_ms for each in (own, *filter(None, others))]

    run = begun.run(RUN)
    moved = run.model_copy(
        update={"config": run.config.model_copy(update={"executor": "local:cpu"})}
    )
    begun.reconfigure(moved)
    assert (None, {}) == (begun.reference(RUN), begun.elsewhere(RUN))


def test_what_tuning_found_of_the_last_attempt_is_read_for_other_kinds_too(store: Store) -> None:
    """Tuning costs no attempt, so the numbers of attempts are larger than their count."""
    kind, tuning = "Small GPU, 24 GB; torch 2.13.0", Selection(parent=1, action="tune")
    store.create_run(samples.run())
    store.set_reference(RUN, samples.reference(), {kind: samples.reference()})
    for attempt, selection in ((1, samples.IMPROVE_ROOT), (2, tuning), (3, samples.IMPROVE_ROOT)):
        store.begin_attempt(RUN, attempt, selection)
        node = samples.node(attempt, samples.correct(0.5), selection=selection)
        store.add_node(RUN, node, elapsed_s=1.0)
        store.add_elsewhere(RUN, attempt, kind, samples.correct(0.1))

    first, both = (store.outcome(RUN, attempts).classes[kind] for attempts in (1, 2))

    assert ({1, 2}, {1, 2, 3}) == (set(first), set(both))


def test_a_text_is_stored_once(begun: Store) -> None:
    def artifacts() -> int:
        with begun._database.reading("counting") as connection:
            return connection.scalar(select(func.count()).select_from(ArtifactRow)) or 0

    before = artifacts()
    for attempt in (1, 2, 3):
        samples.answer(begun, RUN, samples.call(attempt))
        begun.add_node(RUN, samples.node(attempt), elapsed_s=1.0)
    begun.create_run(samples.run("the-same-problem"))
    # Three distinct messages, one reply, one source.
    assert artifacts() == before + 5


def test_languages_share_a_source_and_keep_their_name(begun: Store) -> None:
    cuda = samples.node(2).model_copy(
        update={"candidate": Candidate(language="cuda", source="class ModelNew: ...\n")}
    )
    begun.add_node(RUN, samples.node(1), elapsed_s=1.0)
    begun.add_node(RUN, cuda, elapsed_s=2.0)
    assert [samples.node(1), cuda] == begun.nodes(RUN)


def test_summaries_say_how_each_run_stands(begun: Store) -> None:
    evaluations = (samples.correct(0.5, eager_ms=3.0), samples.correct(0.25), None)
    for attempt, evaluation in enumerate(evaluations, start=1):
        begun.add_node(RUN, samples.node(attempt, evaluation), elapsed_s=1.0)
    begun.create_run(samples.run("newer"))
    newer, older = begun.summaries()
    common = {
        "created": samples.run().created,
        "problem": "level1/40_LayerNorm",
        "strategy": "stark",
        "language": "triton",
        "budget_attempts": 30,
        "ended": None,
        "confirmed": False,
    }
    none = {"best_attempt": None, "latency_ms": None, "speedup": None}
    assert newer == RunSummary(id="newer", attempts=0, correct=0, **none, **common)
    # The larger paired speedup is the best, as in the tree, though another's latency was lower.
    best = samples.correct(0.5, eager_ms=3.0).speedup_vs("eager")
    assert older == RunSummary(
        id=RUN, attempts=3, correct=2, best_attempt=1, latency_ms=0.5, speedup=best, **common
    )


CHECKED: list[dict[int, Evaluation]] = [
    {},
    {2: samples.correct(0.4)},
    {3: Incorrect(error="only sometimes right"), 2: samples.correct(0.4), 1: samples.correct(0.3)},
    {3: Incorrect(error="only sometimes right")},
]


@pytest.mark.parametrize("checks", CHECKED, ids=len)
def test_summaries_and_outcomes_agree_with_the_standing(
    begun: Store, checks: dict[int, Evaluation]
) -> None:
    for attempt in (1, 2, 3):
        begun.add_node(RUN, samples.node(attempt, samples.correct(1 / attempt)), elapsed_s=1.0)
    for attempt, found in checks.items():
        begun.add_promotion(RUN, attempt, found)

    best = best_node(begun.nodes(RUN), begun.promotions(RUN))
    (summary,), outcome = begun.summaries(), begun.outcome(RUN, 30)

    assert best is None if checks == CHECKED[3] else best is not None
    expected = (best and best.id, best and best.latency_ms, best and best.speedup_vs_eager)
    ratio = summary.speedup and summary.speedup.ratio
    assert expected == (summary.best_attempt, summary.latency_ms, ratio)
    assert expected[0] == outcome.best_attempt
    assert (best and best.evaluation) == outcome.best
    assert bool(checks) == outcome.confirmed


def test_threads_may_write_at_once(store: Store) -> None:
    store.create_run(samples.run())

    def attempt(number: int) -> None:
        store.begin_attempt(RUN, number, samples.IMPROVE_ROOT)
        samples.answer(store, RUN, samples.call(number))
        store.add_node(RUN, samples.node(number), elapsed_s=1.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(attempt, range(1, 13)))
    assert set(range(1, 13)) == {node.id for node in store.nodes(RUN)}
    assert len(store.calls(RUN)) == 12


def test_everything_is_there_after_reopening(shared_url: str) -> None:
    with Store.open(shared_url) as store:
        store.create_run(samples.run())
        store.begin_attempt(RUN, 1, samples.IMPROVE_ROOT)
        samples.answer(store, RUN, samples.call(1))
        store.add_node(RUN, samples.node(1), elapsed_s=3.5)
    with Store.open(shared_url) as store:
        assert samples.run() == store.run(RUN)
        assert [samples.call(1)] == store.calls(RUN)
        assert [samples.node(1)] == store.nodes(RUN)
        assert store.elapsed_s(RUN) == 3.5
