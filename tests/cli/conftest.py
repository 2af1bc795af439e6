from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stark.cli.app import main
from stark.core.candidate import Candidate
from stark.core.evaluation import Evaluation
from stark.languages import language
from stark.testing.executor import FakeExecutor, invented
from stark.testing.nodes import correct, failure

PLAN = "ACTION: rewrite\\nSTRATEGY:\\nFuse everything into one pass over memory.\\n"

MODEL = f"""#!/bin/sh
# Plans, and answers every other question with the next of the files reply-1.md, reply-2.md, …
question=$(cat)
case "$question" in
  *"Your role: plan"*) printf '{PLAN}'; exit ;;
esac
count=$(cat count 2>/dev/null || echo 0)
count=$((count + 1))
echo "$count" > count
cat "reply-$count.md"
"""

GOOD, BROKEN, BETTER = "good", "broken", "better"


class Ended(NamedTuple):
    """What a command printed and returned."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Stark = Callable[..., Ended]


def candidate_source(mark: str) -> str:
    return f"{language('cpp').example.candidate.source}\n# {mark}\n"


def verdict(candidate: Candidate) -> Evaluation:
    """By the mark in the last line of the source."""
    mark = candidate.source.rstrip().rpartition("# ")[2]
    by_mark = {GOOD: correct(0.5), BETTER: correct(0.25), BROKEN: failure("incorrect")}
    return by_mark.get(mark) or invented(candidate)


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a problem, a model and its replies, and nothing set in the environment."""
    for name in list(os.environ):
        if name.startswith("STARK_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.py").write_text(language("cpp").example.problem.source)
    (tmp_path / "model.sh").write_text(MODEL)
    for number, mark in enumerate((BROKEN, GOOD, BETTER, GOOD, GOOD, GOOD), start=1):
        reply = f"```python\n{candidate_source(mark)}```\n"
        (tmp_path / f"reply-{number}.md").write_text(reply)
    return tmp_path


@pytest.fixture
def stark(capfd: pytest.CaptureFixture[str]) -> Stark:
    """Runs a command in this process."""

    def run(*arguments: str) -> Ended:
        capfd.readouterr()
        code = main(arguments)
        return Ended(code, *capfd.readouterr())

    return run


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """The executor that every notation leads to."""
    fake = FakeExecutor(verdict)
    for module in ("optimizing", "evaluating", "working"):
        monkeypatch.setattr(f"stark.cli.{module}.open_executor", lambda *_: fake)
    return fake


OPTIMIZE = (
    "optimize problem.py --language cpp --strategy team-only --seed 1 "
    "--model exec[scripted]:sh@model.sh"
).split()
OPTIMIZE = [word.replace("@", " ") for word in OPTIMIZE]
"""A run whose first attempt fails, whose second repairs it and whose third is the best."""
