"""What earlier runs of a store teach a new one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import loop_samples as samples
from stark.benches.report import make_report
from stark.configuration import configure, reconfigured
from stark.core.bench import Bench, Cell
from stark.core.call import Call, Message, Reply
from stark.core.candidate import Candidate
from stark.core.device import Device
from stark.core.errors import UsageError
from stark.core.evaluation import Evaluation
from stark.core.lesson import Change, Lesson, Repair
from stark.core.node import ROOT, Action, Node, Selection
from stark.core.plan import Plan
from stark.core.problem import Problem
from stark.core.profile import Profile, Step
from stark.core.reference import Reference, TensorSpec
from stark.core.run import Ended, Run
from stark.core.usage import Budget, Cost
from stark.evaluator.executors import Executor
from stark.explain.lesson import lesson_text
from stark.lessons import MOST, lessons_of, with_lessons
from stark.options import RunOptions
from stark.recorded import record
from stark.report.facts import run_facts
from stark.report.progress import Lines
from stark.report.view import RunView
from stark.store import Store
from support.executor import FakeExecutor
from support.nodes import CPU, DEVICE, ROOFLINE, correct, failure, measurement, noisy


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open("sqlite://") as store:
        yield store


def reference(
    dtype: str = "float32", device: Device = DEVICE, driver: str = "560", **shares: float
) -> Reference:
    """Of a program whose time goes into these operators."""
    steps = tuple(
        Step(name=f"aten::{name}", count=1.0, time_ms=share, share=share, own=False)
        for name, share in (shares or {"_softmax": 0.7, "mul": 0.3}).items()
    )
    spec = TensorSpec(shape=(64, 256), dtype=dtype)
    return Reference(
        device=device,
        versions={"torch": "2.9.0", "driver": driver},
        inputs=(spec, TensorSpec(shape=(64,), dtype="int64")),
        outputs=(spec,),
        eager=measurement(1.0),
        roofline=ROOFLINE,
        profile=Profile(clock="device", steps=steps, count=2.0, busy_ms=1.0, own_share=0.0),
    )


def attempt(
    id: int, evaluation: Evaluation, title: str, parent: int = ROOT, action: Action = "improve"
) -> Node:
    return Node(
        id=id,
        parent=parent,
        action=action,
        role="debug" if action == "debug" else "code",
        plan=Plan(action="rewrite", title=title, strategy="Do it."),
        candidate=Candidate(language="triton", source=f"# {id}\nclass ModelNew: ...\n"),
        evaluation=evaluation,
    )


GAIN = attempt(1, correct(0.5), "One pass")


def earlier(
    store: Store,
    id: str,
    *nodes: Node,
    measured: Reference | None = None,
    problem: Problem | None = None,
    ended: bool = True,
    **changes: object,
) -> Run:
    """Store a run with these nodes."""
    problem = problem or Problem(name=id, source=f"# {id}\n")
    run = samples.run(id=id, problem=problem, **changes)
    store.create_run(run)
    store.set_reference(id, measured or reference())
    for node in nodes:
        store.begin_attempt(id, node.id, Selection(parent=node.parent, action=node.action))
        store.add_node(id, node, 1.0)
    if ended:
        store.end_run(id, Ended(kind="attempts", detail="all made"))
    return run


def new(strategy: str = "stark", **changes: object) -> Run:
    """A run whose lessons are to be chosen."""
    return samples.run(strategy, lessons=None, **changes)


def taught(store: Store, run: Run | None = None, measured: Reference | None = None) -> list[Lesson]:
    found = with_lessons(run or new(), store, measured or reference()).config.lessons
    assert found is not None
    return list(found)


def lessons(*nodes: Node, refuted: tuple[int, ...] = ()) -> list[Lesson]:
    return list(lessons_of(samples.run(), reference(), nodes, refuted))


# What an attempt taught.


def test_a_gain_is_against_the_parent_with_the_worst_of_both_intervals() -> None:
    first, second = lessons(GAIN, attempt(2, correct(0.4), "Wider loads", 1))

    assert ("One pass", "Wider loads") == (first.idea, second.idea)
    assert isinstance(first.result, Change) and isinstance(second.result, Change)
    assert (2.0, "eager") == (
        pytest.approx(first.result.speedup.ratio),
        first.result.speedup.reference,
    )
    own, base = correct(0.4).speedup_vs(), correct(0.5).speedup_vs()
    found = second.result.speedup
    assert ("parent", own.ratio / base.ratio) == (found.reference, found.ratio)
    assert (own.low / base.high, own.high / base.low) == (found.low, found.high)
    assert ("softmax", "mul") == first.operators
    assert ("float32", "triton", "Invented GPU") == (first.dtype, first.language, first.device)


def test_only_what_is_certain_is_taught() -> None:
    base = correct(0.5)
    wide = base.model_copy(
        update={"candidate": base.candidate.model_copy(update={"resolution_ms": 0.1})}
    )

    assert [] == lessons(attempt(1, noisy(0.3), "Noisy"))
    assert [] == lessons(attempt(1, correct(1.0), "The same"))
    found = lessons(attempt(1, wide, "Wide"), attempt(2, correct(0.45), "Not certain", 1))
    assert ["Wide"] == [lesson.idea for lesson in found]
    assert ["loss"] == [lesson.sort for lesson in lessons(attempt(1, correct(1.5), "Slow"))]


def test_a_failure_is_taught_with_its_repair_alone() -> None:
    failed = attempt(1, failure("build_failed"), "Use float4")
    unrepaired = attempt(2, failure("crashed"), "Persistent")
    repairs = [
        attempt(3, failure("incorrect"), "Use float4", 1, "debug"),
        attempt(4, correct(0.5), "Use float4", 3, "debug"),
    ]

    (lesson,) = lessons(failed, unrepaired, *repairs)

    assert ("Use float4", 4, "repair") == (lesson.idea, lesson.attempt, lesson.sort)
    assert isinstance(lesson.result, Repair) and lesson.result.failure


def test_nothing_is_taught_by_what_failed_the_final_check_repeats_or_has_no_plan() -> None:
    copy = GAIN.model_copy(update={"id": 2, "duplicate_of": 1})

    assert [] == lessons(GAIN, refuted=(1,))
    assert [1] == [lesson.attempt for lesson in lessons(GAIN, copy)]
    assert [] == lessons(GAIN.model_copy(update={"plan": None}))


def test_a_repair_names_the_cause_that_its_reply_states(store: Store) -> None:
    nodes = [
        attempt(1, failure("build_failed"), "Use float4"),
        attempt(2, correct(0.5), "Use float4", 1, "debug"),
    ]
    earlier(store, "softmax-1", *nodes)
    said = "The pointer **was not** aligned to 16 bytes. I pad it.\n```python\nx\n```"
    asked = store.begin_call("softmax-1", 2, "debug", "m", Cost())
    call = Call(
        attempt=2,
        turn=0,
        role="debug",
        messages=(Message(speaker="user", text="repair"),),
        reply=Reply(text=said, model="m"),
    )
    store.add_call("softmax-1", call, asked, 1.0)

    (lesson,) = taught(store)

    assert isinstance(lesson.result, Repair)
    assert "The pointer was not aligned to 16 bytes" == lesson.result.cause
    assert lesson_text(lesson).endswith("; the cause: The pointer was not aligned to 16 bytes")


def test_a_lesson_is_one_line() -> None:
    (lesson,) = lessons(GAIN)

    assert (
        "One pass (softmax, mul; float32; triton, Invented GPU): 2.00x vs eager [2.00, 2.00]"
        == lesson_text(lesson)
    )


# Which are chosen.


def test_runs_on_the_same_class_of_device_come_first_then_the_most_similar(store: Store) -> None:
    measured = {
        "other-driver": reference(driver="535"),
        "other-type": reference("bfloat16"),
        "less-softmax": reference(_softmax=0.5, sum=0.5),
        "most-alike": reference(),
    }
    for name, its in measured.items():
        earlier(store, name, attempt(1, correct(0.5), f"Idea of {name}"), measured=its)

    expected = ["most-alike", "less-softmax", "other-type", "other-driver"]
    assert expected == [lesson.run for lesson in taught(store)]


@pytest.mark.parametrize(
    "its",
    [
        reference(device=CPU),
        reference(conv2d=1.0),
        reference(_softmax=0.2, conv2d=0.8),
        reference().model_copy(update={"profile": None}),
    ],
)
def test_other_kinds_of_devices_and_of_work_teach_nothing(store: Store, its: Reference) -> None:
    earlier(store, "unlike", GAIN, measured=its)

    assert [] == taught(store)
    assert [] == taught(store, measured=its.model_copy(update={"profile": None}))


def test_the_same_problem_never_teaches(store: Store) -> None:
    run = new()
    earlier(store, "same-text", GAIN, problem=Problem(name="x", source=run.problem.source))
    earlier(store, "same-name", GAIN, problem=Problem(name=run.problem.name, source="# other\n"))

    assert [] == taught(store, run)
    elsewhere = new(problem=Problem(name="y", source="# y\n"))
    assert ["One pass"] == [lesson.idea for lesson in taught(store, elsewhere)], "it is told once"


def test_only_ended_runs_teach_that_are_no_replays(store: Store) -> None:
    earlier(store, "going-on", GAIN, ended=False)
    earlier(store, "replay", GAIN, models=samples.models_named("recorded:m"))

    assert [] == taught(store)


def test_runs_of_the_same_bench_do_not_teach_each_other(store: Store) -> None:
    run = new()
    store.create_run(run)
    first = earlier(store, "softmax-1", GAIN)
    cells = tuple(
        Cell(problem=one.problem.name, level="1", strategy="stark", seed=1, run_id=one.id)
        for one in (run, first)
    )
    bench = Bench(
        name="b", created=datetime(2026, 1, 1, tzinfo=UTC), cells=cells, attempts=1, budget=Budget()
    )
    store.create_bench(bench, [])

    assert [] == taught(store, run)
    assert 1 == len(taught(store, new(id="elsewhere-1")))
    assert "no prompt had lessons of earlier runs" in make_report(store, bench).notes


def test_a_problem_teaches_its_best_gain_its_repair_and_its_worst_loss(store: Store) -> None:
    nodes = [
        attempt(1, correct(0.5), "One pass"),
        attempt(2, correct(0.2), "Wider loads", 1),
        attempt(3, correct(0.9), "Split rows", 1),
        attempt(4, correct(2.0), "Atomics", 1),
        attempt(5, failure("build_failed"), "Use float4"),
        attempt(6, correct(0.5), "Use float4", 5, "debug"),
    ]
    earlier(store, "softmax-1", *nodes)

    assert ["Wider loads", "Use float4", "Atomics"] == [lesson.idea for lesson in taught(store)]


def test_at_most_five_lessons_are_told(store: Store) -> None:
    for number in range(MOST + 2):
        earlier(store, f"run-{number}", attempt(1, correct(0.5 + number / 100), f"Idea {number}"))

    assert [f"Idea {number}" for number in range(MOST)] == [lesson.idea for lesson in taught(store)]


# In a run.


class Measured(FakeExecutor):
    """With a reference that has a profile."""

    async def describe(self, problem: Problem) -> Reference:
        return reference()

    def on(self, device_class: str) -> Executor:
        return self


@pytest.mark.parametrize("name", ["stark", "reflexion"])
async def test_whoever_plans_sees_the_lessons_and_they_stay(store: Store, name: str) -> None:
    earlier(store, "softmax-1", GAIN)
    run = new(strategy=name, budget=Budget(attempts=1))

    await samples.work(store, run, Measured())
    earlier(store, "softmax-2", attempt(1, correct(0.1), "Even better"))
    again = reconfigured(store.run(run.id), {"attempts": 2})
    worked = await samples.work(store, again, Measured())

    (lesson,) = store.run(run.id).config.lessons or ()
    assert "softmax-1" == lesson.run
    for call in store.calls(run.id):
        prompt = "\n".join(message.text for message in call.messages)
        assert (lesson_text(lesson) in prompt) == (call.role in ("plan", "solo"))
        assert "Even better" not in prompt
    lines = [line for event in worked.events for line in Lines().of(event)]
    assert "lessons: 1 lesson of softmax-1 (softmax-1)" in lines
    facts = dict(run_facts(RunView.of_store(store, run.id)))
    assert "1 lesson of softmax-1 (softmax-1)" == facts["lessons"]
    assert (lesson,) == record(store, store.run(run.id)).run.config.lessons


def test_lessons_are_chosen_later_if_asked_for_and_never_changed() -> None:
    asked, not_asked = (
        configure(RunOptions(model="exec:cat", **options)).lessons
        for options in ({"lessons": "auto"}, {})
    )

    assert (None, ()) == (asked, not_asked)
    with pytest.raises(UsageError, match="keeps its lessons"):
        reconfigured(new(), {"lessons": "none"})


async def test_no_lessons_are_chosen_unless_they_are_asked_for(store: Store) -> None:
    earlier(store, "softmax-1", GAIN)
    run = samples.run(attempts=1)

    await samples.work(store, run, Measured())

    assert () == store.run(run.id).config.lessons
    assert "lessons" not in dict(run_facts(RunView.of_store(store, run.id)))


async def test_a_bench_says_which_runs_taught_it(store: Store) -> None:
    earlier(store, "softmax-1", GAIN)
    run = new(budget=Budget(attempts=1))
    cell = Cell(problem=run.problem.name, level="1", strategy="stark", seed=1, run_id=run.id)
    bench = Bench(
        name="b",
        created=datetime(2026, 1, 1, tzinfo=UTC),
        cells=(cell,),
        attempts=1,
        budget=Budget(),
    )
    store.create_bench(bench, [run])

    await samples.work(store, store.run(run.id), Measured())

    said = "the prompts of 1 of 1 runs had lessons of earlier runs on other problems: softmax-1"
    assert said in make_report(store, bench).notes
