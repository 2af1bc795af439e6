"""What commands print with `--json` has a published schema. `Ended.document` validates the output of every test."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from cli_samples import BROKEN, FOUND, GOOD, OPTIMIZE, Stark, candidate_source

from stark.cli.app import app
from stark.cli.doctor import Torch
from stark.cli.schema import DOCUMENTS, schema
from stark.regions.results import Answer
from support.executor import FakeExecutor

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema.json"


def with_json(group: Any, prefix: str = "") -> set[str]:
    """The commands that have the option `--json`."""
    found: set[str] = set()
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= with_json(command, f"{name} ")
        elif any("--json" in each.opts for each in command.params):
            found.add(prefix + name)
    return found


def test_the_published_schema_is_the_documents_own() -> None:
    advice = "write it again: python -m stark.cli.schema > docs/schema.json"

    assert schema() == json.loads(PUBLISHED.read_text()), advice


def test_every_command_with_json_has_a_schema() -> None:
    commands = typer.main.get_command(app)

    assert set(DOCUMENTS) == with_json(commands)


MODULE = "hotspots users:Model --inputs users:example"
COMMANDS = {
    "optimize": [f"{shlex.join(OPTIMIZE)} --attempts 2"],
    "resume": ["resume --attempts 3"],
    "runs": ["runs"],
    "show": ["show", "show last 1"],
    "verify": ["verify package"],
    "demo": ["demo"],
    "problem": ["problem problem.py --guide"],
    "check": ["check problem.py broken.py good.py"],
    "evaluate": ["evaluate problem.py broken.py good.py --keep"],
    "hotspots": [MODULE, f"{MODULE} --optimize 1 {shlex.join(OPTIMIZE[2:])} --attempts 1"],
    "doctor": ["doctor"],
    "bench run": ["bench run problem.py --language cpp --model 'exec:sh model.sh' --attempts 1"],
    "bench resume": ["bench resume"],
    "bench report": ["bench report"],
    "bench list": ["bench list"],
}


@pytest.mark.slow
@pytest.mark.usefixtures("asked", "without_pictures")
def test_every_command_prints_what_its_schema_says(
    stark: Stark, executor: FakeExecutor, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stark.cli.hotspots.asked_model", lambda *_: Answer(hotspots=FOUND))
    monkeypatch.setattr("stark.deploy.verify.open_executor", lambda *_, **__: executor)
    monkeypatch.setattr("stark.cli.doctor._torch", lambda: Torch("2.13.0", None, []))
    monkeypatch.setattr("stark.cli.doctor.proving.breaches", lambda _: {"its own thread": []})
    for mark in (GOOD, BROKEN):
        (workplace / f"{mark}.py").write_text(candidate_source(mark))

    assert set(DOCUMENTS) == set(COMMANDS)
    for name, lines in COMMANDS.items():
        if name == "verify":
            assert 0 == stark("export", "last", "package").code
        for line in lines:
            ended = stark(*shlex.split(line), "--json")
            assert ended.code in (0, 1), ended.err
            assert ended.document  # follows the schema
