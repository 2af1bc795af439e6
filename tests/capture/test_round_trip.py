"""Modules of five packages become problems, are searched with scripted replies by a real judge, and get their kernels."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

torch = pytest.importorskip("torch")

from capture_zoo import ZOO, Inhabitant
from test_capture import recorded
from torch import nn
from torch.utils import _pytree as pytree

import stark
from stark.core.candidate import Candidate
from stark.core.evaluation import Effort, Evaluation
from stark.core.judging import Limits
from stark.core.problem import Problem
from stark.core.reference import Reference
from stark.evaluator.executors import Executor
from stark.results import Result
from support.sharing import JudgeWithin

OFF = 1e-4
"""Largest relative difference to the original in these tests: the kernels are copies in PyTorch, which the judge accepts
within 2e-5 of the exact result."""


class Quick:
    """A judge whose final check is what it found in the search."""

    def __init__(self, judge: Executor, found: dict[str, Evaluation] | None = None) -> None:
        self._judge = judge
        self._found = {} if found is None else found

    async def describe(self, problem: Problem) -> Reference:
        return await self._judge.describe(problem)

    async def evaluate(
        self, problem: Problem, candidate: Candidate, effort: Effort = "search"
    ) -> Evaluation:
        key = problem.digest + candidate.digest
        if key not in self._found:
            self._found[key] = await self._judge.evaluate(problem, candidate, "search")
        return self._found[key]

    def on(self, device_class: str) -> Executor:
        return Quick(self._judge.on(device_class), self._found)

    async def close(self) -> None:
        await self._judge.close()


Trips = Callable[[str], Awaitable[tuple[Inhabitant, Result]]]

OFTEN = ("own Block",)
"""What `make test` tries; `make test-long` tries all."""


@pytest.fixture(scope="module")
def trips(judge_within: JudgeWithin, tmp_path_factory: pytest.TempPathFactory) -> Trips:
    """A module by its name, with the result of its search."""
    folder = tmp_path_factory.mktemp("trips")
    judge = Quick(judge_within(Limits(timing_budget_s=0.05)))
    found: dict[str, tuple[Inhabitant, Result]] = {}

    async def trip(name: str) -> tuple[Inhabitant, Result]:
        if name not in found:
            one = ZOO[name]()
            problem = stark.capture(one.module, recorded(one))
            found[name] = (
                one,
                await stark.aoptimize(
                    problem,
                    model=f"exec[scripted]:cat {replied(folder, len(found), problem)}",
                    strategy="sampling",
                    language="pytorch",
                    attempts=1,
                    judge=judge,
                    store=f"sqlite:///{folder}/runs.db",
                ),
            )
        return found[name]

    return trip


def replied(folder: Path, number: int, problem: Problem) -> Path:
    """A file with a reply: the reference itself in PyTorch."""
    path = folder / f"{number}.md"
    source = problem.source.replace("class Model(", "class ModelNew(")
    path.write_text(f"```python\n{source}\n```\n")
    return path


@pytest_asyncio.fixture(
    loop_scope="session",
    params=[pytest.param(each, marks=() if each in OFTEN else pytest.mark.long) for each in ZOO],
)
async def trip(request: pytest.FixtureRequest, trips: Trips) -> tuple[Inhabitant, Result]:
    one, result = await trips(request.param)
    return copy.deepcopy(one), result


def run(one: Inhabitant) -> list[torch.Tensor]:
    return leaves(one.model(*one.args, **one.kwargs))


def leaves(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def agree(ours: list[torch.Tensor], theirs: list[torch.Tensor], off: float = OFF) -> bool:
    return len(ours) == len(theirs) and all(
        one.dtype == other.dtype
        and one.stride() == other.stride()
        and torch.allclose(one, other, rtol=0, atol=off * largest(other), equal_nan=True)
        for one, other in zip(ours, theirs, strict=True)
    )


def largest(tensor: torch.Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


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


def test_another_dtype_or_shape_runs_the_original(trip: tuple[Inhabitant, Result]) -> None:
    one, result = trip
    assert result.kernel is not None
    applied = stark.apply(one.model, result.kernel)
    longer = one._replace(args=pytree.tree_map_only(torch.Tensor, twice, one.args))
    others = [longer, in_dtype(one, torch.float64), in_dtype(one, torch.float16)]
    found = [outcome(each) for each in others]
    report = applied.report()
    applied.remove()

    assert [outcome(each) for each in others] == found
    assert 0 == report.kernel_calls
    assert report.original_calls


def twice(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor])


def in_dtype(one: Inhabitant, dtype: torch.dtype) -> Inhabitant:
    """A copy whose model and inputs are of another dtype, as by `.double()` and `.half()`."""

    def given(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    args = pytree.tree_map_only(torch.Tensor, given, one.args)
    return one._replace(model=copy.deepcopy(one.model).to(dtype), args=args)


def outcome(one: Inhabitant) -> list[Any] | str:
    """What a call returns, or why it fails, as many modules do in another dtype."""
    try:
        with torch.no_grad():
            return [tensor.tolist() for tensor in run(one)]
    except RuntimeError as error:
        return str(error)


def test_copies_and_other_parameters_work(trip: tuple[Inhabitant, Result]) -> None:
    one, result = trip
    assert result.kernel is not None
    other = {name: value * 1.5 for name, value in one.model.named_parameters()}
    with torch.no_grad():
        expected = leaves(torch.func.functional_call(one.model, other, one.args, one.kwargs))
        applied = stark.apply(one.model, result.kernel)
        found = leaves(torch.func.functional_call(one.model, other, one.args, one.kwargs))
        copied = run(one._replace(model=copy.deepcopy(one.model)))
        again = run(one)

    assert agree(found, expected)
    assert agree(copied, again)
    assert applied.report().kernel_calls >= 3


@pytest.mark.parametrize("way", ["torch.compile", "torch.export"])
def test_graphs_contain_the_kernel_or_say_why_not(
    trip: tuple[Inhabitant, Result], way: str
) -> None:
    one, result = trip
    assert result.kernel is not None
    torch.compiler.reset()
    with torch.no_grad():
        expected = run(one)
        try:
            in_graph(one, way)
        except Exception as error:
            pytest.skip(f"nor does the original work in a graph: {type(error).__name__}")
        torch.compiler.reset()
        applied = stark.apply(one.model, result.kernel)
        found, contains = in_graph(one, way)

    report = applied.report()
    # A graph's strides are those of the reference without memory.
    assert agree([each.contiguous() for each in found], [each.contiguous() for each in expected])
    assert contains or report.original_calls
    assert bool(report.kernel_calls) is contains


def in_graph(one: Inhabitant, way: str) -> tuple[list[torch.Tensor], bool]:
    """What a graph of the whole model returns, and whether it contains a kernel."""
    graphs: list[torch.fx.GraphModule] = []

    def kept(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    if way == "torch.compile":
        call: Callable[..., Any] = torch.compile(one.model, fullgraph=True, backend=kept)
    else:
        program = torch.export.export(one.model, one.args, one.kwargs)
        graphs.append(program.graph_module)
        call = program.module()
    found = leaves(call(*one.args, **one.kwargs))
    return found, any("stark" in str(node.target) for each in graphs for node in each.graph.nodes)


def test_a_replaced_submodule_runs_the_original(trip: tuple[Inhabitant, Result]) -> None:
    """As LoRA replaces a linear layer."""
    one, result = trip
    assert result.kernel is not None
    children = one.module.named_children()
    name = next((name for name, part in children if not isinstance(part, nn.ModuleList)), None)
    if name is None:
        pytest.skip("this module has no submodule")
    applied = stark.apply(one.model, result.kernel)
    setattr(one.module, name, Doubled(getattr(one.module, name)))
    with torch.no_grad():
        found = outcome(one)
        report = applied.report()
        applied.remove()
        assert outcome(one) == found

    assert "a submodule was added, replaced or removed" in report.original_calls


class Doubled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return pytree.tree_map_only(torch.Tensor, doubled, self.inner(*args, **kwargs))


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return 2 * tensor if tensor.is_floating_point() else tensor


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
