from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main
from cli_samples import Stark

from stark.cli.app import app


def test_it_is_written_where_agents_look(
    stark: Stark, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(workplace / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(workplace / "codex"))

    ended = stark("skill", "install", "--claude", "--codex", ".claude/skills")

    assert 0 == ended.code
    for folder in ("claude/skills", "codex/skills", ".claude/skills"):
        text = (workplace / folder / "stark" / "SKILL.md").read_text()
        assert text.startswith("---\nname: stark\ndescription: Use when ")
    assert text == stark("skill", "show").out
    assert text.index("## Honesty first") < text.index("## The loop")


def test_a_place_is_needed(stark: Stark) -> None:
    ended = stark("skill", "install")

    assert 2 == ended.code and "--claude" in ended.err


def test_its_commands_and_options_exist(stark: Stark) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    spans = re.findall(r"`stark ([^`]+)`", stark("skill", "show").out)

    assert {"problem", "check", "evaluate", "show"} <= {span.split()[0] for span in spans}
    for span in spans:
        name, *words = span.split()
        known = {flag for each in commands[name].params for flag in each.opts}
        assert not {w.strip("[]") for w in words if w.strip("[").startswith("--")} - known, span
