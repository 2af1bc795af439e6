"""Modules of five packages become problems, are searched with scripted replies by a real judge, and get their kernels."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_capturing import recorded
from torch.utils import _pytree as pytree
from zoo import ZOO, Inhabitant

import stark
from stark.core.candidate import Candidate
from stark.core.evaluation import Effort, Evaluation
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import Executor, open_executor
from stark.results import Result

pytestmark = pytest.mark.slow

OFF = 1e-4
"""Largest relative difference to the original in these tests: the kernels are copies in PyTorch, which the judge accepts
within 2e-5 of the exact result."""


class Quick:
    """A judge that does its shorter check in place of the final one."""

    def __init__(self, judge: Executor) -> None:
        self._judge = judge

    async def describe(self, problem: Problem) -> Reference:
        return await self._judge.describe(problem)

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        return await self._judge.evaluate(problem, candidate, "search")

    async def close(self) -> None:
        await self._judge.close()


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Inhabitant, Result]]:
    """Every module with the result of its search."""
    folder = tmp_path_factory.mktemp("trips")
    modules = {name: make() for name, make in ZOO.items()}
    problems = {name: stark.capture(one.module, recorded(one)) for name, one in modules.items()}

    async def search() -> list[Result]:
        judge = Quick(open_executor("local:cpu", Limits(timing_budget_s=0.05)))
        try:
            return [
                await stark.aoptimize(
                    problem,
                    model=f"exec[scripted]:cat {replied(folder, number, problem)}",
                    strategy="sampling",
                    language="pytorch",
                    attempts=1,
                    judge=judge,
                    store=f"sqlite:///{folder}/runs.db",
                )
                for number, problem in enumerate(problems.values())
            ]
        finally:
            await judge.close()

    found = zip(modules.items(), asyncio.run(search()), strict=True)
    return {name: (one, result) for (name, one), result in found}


def replied(folder: Path, number: int, problem: Problem) -> Path:
    """A file with a reply: the reference itself in PyTorch."""
    path = folder / f"{number}.md"
    source = problem.source.replace("class Model(", "class ModelNew(")
    path.write_text(f"```python\n{source}\n```\n")
    return path


@pytest.fixture(params=ZOO)
def trip(request: pytest.FixtureRequest, trips: dict[str, Any]) -> Iterator[tuple[Inhabitant, Any]]:
    one, result = trips[request.param]
    yield copy.deepcopy(one), result


def run(one: Inhabitant) -> list[torch.Tensor]:
    return leaves(one.model(*one.args, **one.kwargs))


def leaves(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def agree(ours: list[torch.Tensor], theirs: list[torch.Tensor], off: float = OFF) -> bool:
    return len(ours) == len(theirs) and all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and bool((one - other).double().norm() <= off * other.double().norm() + 1e-12)
        for one, other in zip(ours, theirs, strict=True)
    )


def test_a_kernel_runs_in_the_model_that_it_came_from(trip: tuple[Inhabitant, Result]) -> None:
    one, result = trip
    assert result.kernel is not None, result.tree.nodes[0].evaluation
    state = {name: value.clone() for name, value in one.model.state_dict().items()}
    with torch.no_grad():
        expected = run(one)
        applied = stark.apply(one.model, result.kernel)
        found = run(one)

    report = applied.report()
    assert report.kernel_calls >= 1, report
    assert {} == report.original_calls
    assert agree(found, expected)
    assert all(torch.equal(value, state[name]) for name, value in one.model.state_dict().items())


def test_gradients_come_from_the_original(trip: tuple[Inhabitant, Result]) -> None:
    one, result = trip
    assert result.kernel is not None
    reference = copy.deepcopy(one)
    applied = stark.apply(one.model, result.kernel)
    for each in (reference, one):
        sum(leaf.float().sum() for leaf in run(each) if leaf.requires_grad).backward()

    for (name, ours), theirs in zip(
        one.model.named_parameters(), reference.model.parameters(), strict=True
    ):
        assert (ours.grad is None) == (theirs.grad is None), name
        assert ours.grad is None or torch.equal(ours.grad, theirs.grad), name
    assert 0 == applied.report().kernel_calls
    assert applied.report().original_calls


def test_another_dtype_runs_the_original(trip: tuple[Inhabitant, Result]) -> None:
    one, result = trip
    assert result.kernel is not None
    applied = stark.apply(one.model, result.kernel)
    one.model.double()
    wider = one._replace(args=pytree.tree_map_only(torch.Tensor, as_double, one.args))
    with torch.no_grad():
        found = run(wider)
        applied.remove()
        expected = run(wider)

    assert agree(found, expected, off=0.0)
    assert 0 == applied.report().kernel_calls


def as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def test_a_model_that_was_saved_has_no_kernel(
    trip: tuple[Inhabitant, Result], tmp_path: Path
) -> None:
    one, result = trip
    assert result.kernel is not None
    with torch.no_grad():
        expected = run(one)
        stark.apply(one.model, result.kernel)
        torch.save(one.model, tmp_path / "model.pt")
    loaded = one._replace(model=torch.load(tmp_path / "model.pt", weights_only=False))

    with torch.no_grad():
        assert agree(run(loaded), expected, off=0.0)
    assert list(one.model.state_dict()) == list(loaded.model.state_dict())
    assert "forward" not in vars(loaded.module)
