"""The problems of `examples/deck` can be judged, and their formulas say what the judge counts.

Here they run on a CPU at small sizes (`support/deck.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stark.core.evaluation import Untimed
from stark.core.judging import Limits
from stark.evaluator.executors import Executor
from stark.problems import check_visible
from support.candidates import as_candidate
from support.deck import DECK, SMALL, small
from support.sharing import JudgeWithin

torch = pytest.importorskip("torch")

from stark.evaluator.judge.problem.degenerate import passing
from stark.evaluator.judge.problem.inputs import Drawn, Program
from stark.evaluator.judge.problem.regimes import REGIMES, changed
from stark.evaluator.judge.problem.roofline import operations_of
from stark.evaluator.judge.problem.values import is_inexact
from stark.evaluator.judge.verify.oracle import expect

TOLERANCE = 0.13
"""How far the judge's counts may be from the formulas. Blocks of attention see an eighth more keys than their queries, and
random indices repeat a little more or less often than on average."""

OWN_ERROR = 1e-2
"""The largest relative RMS error of a reference in bfloat16."""

CASES = [(name, case) for name, problem in DECK.items() for case in problem.declared.cases]


def test_every_problem_has_several_cases_and_a_small_size() -> None:
    assert 13 == len(DECK)
    assert sorted(SMALL) == sorted(DECK)
    assert all(len(problem.declared.cases) > 1 for problem in DECK.values())


@pytest.mark.parametrize("name", DECK)
def test_the_table_lists_it_and_prompts_show_all_of_it(name: str) -> None:
    table = (Path(__file__).parents[2] / "examples/deck/README.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith(f"| [{name}]({name}.py)")]

    assert 1 == len(rows)
    assert all(case in rows[0] for case in DECK[name].declared.cases)
    check_visible(DECK[name])


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_reference_is_sound_and_counted(name: str, case: str, tmp_path: Path) -> None:
    program = Program(small(name).at(case), tmp_path, torch.device("cpu"))
    drawn = program.draw(1)
    outputs = program.run_first(drawn)
    oracle = program.run_float64(drawn, program.in_float64(constructed=False))
    expected = [expect(exact, ours) for exact, ours in zip(oracle, outputs, strict=True)]

    assert all(map(torch.equal, outputs, program.run(drawn)))
    assert all(each.isfinite().all() for each in outputs)
    assert all(each.eager_errors.relative_rms < OWN_ERROR for each in expected)
    others = [expect(one.double(), one) for one in program.run(program.draw(2))]
    assert [] == passing(drawn, expected, others)
    places = {at: 0.0 for at, tensor in enumerate(drawn.tensors) if is_inexact(tensor)}
    for output in program.run(changed(drawn, next(iter(REGIMES)), 2, places)):
        assert output.isfinite().all()

    _check_counts(program, drawn, case)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "case"), CASES)
def test_the_formula_holds_at_full_size(name: str, case: str, tmp_path: Path) -> None:
    program = Program(DECK[name].at(case), tmp_path, torch.device("cuda"))
    drawn = program.draw(1)
    outputs = program.run_first(drawn)

    assert all(each.isfinite().all() for each in outputs)
    _check_counts(program, drawn, case)


def _check_counts(program: Program, drawn: Drawn, case: str) -> None:
    counted = operations_of(program, drawn, "cuda" if program.device.type == "cuda" else "cpu")
    least_bytes, operations = program.module.roofline(case)

    assert pytest.approx(least_bytes, rel=TOLERANCE) == counted.least_bytes
    assert pytest.approx(operations, rel=TOLERANCE) == sum(counted.counted.values())


@pytest.fixture(scope="module")
def executor(judge_within: JudgeWithin) -> Executor:
    return judge_within(Limits(timing_budget_s=0.1))


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", DECK)
async def test_the_judge_accepts_a_reference_as_a_candidate(name: str, executor: Executor) -> None:
    problem = small(name)
    copy = problem.source.replace("class Model(", "class ModelNew(")

    found = await executor.check(problem, as_candidate("pytorch", copy))

    assert isinstance(found, Untimed), found
    assert () == found.warnings
