"""Computes a team's replies from its prompts, for a scripted model.

Each reply depends on the whole prompt, so two runs with the same sources also had the same prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from stark.core.base import digest
from stark.core.call import Message


def prompt_of(messages: Iterable[Message]) -> str:
    """The first prompt of a conversation: all user messages before the first reply."""
    said = takewhile(lambda message: message.speaker != "assistant", messages)
    return "\n".join(message.text for message in said if message.speaker == "user")


def role_of(messages: tuple[Message, ...]) -> str:
    """The role that a prompt addresses."""
    found = re.match(r"# Your role: (\w+)", prompt_of(messages))
    assert found is not None
    return found[1]


def team_reply(messages: tuple[Message, ...]) -> str:
    """A reply that the role accepts."""
    prompt = prompt_of(messages)
    mark = digest(*(message.text for message in messages))
    line = f"        return x  # {mark}"
    if role_of(messages) == "plan":
        numbered = re.findall(r"^ *(\d+)\|( +return .*)$", prompt, re.MULTILINE)
        if not numbered:
            return _rewrite(mark)
        number, text = numbered[0]
        return _edit(number, text, mark)
    if "ANCHOR: name" in prompt:
        return f"ANCHOR: spot\n```python\n{line}\n```"
    return (
        "Here it is.\n```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n{line}\n```"
    )


def _rewrite(mark: str) -> str:
    return f"ACTION: rewrite\nTITLE: One fused kernel\nSTRATEGY:\nOne fused kernel, {mark}.\n"


def _edit(number: str, text: str, mark: str) -> str:
    return (
        f"ACTION: edit\nTITLE: A faster return\nSTRATEGY:\nA faster return, {mark}.\nANCHOR: spot\n"
        f"LINES: {number}\nBEGINS: {text.strip()}\nENDS: {text.strip()}\n"
        f"INSTRUCTION:\nReturn sooner, {mark}.\n"
    )
