"""Modules of five packages become problems that compute the same to the bit."""

from __future__ import annotations

import ast
import gc
import linecache
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from capture_zoo import ZOO, Inhabitant, alone, in_llama
from ownpkg.block import Block, Tower, examples
from torch import nn
from torch.utils import _pytree as pytree

import stark
from stark.capturing import entry
from stark.capturing.calls.loading import record
from stark.capturing.calls.observing import Observed, _noting_lines
from stark.capturing.calls.recording import Calls, recording
from stark.capturing.cannot import CannotCapture
from stark.core.problem import Problem
from stark.problems import load


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Any:
    known = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(known)


def recorded(one: Inhabitant) -> Calls:
    with torch.no_grad(), recording(one.model) as calls:
        one.model(*one.args, **one.kwargs)
    return calls


def names_of(source: str) -> dict[str, Any]:
    """What a problem file defines, run as a program of its own."""
    space: dict[str, Any] = {"__name__": "problem"}
    linecache.cache["problem.py"] = (len(source), None, source.splitlines(True), "problem.py")
    exec(compile(source, "problem.py", "exec"), space)
    return space


def reproduces(one: Inhabitant, problem: Problem, calls: Calls) -> None:
    """The problem's Model, with the weights of the module, returns the same for the recorded arguments."""
    space = names_of(problem.source)
    model = space["Model"]()
    state = one.module.state_dict()
    assert list(state) == list(model.state_dict())
    assert {n: (t.shape, t.dtype) for n, t in state.items()} == {
        n: (t.shape, t.dtype) for n, t in model.state_dict().items()
    }
    model.load_state_dict(state)
    form = calls.of(one.module)[0]
    assert form.example is not None
    args, kwargs = form.example
    with torch.no_grad():
        expected = one.module(*args, **kwargs)
        named = one_by_name(one.module, args, kwargs)
        actual = model(*(named[name] for name in problem.declared.original.arguments))
    a, b = pytree.tree_flatten(expected), pytree.tree_flatten(actual)
    assert a[1] == b[1]
    for x, y in zip(a[0], b[0], strict=True):
        assert (x is y) if x is None else torch.equal(x, y) and x.stride() == y.stride()


def one_by_name(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    import inspect

    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return {**bound, **bound.get("kwargs", {})}


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_a_module_becomes_a_problem(name: str, tmp_path: Path) -> None:
    one = ZOO[name]()
    calls = recorded(one)
    before = {n: t.clone() for n, t in one.model.state_dict().items()}

    problem = stark.capture(one.module, calls)

    assert "By torch.export" not in problem.source, "its source can be copied"
    file = tmp_path / "problem.py"
    file.write_text(problem.source)
    assert problem.source == load(str(file)).source
    reproduces(one, problem, calls)
    assert (
        f"{type(one.module).__module__}:{type(one.module).__qualname__}"
        == problem.declared.original.name
    )
    assert all(torch.equal(before[n], t) for n, t in one.model.state_dict().items())
    assert imports_of(problem.source) <= {
        "torch",
        "math",
        "zlib",
        "base64",
        "types",
        "collections",
        "functools",
    }


def imports_of(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


GRAPHS = [
    "transformers LlamaDecoderLayer eager",
    "transformers GPT2Block",
    "timm ConvNeXtBlock",
    "torch Sequential",
    "torchvision InvertedResidual",
    "own Block",
    "own Tower",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_a_module_becomes_a_problem_by_its_graph(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise CannotCapture("this test wants the graph")

    monkeypatch.setattr(entry, "by_source", refuse)
    one = ZOO[name]()
    calls = recorded(one)

    problem = stark.capture(one.module, calls)

    assert "because its source cannot be copied: this test wants the graph." in " ".join(
        problem.source.split()
    )
    reproduces(one, problem, calls)


def test_the_file_of_a_user_s_block_reads_well() -> None:
    one = ZOO["own Block"]()

    source = stark.capture(one.module, recorded(one)).source

    assert Path(__file__).with_name("block.txt").read_text() == re.sub(
        r"(?<='torch': )'[^']*'", "'VERSION'", source
    )


def test_recorded_forms_become_cases_with_weights() -> None:
    block = Block().eval()
    calls = record(block, [*examples(), examples()[1]], "examples")

    problem = stark.capture(block, calls)

    assert {"2x5x32": 2.0, "2x16x32": 1.0} == problem.declared.cases
    space = names_of(problem.source)
    assert (2, 16, 32) == space["get_inputs"]("2x16x32")[0].shape
    assert (2, 5, 32) == space["get_inputs"]()[0].shape
    chosen = stark.capture(block, calls, cases={"2x16x32": 3}, name="mine")
    assert ("mine", {}) == (chosen.name, chosen.declared.cases)


def test_forms_with_other_constants_are_left_out_and_counted() -> None:
    block = Block().eval()
    (args, kwargs), _ = examples()
    calls = record(
        block, [(args, kwargs), (args, {"gate": kwargs["gate"]}), (args, kwargs)], "examples"
    )

    problem = stark.capture(block, calls)

    assert "One other recorded form with other arguments or constants is left out." in " ".join(
        problem.source.split()
    )
    assert "True" == problem.declared.original.constants["return_state"]


def test_rare_shapes_are_left_out_unless_they_are_asked_for() -> None:
    layer = nn.Linear(4, 4)
    calls = record(layer, [((torch.randn(rows, 4),), {}) for rows in range(1, 11)], "examples")

    problem = stark.capture(layer, calls)

    assert 8 == len(problem.declared.cases)
    assert "2 rarer shapes are left out." in problem.source
    assert {"9x4": 1.0, "10x4": 2.0} == stark.capture(
        layer, calls, cases={"9x4": 1, "10x4": 2}
    ).declared.cases


def test_equal_modules_share_what_was_recorded() -> None:
    tower = Tower().eval()
    calls = recorded(alone(tower, torch.randn(2, 6, 32)))

    assert 2 == calls.of(tower.blocks[1])[0].calls
    assert stark.capture(tower.blocks[1], calls).declared.original.name == "ownpkg.block:Block"
    assert [] == calls.of(nn.Linear(3, 3))


class Lambda(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)])
        self.scaled = lambda x: x * 2

    def forward(self, x: Any, *rest: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return {"scaled": self.scaled(x), "none": None, "rest": [r + 1 for r in rest]}


BY_GRAPH = {
    "a lambda": (
        Lambda,
        "Lambda.scaled: Lambda.__init__.<locals>.<lambda> is not defined at the top level",
    ),
    "a parametrization": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
        "ParametrizedLinear",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_GRAPH)
@pytest.mark.filterwarnings("ignore")
def test_what_has_no_copy_of_its_source_is_captured_by_its_graph(name: str) -> None:
    make, reason = BY_GRAPH[name]
    one = alone(make(), torch.randn(3, 8))
    calls = recorded(one)

    problem = stark.capture(one.module, calls)

    text = " ".join(problem.source.split())
    assert "By torch.export, for the recorded shapes, because its source cannot be copied: " in text
    assert reason in text
    reproduces(one, problem, calls)


class Ties(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.b.weight = self.a.weight
        self.a.bias.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


def test_frozen_and_tied_parameters_and_gradients_are_the_same() -> None:
    module = Ties()
    with recording(module) as calls:
        module(torch.randn(2, 8, requires_grad=True))

    problem = stark.capture(module, calls, backward=True)

    model = names_of(problem.source)["Model"]()
    assert problem.declared.backward
    assert model.a.weight is model.b.weight
    assert not model.a.bias.requires_grad
    assert all(each.grad is None for each in module.parameters())


class Reads(nn.Module):
    """Decides by the values of a tensor, so that no branch may be dropped."""

    def forward(self, x: Any) -> Any:
        if x.sum() > 1e6:
            return x * 3
        return x * 2


def test_branches_that_depend_on_values_are_kept() -> None:
    one = alone(Reads(), torch.randn(3, 8))

    problem = stark.capture(one.module, recorded(one))

    model = names_of(problem.source)["Model"]()
    large = torch.full((3, 8), 1e6)
    assert torch.equal(large * 3, model(large))


def test_the_random_state_is_left_alone() -> None:
    one = in_llama("model.layers.0.mlp")
    calls = recorded(one)
    before = torch.get_rng_state()

    stark.capture(one.module, calls)

    assert torch.equal(before, torch.get_rng_state())


def test_a_compiled_module_is_captured_as_its_original() -> None:
    module = nn.Linear(8, 8)
    compiled = torch.compile(module)
    with torch.no_grad(), recording(compiled) as calls:
        compiled(torch.randn(2, 8))

    problem = stark.capture(compiled, calls)

    assert "torch.nn.modules.linear:Linear" == problem.declared.original.name


def test_nothing_is_collected_while_calls_are_watched() -> None:
    """Finalizers of a library's objects would count as code of the module."""
    with _noting_lines(Observed()):
        assert not gc.isenabled()
    assert gc.isenabled()
