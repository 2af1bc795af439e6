"""The documents: links resolve, examples in Python run, commands of other programs are listed, and all of it is short.

The examples run with an invented judge and a script as the model. `cli/test_documented_commands.py` runs the commands.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stark
from stark.evaluating import written_as
from support.documents import DOCS, NOTES, ROOT, Block, blocks, guides, linked, without_code
from support.executor import FakeExecutor
from support.nodes import CPU, correct

LIMIT = 12_000
"""Words of README and all documents outside of `docs/notes`, as `wc -w` counts them."""

NOT_RUN = {
    r"make setup && \. \.venv/bin/activate": "installs STARK; this test runs in what it installs",
    "cd examples/tutorial": "the tutorial's test starts there",
    "pip install .*": "installs packages",
    r"sbatch --nodes=2 .* examples/cluster/slurm\.sh optimize .*": "needs Slurm",
    "python use.py": "run by the tutorial's test",
    "python benchmarks/policy_lab.py --policy alternating": "the policy is an example and not registered",
}
"""Patterns of lines in shell blocks that do not call `stark`, with the reason why they are not run on their own."""


def test_the_documents_are_short() -> None:
    words = {path.name: len(path.read_text().split()) for path in guides()}

    assert sum(words.values()) <= LIMIT, words


# Links.


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@functools.cache
def anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        same = found.count(slug(heading))
        found += [slug(heading), f"{slug(heading)}-{same}"] if same else [slug(heading)]
    return set(found)


@pytest.mark.parametrize("path", linked(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_anchors_resolve(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text()))

    broken = []
    for target in targets:
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        known = page.suffix != ".md" or not anchor or anchor in anchors(page)
        if not (page.exists() and known):
            broken.append(target)

    assert [] == broken


def test_every_page_is_on_the_site_and_the_first_page_leads_to_it() -> None:
    listed = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    pages = {path.name for path in guides() if path.parent == DOCS}
    first = (DOCS / "index.md").read_text()

    assert pages <= listed
    assert {f"notes/{path.name}" for path in NOTES.glob("*.md")} <= listed
    assert [] == [page for page in sorted(pages - {"index.md"}) if f"({page}" not in first]


def test_files_that_are_named_in_the_rules_exist() -> None:
    """`AGENTS.md` and the map name files by spans such as `docs/search.md`."""
    for name in ("AGENTS.md", "docs/extending.md", "docs/architecture.md", "CONTRIBUTING.md"):
        spans = re.findall(r"`((?:docs|benchmarks|tests|examples|src)/[\w./-]+)`", _text(name))
        assert [] == [span for span in spans if not (ROOT / span).exists()], name


def _text(name: str) -> str:
    return (ROOT / name).read_text()


def test_every_invariant_of_the_clocks_names_a_candidate_that_is_tested() -> None:
    clocks = _text("docs/measuring.md").partition("## From times")[0]
    candidates = {path.stem for path in (ROOT / "tests/exploits").rglob("*.py")}
    invariants = re.findall(r"^\d+\. (.*)$", clocks, re.MULTILINE)

    named = {span for line in invariants for span in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", line)}
    assert set() == named - candidates
    bare = [line for line in invariants if not re.search(r"`[a-z]+_[a-z_]+`|as on a CPU", line)]
    assert 16 == len(invariants) and [] == bare


# Examples.


def all_blocks(language: str) -> list[Block]:
    return [block for path in guides() for block in blocks(path) if block.language == language]


def test_every_block_has_a_language_that_is_tested() -> None:
    for path in guides():
        for block in blocks(path):
            assert block.language in ("", "python", "sh", "json", "toml"), block.place


def test_shell_lines_run_or_are_listed() -> None:
    lines = {
        line.partition("  #")[0].strip()
        for block in all_blocks("sh")
        for line in block.text.splitlines()
        if not line.startswith("stark ")
    }

    assert set() == {line for line in lines if not any(re.fullmatch(p, line) for p in NOT_RUN)}
    assert set() == {p for p in NOT_RUN if not any(re.fullmatch(p, line) for line in lines)}


def test_json_and_toml_are_valid() -> None:
    from stark.options import RunOptions

    for block in all_blocks("json"):
        json.loads(block.text)
    for block in all_blocks("toml"):
        given = tomllib.loads(block.text)
        assert set(given) <= {*RunOptions.model_fields, "store", "kernelbench"}, block.place


NET = """
import torch
from torch import nn


class Config:
    pass


class Block(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.norm = nn.LayerNorm(512)

    def forward(self, x, mask=None):
        return x * torch.sigmoid(self.norm(x)) + torch.tanh(torch.sin(torch.cos(torch.erf(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))

    @property
    def blocks(self):
        return self.layers

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""

KERNEL = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(512)

    def forward(self, x):
        return x * torch.sigmoid(self.norm(x)) + torch.tanh(torch.sin(torch.cos(torch.erf(x))))
"""

MODEL = """#!/bin/sh
case "$(cat)" in
  *"Your role: plan"*) printf 'ACTION: rewrite\\nTITLE: One pass\\nSTRATEGY:\\nFuse everything.\\n' ;;
  *) echo '```python'; cat kernel.py; echo '```' ;;
esac
"""

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(8)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the examples leave to the reader: a model, a batch, problems and kernels, in a folder of their own."""
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {"documented_net.py": NET, "kernel.py": KERNEL, "model.sh": MODEL}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "my_problem.py").write_text(PROBLEM)
    (tmp_path / "another_kernel.py").write_text(KERNEL)
    judge = FakeExecutor(lambda _: correct(0.5), device=CPU)
    for home in ("sessions", "configuration", "deploy.verify", "evaluator.executors"):
        module = importlib.import_module(f"stark.{home}")
        monkeypatch.setattr(module, "open_executor", lambda *_, **__: judge)
    net = importlib.import_module("documented_net")
    model = net.Net().eval()
    yield {
        **vars(net),
        "model": model,
        "batch": torch.randn(256, 512),
        "torch": torch,
        "stark": stark,
    }
    sys.modules.pop("documented_net", None)


def run(block: Block, names: dict[str, Any]) -> None:
    """Run an example, with a script in place of the language model, and one attempt in place of many."""
    source = re.sub(r"^model, batch = \.\.\..*$", "", block.text, flags=re.MULTILINE)
    source = re.sub(r"\(model, calls\)", "(model, calls, compile=0)", source)
    scripted = 'model="exec[scripted]:sh model.sh", unpriced=True'
    source = re.sub(r'model="(?:anthropic|openai|ollama):[^"]*"', scripted, source)
    source = re.sub(r"(stark\.resume\([^)]*)\)", r"\1, unpriced=True)", source)
    source = re.sub(r"attempts=\d+", "attempts=1", source)
    if "attempts=" not in source:
        source = source.replace("unpriced=True", "unpriced=True, attempts=1")
    exec(compile("\n" * block.line + source, block.page, "exec"), names)


def python_of(page: str) -> list[Block]:
    return [block for block in blocks(ROOT / page) if block.language == "python"]


@pytest.mark.slow
def test_readme(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    problem, own = python_of("README.md")
    run(own, names)
    report = names["applied"].report()
    assert "bound: layers.0 (Block)" in str(report)

    from torch import nn
    from torch.nn import functional

    made: dict[str, Any] = {"torch": names["torch"], "nn": nn, "F": functional}
    run(problem, made)
    made["get_inputs"], inputs = None, made["get_inputs"]()
    with names["torch"].no_grad():
        assert inputs[0].shape == made["Model"](*made["get_init_inputs"]())(*inputs).shape


@pytest.mark.slow
def test_your_own_model_and_back(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    path, functions = python_of("docs/own-model.md")
    run(path, names)
    said = capsys.readouterr().out
    assert "bound: layers.1 (Block)" in said, "the tutorial's test runs a real kernel"
    assert "my_kernel: " in said

    run(functions, names)
    arguments, keywords = names["example"]()
    names["block"]()(*arguments, **keywords)

    names["applied"].remove()
    [put] = python_of("docs/deploy.md")
    run(put, names)


@pytest.mark.slow
def test_hot_spots(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    rank, search = python_of("docs/hotspots.md")
    run(rank, names)
    assert "layers.0-1" in capsys.readouterr().out
    run(search, names)
    assert [True] == [each.kernel is not None for each in names["captured"] and [names["each"]]]


def test_cases(names: dict[str, Any]) -> None:
    [named] = python_of("docs/cases.md")
    names |= {"ROWS": {"decode": 1, "prefill": 8}, "FEATURES": 4}
    run(named, names)
    [first], [second] = names["get_inputs"](), names["get_inputs"]("prefill")
    assert [(1, 4), (8, 4)] == [tuple(first.shape), tuple(second.shape)]


def test_the_python_api(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    whole, events = python_of("docs/python.md")
    run(whole, names)
    assert "Kernel(attempt 1, cpp, 0.5 ms, 2.00x vs eager [2.00, 2.00], confirmed)" in (
        capsys.readouterr().out
    )
    run(events, names)
    assert "1 correct\n" == capsys.readouterr().out


def test_a_policy_of_your_own(names: dict[str, Any]) -> None:
    import random
    from dataclasses import dataclass
    from typing import ClassVar

    from stark.core.node import ROOT as REFERENCE
    from stark.core.node import Selection
    from stark.search.policies.base import expand
    from stark.search.tree import Tree

    [policy] = python_of("docs/extending.md")
    given: dict[str, Any] = {"random": random, "dataclass": dataclass, "ClassVar": ClassVar}
    given |= {"ROOT": REFERENCE, "Selection": Selection, "Tree": Tree, "expand": expand}
    given["__annotations__"] = {}
    run(policy, given)

    selected = given["Alternating"]().select(Tree(1.0), random.Random(0))
    assert Selection(parent=REFERENCE, action="improve") == selected


INTERPRETED = """
x = torch.randn(33, 70)
torch.testing.assert_close(ModelNew()(x), torch.relu(x) ** 2)
"""


def test_a_kernel_of_your_own(tmp_path: Path) -> None:
    [kernel] = python_of("docs/evaluation.md")

    assert ("triton",) == written_as("my_kernel.py", kernel.text).languages
    pytest.importorskip("triton")
    file = tmp_path / "my_kernel.py"
    file.write_text(kernel.text + INTERPRETED)
    subprocess.run([sys.executable, file], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)


def test_all_examples_in_python_are_run() -> None:
    tested = "README.md docs/cases.md docs/deploy.md docs/evaluation.md docs/extending.md docs/hotspots.md docs/own-model.md"
    tested += " docs/python.md"

    assert sorted(tested.split()) == sorted({block.page for block in all_blocks("python")})
