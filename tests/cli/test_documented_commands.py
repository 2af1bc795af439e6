"""The commands in the documents: all can be parsed, and all but a listed few run, most of them with an invented judge."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from cli_samples import GOOD, Stark, candidate_source

from stark.cli.app import app
from stark.languages import language
from support.documents import ROOT, commands, guides
from support.examples import guide_example
from support.executor import FakeExecutor

ALL = [
    (place, command)
    for path in guides()
    if path.name != "tutorial.md"
    for place, command in commands(path)
]
TUTORIAL = [command for _, command in commands(ROOT / "docs" / "tutorial.md")]

NOT_RUN = {
    r".*--kernelbench .*": "needs a checkout of KernelBench",
    r".*command:ssh .*": "needs another machine",
    r".*ray:HEAD.*": "needs a cluster; tests/evaluator/executors/test_cluster.py has one",
    r".*folder:QUEUE|stark worker .*": "two processes that wait for each other; tests/evaluator/executors has them",
    r"stark hotspots .*--optimize .*": "tests/cli/test_improving.py runs it",
    r"stark optimize mypkg.*|stark export last block_kernel|stark verify .*": "the tutorial's test runs the same with its own module",
    r".*alternating.*": "the policy is an example and not registered",
    r"stark ui.*": "serves until it is stopped; tests/page has it",
    r"stark doctor": "tests/cli/test_doctor.py runs it",
    r"stark bench (resume|report) NAME": "needs a bench; tests/cli/test_benching.py has them",
}
"""Patterns of commands that this file only parses, with the reason."""


@pytest.mark.parametrize(("place", "command"), [*ALL, *(("docs/tutorial.md", c) for c in TUTORIAL)])
def test_it_can_be_parsed(place: str, command: str) -> None:
    """Commands, options and choices exist, and nothing that is required is left out."""
    words = shlex.split(command)[1:]
    found = typer.main.get_command(app)
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]

    found.make_context("stark", words)


def test_a_wrong_option_would_be_found() -> None:
    with pytest.raises(Exception, match="--chek"):
        test_it_can_be_parsed("here", "stark evaluate a.py b.py --chek")


def listed(command: str) -> bool:
    return any(re.fullmatch(pattern, command) for pattern in NOT_RUN)


def test_the_list_is_not_longer_than_needed() -> None:
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command) for _, command in ALL), pattern


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test keeps what `prepared` made."""
    return tmp_path_factory.mktemp("prepared") / "workplace"


@pytest.fixture
def prepared(workplace: Path, stark: Stark, executor: FakeExecutor, kept: Path) -> Path:
    """A folder with what the commands name: problems, a kernel, a model, a run and two recordings."""
    if kept.exists():
        shutil.copytree(kept, workplace, symlinks=True, dirs_exist_ok=True)
        return workplace
    problem = guide_example(language("cpp")).problem.source
    for name in ("my_problem", "my_block"):
        (workplace / f"{name}.py").write_text(problem)
    (workplace / "my_kernel.py").write_text(candidate_source(GOOD))
    (workplace / "my_model.sh").write_text("#!/bin/sh\n. ./model.sh\n")
    (workplace / "my_model.sh").chmod(0o755)
    (workplace / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "masked_softmax.py", workplace / "examples")
    (workplace / "docs").symlink_to(ROOT / "docs")
    for number in range(1, 40):
        reply = f"```python\n{candidate_source(GOOD)}```\n"
        (workplace / f"reply-{number}.md").write_text(reply)
    asking = ("--attempts", "1", "--model", "exec:sh model.sh", "--output", "k.py")
    ended = stark("optimize", "my_problem.py", *asking)
    assert 0 == ended.code, ended.err
    shutil.copytree(workplace, kept, symlinks=True)
    return workplace


@pytest.mark.slow
@pytest.mark.usefixtures("without_pictures")  # tests/cli/test_whole_path.py has them drawn
@pytest.mark.parametrize(
    "command", dict.fromkeys(command for _, command in ALL if not listed(command))
)
def test_it_runs(
    command: str, prepared: Path, stark: Stark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a script in place of the model, and few attempts in place of many."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(prepared / "claude"))
    words = shlex.split(command)[1:]
    if "--model" in words:
        words[words.index("--model") + 1] = "exec[scripted]:sh model.sh"
        words.append("--unpriced")
    elif "--dollars" in words:
        words.append("--unpriced")
    if "--attempts" in words:
        at = words.index("--attempts") + 1
        words[at] = str(min(int(words[at]), 8))
    elif {"optimize", "run"} & set(words[:2]):
        words += ["--attempts", "2"]

    ended = stark(*words)

    assert 0 == ended.code, f"{command}\n{ended.out}\n{ended.err}"


@pytest.mark.judge
@pytest.mark.long
def test_the_tutorial(tmp_path: Path) -> None:
    """The commands of the tutorial, in their order, with the real judge on the CPU."""
    folder = tmp_path / "tutorial"
    shutil.copytree(ROOT / "examples" / "tutorial", folder, ignore=shutil.ignore_patterns("__*"))
    said = {}
    page = (ROOT / "docs" / "tutorial.md").read_text()
    lines = re.findall(r"^(?:stark|python use\.py).*$", page, re.MULTILINE)
    assert [*TUTORIAL, "python use.py"] == sorted(lines, key=lambda line: line == "python use.py")

    for line in lines:
        if line.startswith("stark verify"):
            continue  # another minute of judging; tests/deploy/test_verify.py has it
        words = shlex.split(line)
        program = [sys.executable, *(["-m", "stark"] if words[0] == "stark" else [])]
        words = [word.replace("exec:python", f"exec:{sys.executable}") for word in words[1:]]
        if line.startswith("stark optimize"):
            words += ["--executor", "local:cpu", "--no-sanitizer"]
        if line.startswith("stark hotspots"):
            words += ["--no-compile"]
        ended = subprocess.run(
            [*program, *words], cwd=folder, capture_output=True, text=True, timeout=300
        )
        assert 0 == ended.returncode, f"{line}\n{ended.stdout}\n{ended.stderr}"
        said[line] = ended.stdout

    assert "blocks.0-3" in said["stark hotspots net:Net --inputs net:example"]
    assert "ran the kernel: 4\nran the original: 4, x has another shape" in said["python use.py"]
