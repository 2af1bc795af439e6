from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from stark.core.candidate import Candidate
from stark.core.errors import ProblemError
from stark.core.evaluation import Correct, Evaluation, Untimed
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import folder, worker
from stark.evaluator.executors.folder import FolderExecutor
from stark.evaluator.executors.worker import serve_folder
from stark.evaluator.protocol import Answer, AnyRequest, request_id
from stark.explain.evaluation import evidence
from support.cases import EAGER_MS, IN_TURN, PROBLEM, SOURCE, FakeCases, reference_of, weighing
from support.nodes import correct, failure

CANDIDATE = Candidate(language="triton", source="class ModelNew: ...")


async def test_each_case_is_a_request_of_its_own() -> None:
    executor = FakeCases()

    reference = await executor.describe(PROBLEM)
    evaluation = await executor.evaluate(PROBLEM, CANDIDATE, "promote")

    each = [(kind, case) for kind in ("describe", "evaluate") for case in EAGER_MS]
    assert [*each, ("evaluate", IN_TURN)] == executor.asked
    assert list(EAGER_MS) == list(reference.cases)
    assert isinstance(evaluation, Correct)
    assert list(EAGER_MS) == list(evaluation.cases)
    assert weighing() == reference.weighing == evaluation.weighing


async def test_a_race_covers_every_case_and_repeats_no_request() -> None:
    class Asked(FakeCases):
        requests: ClassVar[list[AnyRequest]] = []

        async def answer(self, request: AnyRequest) -> Answer:
            self.requests.append(request)
            return await super().answer(request)

    executor = Asked()
    for effort in ("race", "race", "search", "search"):
        await executor.evaluate(PROBLEM, CANDIDATE, effort)

    assert ["decode", "prefill"] * 4 == [case for _, case in executor.asked]
    assert 4 + 2 == len({request_id(each) for each in executor.requests}), "answers are reused"


async def test_every_case_is_judged_by_machines_of_the_kind_that_answered_first() -> None:
    executor = FakeCases()

    await executor.evaluate(PROBLEM, CANDIDATE)

    assert [None, "invented"] == executor.classes


async def test_a_folder_gets_all_cases_at_once_when_the_kind_of_machine_is_known(
    tmp_path: Path,
) -> None:
    executor = FolderExecutor(tmp_path, Limits())
    waiting = asyncio.ensure_future(executor.evaluate(PROBLEM, CANDIDATE))
    try:
        await asyncio.sleep(0.05)
        unknown = len(list((tmp_path / "requests").iterdir()))
        waiting.cancel()
        await asyncio.wait([waiting])
        view = executor.on("invented")  # as a run does
        waiting = asyncio.ensure_future(view.evaluate(PROBLEM, CANDIDATE))
        await asyncio.sleep(0.05)

        assert (1, 2) == (unknown, len(list((tmp_path / "requests").iterdir())))
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])

    await asyncio.sleep(0.05)
    assert [] == list((tmp_path / "requests").iterdir())


@pytest.mark.parametrize(
    ("failing", "asked"), [("decode", ["decode"]), ("prefill", ["decode", "prefill"])]
)
async def test_the_first_failing_case_decides_and_saves_the_rest(
    failing: str, asked: list[str]
) -> None:
    def evaluation(case: str, _: Candidate) -> Evaluation:
        return failure("incorrect") if case == failing else correct(0.5)

    executor = FakeCases(evaluation)

    found = await executor.evaluate(PROBLEM, CANDIDATE)

    assert ("incorrect", failing) == (found.status, found.case)
    assert asked == [case for _, case in executor.asked]
    assert evidence(found).startswith(f"case {failing}: output 0: relative error")
    assert (failing == "prefill") == ("build" in found.seconds)  # the first case's time counts too


async def test_a_check_is_of_every_case() -> None:
    right, wrong = [
        await FakeCases(judged).check(PROBLEM, CANDIDATE)
        for judged in (
            lambda case, _: correct(0.5, EAGER_MS[case]),
            lambda case, _: failure("incorrect") if case == "prefill" else correct(0.5),
        )
    ]

    assert isinstance(right, Untimed)
    assert ("incorrect", "prefill") == (wrong.status, wrong.case)


async def test_a_search_does_not_ask_for_all_cases_in_turn() -> None:
    executor = FakeCases()

    await executor.evaluate(PROBLEM, CANDIDATE, "search")

    assert [("evaluate", case) for case in EAGER_MS] == executor.asked


async def test_a_candidate_that_fails_in_turn_alone_is_wrong() -> None:
    executor = FakeCases(
        lambda case, _: failure("incorrect") if case == IN_TURN else correct(0.5, EAGER_MS[case])
    )

    found = await executor.evaluate(PROBLEM, CANDIDATE, "promote")

    assert ("incorrect", "decode then prefill") == (found.status, found.case)
    assert "nothing may depend on the shapes of earlier calls" in found.warnings[0]
    assert 18.0 == found.seconds["build"]


@pytest.mark.parametrize(
    "candidate",
    [CANDIDATE, Candidate(language="triton", source="def ModelNew(): ...")],
    ids=["too little memory", "no class"],
)
async def test_what_could_not_be_tried_in_turn_is_a_warning(candidate: Candidate) -> None:
    executor = FakeCases(
        lambda case, _: (
            failure("out_of_memory") if case == IN_TURN else correct(0.5, EAGER_MS[case])
        )
    )

    found = await executor.evaluate(PROBLEM, candidate, "promote")

    assert isinstance(found, Correct)
    assert ("the cases were not verified in turn, in one process",) == found.warnings


async def test_a_problem_without_cases_is_one_request() -> None:
    plain = Problem(name="plain", source=SOURCE.replace("CASES", "NUMBERS"))
    executor = FakeCases(lambda *_: correct(0.5), lambda _: reference_of("decode"))

    await executor.describe(plain)
    found = await executor.evaluate(plain, CANDIDATE)

    assert correct(0.5) == found
    assert [("describe", ""), ("evaluate", "")] == executor.asked


async def test_arguments_that_differ_between_cases_are_refused() -> None:
    def reference(case: str) -> Reference:
        return reference_of(case).model_copy(update={"arguments": f"[{case!r}]"})

    with pytest.raises(
        ProblemError, match=r"^scaled_relu: get_inputs returns \['decode'\] in case"
    ):
        await FakeCases(reference=reference).describe(PROBLEM)


async def test_a_refused_case_refuses_the_problem() -> None:
    executor = FakeCases(reference=lambda case: f"scaled_relu[{case}]: get_inputs raised KeyError")

    with pytest.raises(ProblemError, match=r"scaled_relu\[decode\]: get_inputs raised"):
        await executor.describe(PROBLEM)
    assert [("describe", "decode")] == executor.asked


async def test_constants_of_another_form_are_refused_without_a_judge() -> None:
    executor = FakeCases()

    with pytest.raises(ProblemError, match=r"bad: line 1: CASES: .* the weight of 'a' is 0"):
        await executor.describe(Problem(name="bad", source="CASES = {'a': 0}"))
    assert [] == executor.asked


async def test_a_folder_gets_one_request_for_each_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for side in (folder, worker):
        monkeypatch.setattr(side, "POLL_S", (0.01, 0.05))
    executor = FolderExecutor(tmp_path, Limits())
    asking = asyncio.create_task(executor.evaluate(PROBLEM, CANDIDATE))

    serving = asyncio.create_task(serve_folder(tmp_path, FakeCases(), False, lambda _: None))
    found = await asking
    serving.cancel()

    assert isinstance(found, Correct)
    assert list(EAGER_MS) == list(found.cases)
    assert 2 == len(list((tmp_path / "requests").iterdir()))
