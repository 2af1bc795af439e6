from __future__ import annotations

import pytest

from stark.core.call import Message
from stark.testing.model import Asked, ScriptedModel

QUESTION = (Message(speaker="user", text="say hello"),)


async def test_a_list_is_answered_in_order_and_no_further() -> None:
    model = ScriptedModel(["one", "two"])

    assert "one" == (await model.ask(QUESTION, None)).text
    assert "two" == (await model.ask(QUESTION, None)).text
    with pytest.raises(AssertionError, match="2 replies"):
        await model.ask(QUESTION, None)


async def test_a_function_answers_from_the_conversation() -> None:
    model = ScriptedModel(lambda messages: messages[-1].text.upper())

    assert "SAY HELLO" == (await model.ask(QUESTION, None)).text


async def test_it_remembers_what_it_was_asked() -> None:
    model = ScriptedModel(["one"])

    await model.ask(QUESTION, 0.8)

    assert [Asked(QUESTION, 0.8)] == model.asked


async def test_usage_follows_the_texts() -> None:
    usage = (await ScriptedModel(["x" * 40], dollars=0.25).ask(QUESTION, None)).usage

    assert (3, 10, 0.25) == (usage.input_tokens, usage.output_tokens, usage.dollars)
