"""What the tests of the MCP server share: a fake judge behind a command, and calls through the official client."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

from mcp import Client

from stark.languages import language
from support import judge as fake_judge
from support.examples import guide_example

EXAMPLE = guide_example(language("triton"))
"""The fake judge has a GPU."""


MODEL = (
    'case "$(cat)" in *"Your role: plan"*) '
    "printf 'ACTION: rewrite\\nSTRATEGY:\\nFuse everything.\\n';; *) cat reply.md;; esac\n"
)
"""A model that plans, and answers every other question with a file."""


def judge_line(notes: Path) -> str:
    """The executor whose judges are fake; they note in a file which problems they prepare."""
    options = ("--preparing-s", "0.01")
    command = (sys.executable, fake_judge.__file__, str(notes), *options)
    return f"command:{shlex.join(command)}"


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    """A tool's structured answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found = result.structured_content
    assert found is not None
    return found.get("result", found)


async def waited(client: Client, found: Any) -> Any:
    """The answer of a call that may go on."""
    while "pending" in found:
        found = await answer(client, "wait", pending=found["pending"])
    return found


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


def processes_with(text: str) -> list[int]:
    """The processes whose command line contains a text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if text in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:  # it ended meanwhile
            continue
    return found


async def gone(text: str) -> list[int]:
    """The processes whose command line still contains a text after they had ten seconds to end."""
    for _ in range(200):
        if not processes_with(text):
            break
        await asyncio.sleep(0.05)
    return processes_with(text)
