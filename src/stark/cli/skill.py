"""`stark skill`: installs the instructions by which a coding agent uses these commands."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from stark.cli import consoles
from stark.core.errors import UsageError


def show() -> None:
    """Print the skill."""
    consoles.write(_text())


def install(claude: bool, codex: bool, folder: Path | None) -> int:
    """Write the skill where each agent that is asked for looks for it, replacing an older version."""
    homes = {
        Path(os.environ.get("CLAUDE_CONFIG_DIR", "~/.claude")): claude,
        Path(os.environ.get("CODEX_HOME", "~/.codex")): codex,
    }
    folders = [home.expanduser() / "skills" for home, wanted in homes.items() if wanted]
    folders += [folder] if folder is not None else []
    if not folders:
        raise UsageError("say where: --claude, --codex, or a folder of skills")
    for each in folders:
        file = each / "stark" / "SKILL.md"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_text(), encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{file} cannot be written: {error.strerror}; choose another folder"
            ) from error
        consoles.say(str(file))
    return 0


def _text() -> str:
    return files("stark.cli").joinpath("SKILL.md").read_text(encoding="utf-8")
