from __future__ import annotations

import asyncio
import time

import pytest

from stark.core.call import Message
from stark.core.errors import PromptRefused
from stark.core.usage import Price
from support.model import Asked, ScriptedModel

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


async def test_it_records_what_it_was_asked() -> None:
    model = ScriptedModel(["one"])

    await model.ask(QUESTION, 0.8)

    assert [Asked(QUESTION, 0.8)] == model.asked


async def test_usage_follows_the_texts() -> None:
    usage = (await ScriptedModel(["x" * 40], dollars=0.25).ask(QUESTION, None)).usage

    assert (3, 10, 0.25) == (usage.input_tokens, usage.output_tokens, usage.dollars)


async def test_unknown_dollars_follow_from_the_price() -> None:
    price = Price(input_per_million=1e6, output_per_million=2e6)
    model = ScriptedModel(["x" * 40], dollars=None, price=price)

    assert 3 + 20 == (await model.ask(QUESTION, None)).usage.dollars


async def test_a_reply_longer_than_the_limit_is_cut_until_there_is_room() -> None:
    model = ScriptedModel(lambda messages: "x" * 40, max_output_tokens=5)

    cut = await model.ask(QUESTION, None)
    whole = await model.ask(QUESTION, None, max_output_tokens=10)

    assert ("x" * 20, True, 5) == (cut.text, cut.truncated, cut.usage.output_tokens)
    assert ("x" * 40, False, 10) == (whole.text, whole.truncated, whole.usage.output_tokens)
    assert [None, 10] == model.limits


async def test_every_kth_call_fails() -> None:
    model = ScriptedModel(lambda messages: "fine", error=PromptRefused("no"), error_every=3)

    async def outcome() -> str:
        try:
            return (await model.ask(QUESTION, None)).text
        except PromptRefused as error:
            return str(error)

    assert ["fine", "fine", "no"] * 2 == [await outcome() for _ in range(6)]
    assert 6 == len(model.asked)


async def test_calls_with_a_delay_overlap() -> None:
    model = ScriptedModel(lambda messages: "fine", delay_s=0.2)
    started = time.monotonic()

    await asyncio.gather(*(model.ask(QUESTION, None) for _ in range(20)))

    assert 0.2 <= time.monotonic() - started < 2.0
