"""What commands print with `--json` has a published schema. `Ended.document` validates the output of every test."""

from __future__ import annotations

import json
from pathlib import Path

import click
import typer.main

from stark.cli.app import app
from stark.cli.schema import DOCUMENTS, schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema.json"


def with_json(group: click.Group, prefix: str = "") -> set[str]:
    """The commands that have the option `--json`."""
    found: set[str] = set()
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= with_json(command, f"{name} ")
        elif any("--json" in each.opts for each in command.params):
            found.add(prefix + name)
    return found


def test_the_published_schema_is_the_documents_own() -> None:
    advice = "write it again: python -m stark.cli.schema > docs/schema.json"

    assert schema() == json.loads(PUBLISHED.read_text()), advice


def test_every_command_with_json_has_a_schema() -> None:
    commands = typer.main.get_command(app)

    assert set(DOCUMENTS) == with_json(commands)  # type: ignore[arg-type]


def test_every_command_with_json_is_tested_with_it() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))

    assert not [name for name in DOCUMENTS if f"# validates: {name}\n" not in tests]
