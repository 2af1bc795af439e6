"""Definitions with workloads, in the form of FlashInfer-Bench and of SOL-ExecBench, as problems."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stark.core.errors import ProblemError
from stark.core.evaluation import Untimed
from stark.core.judging import Limits
from stark.explain.evaluation import accuracy_text
from stark.problems import load, load_all
from support.candidates import as_candidate
from support.sharing import JudgeWithin

REFERENCE = """\
import torch


def run(x, weight, scale, kept):
    return torch.relu(x @ weight.t()) * scale * kept
"""

DEFINITION: dict[str, Any] = {
    "name": "scaled_projection",
    "op_type": "gemm",
    "description": "A projection, scaled.\nOf no model.",
    "axes": {
        "rows": {"type": "var"},
        "features": {"type": "const", "value": 16},
        "outputs": {"type": "expr", "expression": "features // 2"},
    },
    "inputs": {
        "x": {"shape": ["rows", "features"], "dtype": "bfloat16"},
        "weight": {"shape": ["outputs", "features"], "dtype": "bfloat16"},
        "scale": {"shape": None, "dtype": "float32"},
        "kept": {"shape": ["outputs"], "dtype": "bool"},
    },
    "outputs": {"y": {"shape": ["rows", "outputs"], "dtype": "bfloat16"}},
    "reference": REFERENCE,
}


def workload(rows: int, scale: float = 0.5, **more: Any) -> dict[str, Any]:
    inputs: dict[str, Any] = {name: {"type": "random"} for name in ("x", "weight", "kept")}
    inputs["scale"] = {"type": "scalar", "value": scale}
    return {"uuid": f"of {rows}", "axes": {"rows": rows}, "inputs": inputs} | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A problem's folder as in SOL-ExecBench."""
    return sol(tmp_path, [workload(4), workload(32, tolerance={"max_atol": 1e-3})])


def sol(tmp_path: Path, workloads: list[dict[str, Any]], **changed: Any) -> Path:
    folder = tmp_path / "scaled"
    folder.mkdir()
    (folder / "definition.json").write_text(json.dumps(DEFINITION | changed))
    (folder / "workload.jsonl").write_text("\n".join(map(json.dumps, workloads)) + "\n")
    return folder


def test_a_folder_of_sol_execbench_is_a_problem(folder: Path) -> None:
    problem = load(str(folder))

    assert "scaled_projection" == problem.name
    assert {"rows=4": 1.0, "rows=32": 1.0} == problem.declared.cases
    assert problem.declared.tolerance is not None
    assert {"absolute": 1e-3, "relative": 1e-2, "matched": 0.99} == (
        problem.declared.tolerance.model_dump()
    )
    assert problem.source.startswith("# A projection, scaled.\n# Of no model.\nimport torch")
    assert [problem] == load_all(str(folder.parent)) == load_all(str(folder))
    assert problem == load(str(folder / "definition.json"))


def test_a_definition_of_flashinfer_bench_finds_its_workloads(tmp_path: Path) -> None:
    for kind, name, text in (
        ("definitions", "scaled_projection.json", json.dumps(DEFINITION)),
        (
            "workloads",
            "scaled_projection.jsonl",
            json.dumps({"definition": "scaled_projection", "workload": workload(8)}),
        ),
    ):
        (tmp_path / kind / "gemm").mkdir(parents=True)
        (tmp_path / kind / "gemm" / name).write_text(text)
    problem = load(str(tmp_path / "definitions/gemm/scaled_projection.json"))

    assert ["rows=8"] == list(problem.declared.cases)
    assert problem.declared.tolerance is not None
    assert 1.0 == problem.declared.tolerance.matched
    assert [problem] == load_all(str(tmp_path / "definitions/gemm"))


def test_the_inputs_have_the_forms_of_the_workload(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    names: dict[str, Any] = {}
    exec(load(str(folder)).source, names)
    x, weight, scale, kept = names["get_inputs"]("rows=32")

    assert ((32, 16), torch.bfloat16) == (x.shape, x.dtype)
    assert ((8, 16), torch.bfloat16) == (weight.shape, weight.dtype)
    assert (0.5, torch.bool) == (scale, kept.dtype)
    assert 0.1 < weight.float().std() < 0.5  # 1 / sqrt(16)
    result = names["Model"](*names["get_init_inputs"]())(x, weight, scale, kept)
    assert (32, 8) == result.shape


def test_a_function_of_the_reference_may_draw_the_inputs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    drawing = """
def drawn(lengths, device):
    assert lengths["outputs"] == 8 and lengths["scale"] == 0.5
    kept = torch.ones(lengths["outputs"], dtype=torch.bool, device=device)
    return {"kept": kept}
"""
    inputs = workload(4)["inputs"] | {"kept": {"type": "custom"}}
    folder = sol(
        tmp_path,
        [workload(4, inputs=inputs)],
        reference=REFERENCE + drawing,
        custom_inputs_entrypoint="drawn",
    )
    names: dict[str, Any] = {}
    exec(load(str(folder)).source, names)

    assert torch.equal(torch.ones(8, dtype=torch.bool), names["get_inputs"]()[3])


@pytest.mark.parametrize("scale", [math.inf, -math.inf, math.nan])
def test_a_scalar_need_not_be_finite(scale: float, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    drawing = "\ndef drawn(lengths, device):\n    return {'kept': lengths['scale']}\n"
    folder = sol(
        tmp_path,
        [workload(4, scale, inputs=workload(4, scale)["inputs"] | {"kept": {"type": "custom"}})],
        reference=REFERENCE + drawing,
        custom_inputs_entrypoint="drawn",
    )
    names: dict[str, Any] = {}
    exec(load(str(folder)).source, names)

    assert [str(scale)] * 2 == [str(each) for each in names["get_inputs"]()[2:]]


def test_workloads_that_cannot_be_cases_are_named(tmp_path: Path) -> None:
    stored = workload(5)["inputs"] | {"x": {"type": "safetensors", "path": "x", "tensor_key": "x"}}
    many = [workload(rows) for rows in range(1, 20)]
    problem = load(str(sol(tmp_path, [*many, workload(3, scale=2.0), workload(5, inputs=stored)])))

    assert (
        "# Workloads left out: 1 read .safetensors files; 1 differ from the first in their scalars or in how inputs "
        "are made; 11 have sizes between those that were chosen." in problem.source
    )
    assert 8 == len(problem.declared.cases)
    assert ["rows=1", "rows=19"] == [list(problem.declared.cases)[end] for end in (0, -1)]


@pytest.mark.parametrize(
    ("changed", "workloads", "reason"),
    [
        ({}, [], "there is no workload; a problem needs at least one whose inputs are drawn"),
        (
            {"inputs": {"a b": DEFINITION["inputs"]["x"]}},
            [workload(1)],
            "'a b' is no name in Python",
        ),
        ({"axes": {"rows": {"type": "free"}}}, [workload(1)], "axes.rows.type: Input should be"),
        ({}, [{"axes": {}}], "inputs: Field required"),
    ],
)
def test_faults_say_what_to_change(
    tmp_path: Path, changed: dict[str, Any], workloads: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(ProblemError, match=reason):
        load(str(sol(tmp_path, workloads, **changed)))


def test_a_line_that_is_no_json_is_reported(folder: Path) -> None:
    (folder / "workload.jsonl").write_text("rows = 4")
    with pytest.raises(ProblemError, match="Expecting value: line 1 column 1"):
        load(str(folder))


def test_a_definition_needs_workloads_and_other_json_is_no_problem(folder: Path) -> None:
    (folder / "workload.jsonl").unlink()
    with pytest.raises(ProblemError, match=r"without workloads; put them into .*workload\.jsonl"):
        load(str(folder))
    (folder / "definition.json").write_text("{}")
    with pytest.raises(ProblemError, match="contains no problem file"):
        load_all(str(folder))


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_the_judge_says_how_a_candidate_stands_by_the_benchmarks_tolerance(
    folder: Path, judge_within: JudgeWithin
) -> None:
    problem = load(str(folder))
    copy = problem.source.replace("class Model(", "class ModelNew(")
    found = await judge_within(Limits()).check(problem, as_candidate("pytorch", copy))

    assert isinstance(found, Untimed), found
    assert (
        "; the problem's benchmark would accept it: 100 % of elements are within 0.001 + 0.01 |reference|, and it "
        "asks for 99 %" in accuracy_text(found.accuracy)
    )
