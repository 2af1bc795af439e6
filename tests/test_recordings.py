from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import loop_samples as samples
from loop_samples import Worked
from stark.configuration import replayed_run
from stark.core.call import Message
from stark.core.candidate import Candidate
from stark.core.errors import ModelRefused, PromptRefused, RecordingError, UsageError
from stark.core.evaluation import Evaluation
from stark.core.judging import Limits
from stark.core.node import Node
from stark.core.problem import Problem
from stark.core.usage import Budget
from stark.events import AttemptFinished, Event
from stark.options import checked_options
from stark.recorded import (
    RecordedReplies,
    Recording,
    keep,
    read_recording,
    record,
    write_recording,
)
from stark.search.policies.recorded import Recorded
from stark.store import Store
from stark.strategies import STRATEGIES, strategy
from support.executor import FakeExecutor, invented
from support.nodes import correct, failure
from support.recordings import RESULTS
from support.replies import prompt_of

ATTEMPTS = 15


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


async def recorded(
    store: Store,
    name: str = "stark",
    parallel: int = 1,
    judge: Callable[[Candidate], Evaluation] = invented,
) -> Recording:
    """The recording of a run by this strategy."""
    run = samples.run(name, ATTEMPTS, parallel=parallel)
    await samples.work(store, run, FakeExecutor(judge, delay_s=0.001))
    return record(store, run)


@pytest.fixture(scope="module")
def recordings() -> dict[tuple[str, int], Recording]:
    """By strategy and attempts at once, so that each is recorded once for all judges."""
    return {}


async def followed(
    recording: Recording, judge: Callable[[Candidate], Evaluation], **changes: object
) -> Worked:
    """A new run in a new store that follows a recording; `changes` are those of its configuration."""
    config = recording.run.config.model_copy(update=changes)
    run = recording.run.model_copy(update={"id": "again-1", "config": config})
    with Store.open("sqlite://") as store:
        return await samples.work(
            store,
            run,
            FakeExecutor(judge),
            RecordedReplies(recording),
            policy=Recorded(recording.selections),
        )


def work_of(nodes: tuple[Node, ...]) -> dict[int, object]:
    """Each attempt without its evaluation and its price: where it started, and what was written."""
    return {
        node.id: (node.parent, node.action, node.role, node.plan, node.edits, node.candidate)
        for node in nodes
    }


def contrary(candidate: Candidate) -> Evaluation:
    """Another device's verdict: what worked fails, and what failed works."""
    return correct(0.5) if invented(candidate).status != "correct" else failure("crashed")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
async def test_a_recording_written_and_read_is_the_same(
    store: Store, tmp_path: Path, name: str
) -> None:
    recording = await recorded(store)
    path = tmp_path / "new folder" / name

    write_recording(recording, path)

    assert recording == read_recording(path)
    assert ATTEMPTS == len(recording.nodes) == len(recording.selections)


@pytest.mark.slow
@pytest.mark.parametrize("judge", [invented, contrary, lambda _: failure("timed_out")])
@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("name", STRATEGIES)
async def test_following_a_recording_gives_the_same_sources_plans_and_tree(
    recordings: dict[tuple[str, int], Recording],
    store: Store,
    name: str,
    parallel: int,
    judge: Callable[[Candidate], Evaluation],
) -> None:
    if (name, parallel) not in recordings:
        recordings[name, parallel] = await recorded(store, name, parallel)
    recording = recordings[name, parallel]

    worked = await followed(recording, judge)

    assert work_of(recording.nodes) == work_of(worked.tree.nodes)
    verdicts = {node.id: judge(node.candidate) for node in worked.tree.nodes if node.candidate}
    assert verdicts == {node.id: node.evaluation for node in worked.tree.nodes}


async def test_following_with_another_number_of_attempts_at_once_makes_the_same_tree(
    store: Store,
) -> None:
    recording = await recorded(store, parallel=4)

    worked = await followed(recording, contrary, parallel=1)

    assert list(range(1, ATTEMPTS + 1)) == [node.id for node in worked.tree.nodes]
    assert work_of(recording.nodes) == work_of(worked.tree.nodes)


async def test_replies_that_were_unusable_are_so_again(store: Store) -> None:
    run = samples.run(attempts=4)
    await samples.work(store, run, replies=samples.scripted(samples.never_a_plan)[0])

    worked = await followed(record(store, run), invented)

    assert [node.evaluation for node in store.nodes(run.id)] == [
        n.evaluation for n in worked.tree.nodes
    ]
    assert {"unusable"} == {node.evaluation.status for node in worked.tree.nodes}


async def test_a_conversation_that_was_refused_is_so_again(store: Store) -> None:
    def objects_to_the_third(messages: tuple[Message, ...]) -> str:
        if 5 == len(model.asked):
            raise PromptRefused("too long")
        return samples.team_reply(messages)

    run = samples.run(attempts=4)
    replies, model = samples.scripted(objects_to_the_third)
    await samples.work(store, run, replies=replies)

    worked = await followed(record(store, run), invented)

    refused = [node.id for node in worked.tree.nodes if node.evaluation.status == "unusable"]
    assert [n.id for n in store.nodes(run.id) if n.candidate is None] == refused != []
    assert work_of(tuple(store.nodes(run.id))) == work_of(worked.tree.nodes)


async def test_following_costs_tokens_in_the_books_and_no_money(store: Store) -> None:
    def builds(candidate: Candidate) -> Evaluation:
        """A candidate that does not build goes back in a run, which costs more, but not in a replay."""
        found = invented(candidate)
        return failure("incorrect") if found.status == "build_failed" else found

    recording = await recorded(store, judge=builds)

    worked = await followed(recording, builds)

    once = store.spent()[recording.run.id]
    now = worked.ledger.spent_by_role
    assert {role: spent.tokens for role, spent in once.items()} == {
        role: spent.tokens for role, spent in now.items()
    }
    assert (0.0, 0) == (worked.ledger.spent.dollars, worked.ledger.spent.unpriced_calls)


async def test_an_attempt_that_began_after_the_last_finished_one_is_left_out(store: Store) -> None:
    recording = await recorded(store)
    run = recording.run
    store.begin_attempt(run.id, ATTEMPTS + 1, recording.selections[1])

    assert recording == record(store, run)


async def test_an_attempt_that_a_failure_stopped_is_recorded_and_found_unusable_by_a_replay(
    store: Store,
) -> None:
    run = samples.run(attempts=6, parallel=3)

    others_finished = asyncio.Event()

    def note(event: Event) -> None:
        if isinstance(event, AttemptFinished) and event.node.id == 5:
            others_finished.set()

    async def before(attempt: int, turn: int) -> None:
        if (attempt, turn) == (2, 1):
            await others_finished.wait()
            raise ModelRefused("the key is used up: add credit")

    with pytest.raises(ModelRefused):
        await samples.work(store, run, replies=samples.Arranged(before), on_event=note)
    recording = record(store, run)
    assert [1, 3, 4, 5] == [node.id for node in recording.nodes]
    assert {2} == set(recording.unusable) < set(recording.selections)
    assert 1 == sum(call.attempt == 2 for call in recording.calls)

    budget = Budget(attempts=len(recording.selections))
    worked = await followed(recording, invented, budget=budget)

    unusable = worked.tree.node(2)
    assert "the recorded run did not finish this attempt" == unusable.evaluation.reason
    assert work_of(recording.nodes).items() <= work_of(worked.tree.nodes).items()
    # A reply that was sent back is not given again.
    decided = {(call.attempt, call.role) for call in recording.calls}
    assert len(decided) == worked.ledger.spent.calls


def test_a_run_without_a_finished_attempt_is_no_recording(store: Store) -> None:
    run = samples.run()
    store.create_run(run)

    with pytest.raises(UsageError, match="has no finished attempt to record"):
        record(store, run)


# What cannot be read or followed.


def write_changed(recording: Recording, path: Path, changes: dict[str, object]) -> None:
    """A recording as somebody else's program wrote it."""
    write_recording(recording, path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.json")


async def test_a_compressed_recording_is_smaller_and_the_same_every_time(
    store: Store, tmp_path: Path
) -> None:
    recording = await recorded(store)
    plain, packed, again = (tmp_path / name for name in ("a.json", "b.json.gz", "c.json.gz"))

    for path in (plain, packed, again):
        write_recording(recording, path)

    assert 4 * packed.stat().st_size < plain.stat().st_size
    assert packed.read_bytes() == again.read_bytes()
    packed.write_bytes(packed.read_bytes()[:-20])
    assert "is damaged" in refusal(packed)
    packed.write_bytes(plain.read_bytes())
    assert "is damaged" in refusal(packed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "since it is not JSON") for text in ("", "not JSON", "\udcff")),
        *((text, "of this version of STARK") for text in ("{}", "[1]", '{"format": 1}')),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    assert f"{path} is no recording" in refusal(path)
    assert f"{said}; make one with" in refusal(path)


@pytest.mark.parametrize("changes", [{"format": 2}, {"extra": 1}, {"run": {}}, {"calls": None}])
async def test_a_recording_of_another_version_is_refused(
    store: Store, tmp_path: Path, changes: dict[str, object]
) -> None:
    path = tmp_path / "run.json"
    write_changed(await recorded(store), path, changes)

    text = refusal(path)

    assert "is no recording of this version of STARK" in text
    assert "stark record" in text


async def test_a_missing_reply_is_named(store: Store) -> None:
    recording = await recorded(store)
    asked = recording.calls[-1]
    without = tuple(call for call in recording.calls if call != asked)

    with pytest.raises(RecordingError) as caught:
        await followed(recording.model_copy(update={"calls": without}), invented)

    missing = f"no reply of the {asked.role} role for attempt {asked.attempt};"
    assert missing in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_reply_of_another_role_is_not_taken_for_this_one(store: Store) -> None:
    recording = await recorded(store)

    with pytest.raises(RecordingError, match="no reply of the solo role for attempt 1;"):
        await followed(recording, invented, strategy=strategy("sampling"))


async def test_a_larger_budget_than_the_recording_is_refused(store: Store) -> None:
    recording = await recorded(store)

    with pytest.raises(RecordingError, match=f"has no attempt {ATTEMPTS + 1}"):
        await followed(recording, invented, budget=Budget(attempts=ATTEMPTS + 1))


async def test_a_problem_that_is_left_out_stands_nowhere_and_can_be_put_back(store: Store) -> None:
    recording = await recorded(store)
    problem = recording.run.problem

    without = recording.without_problem()

    assert problem.source in prompt_of(recording.calls[0].messages)
    assert not any(
        problem.source in message.text for call in without.calls for message in call.messages
    )
    assert problem.digest == without.left_out != without.run.problem.digest
    assert recording == without.with_problem(problem)


async def test_a_text_with_blank_lines_around_it_is_left_out_of_prompts_too(store: Store) -> None:
    recording = await recorded(store)
    problem = recording.run.problem
    loose = Problem(name=problem.name, source=f"\n{problem.source}\n\n")
    recording = recording.model_copy(
        update={"run": recording.run.model_copy(update={"problem": loose})}
    )

    without = recording.without_problem()

    assert problem.source.strip() not in prompt_of(without.calls[0].messages)


async def test_a_text_that_a_reply_repeats_cannot_be_left_out(store: Store) -> None:
    recording = await recorded(store)
    call = recording.calls[0]
    said = call.reply.model_copy(update={"text": f"It says\n{recording.run.problem.source}"})
    calls = (call.model_copy(update={"reply": said}), *recording.calls[1:])

    with pytest.raises(RecordingError, match="repeats the problem's text"):
        recording.model_copy(update={"calls": calls}).without_problem()


async def test_another_problem_is_not_put_back(store: Store) -> None:
    without = (await recorded(store)).without_problem()

    with pytest.raises(RecordingError, match="differs from the problem other"):
        without.with_problem(Problem(name="other", source="pass"))


async def test_a_recording_does_not_say_where_it_was_judged(store: Store) -> None:
    run = samples.run("sampling", 1, executor="folder:/home/me/queue")
    await samples.work(store, run)

    assert "folder" == record(store, run).run.config.executor


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("exec[by hand]:KEY=secret /home/me/answer.sh\nand more", "exec[by hand]"),
        ("exec:ask --at m@https://me:secret@host/v1", "exec"),
        ("openai-compatible:m@2025@https://me:secret@llm.corp/v1", "openai-compatible:m@2025"),
        ("vllm:Qwen/Qwen3@http://gpu1:8000/v1?key=secret", "vllm:Qwen/Qwen3"),
        ("anthropic:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
    ],
)
async def test_a_recording_names_a_model_and_not_what_is_behind_it(
    store: Store, spec: str, name: str
) -> None:
    run = samples.run("sampling", 1, models=samples.models_named(spec))
    await samples.work(store, run)

    models = record(store, run).run.config.models

    assert {name} == {entry.model for entry in models.values()}


async def test_a_replay_keeps_the_precision_unless_another_is_chosen(store: Store) -> None:
    recording = await recorded(store)
    config = recording.run.config
    loose = config.model_copy(update={"limits": Limits(precision="tf32", build_s=9)})
    recording = recording.model_copy(
        update={"run": recording.run.model_copy(update={"config": loose})}
    )

    kept = replayed_run(recording, checked_options({"build_s": 60}), ())
    chosen = replayed_run(recording, checked_options({"precision": "reference"}), ())

    assert Limits(precision="tf32", build_s=60) == kept.config.limits
    assert "reference" == chosen.config.limits.precision


def test_a_recording_can_be_kept_and_recorded_again() -> None:
    recording = read_recording(next(RESULTS.rglob("rmsnorm-swiglu-stark.json.gz")))
    with Store.open("sqlite://") as kept:
        keep(recording, kept)

        assert recording == record(kept, kept.run(recording.run.id))
        assert list(recording.promotions) == list(kept.promotions(recording.run.id))


async def test_a_recorded_reply_that_no_usable_one_followed_is_given_after_it(store: Store) -> None:
    """A build failed, and the reply to its errors had no candidate: the first candidate counted."""
    sources = iter([samples.team_reply, lambda _: "no code"])
    run, executor = samples.run("sampling", 1), FakeExecutor(lambda _: failure("build_failed"))
    replies, _ = samples.scripted(lambda messages: next(sources)(messages))
    await samples.work(store, run, executor, replies)
    recording = record(store, run)

    worked = await followed(recording, lambda _: failure("build_failed"))

    assert work_of(recording.nodes) == work_of(worked.tree.nodes)
    assert ["build_failed"] == [node.evaluation.status for node in worked.tree.nodes]


async def test_a_replay_sends_no_candidate_back(store: Store) -> None:
    run, executor = samples.run("sampling", 1), FakeExecutor(lambda _: failure("build_failed"))
    await samples.work(store, run, executor)
    recording = record(store, run)
    assert 2 == len(recording.calls)

    worked = await followed(recording, lambda _: failure("build_failed"))

    assert 1 == worked.ledger.spent.calls
    assert work_of(recording.nodes) == work_of(worked.tree.nodes)
