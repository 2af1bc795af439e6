"""What every model does, whatever answers behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from chat_server import ChatServer, completion

from stark.core.call import Message, Reply
from stark.models import Model, open_model
from support.model import ScriptedModel

REPLY = "hello, wörld"
CONVERSATION = (
    Message(speaker="system", text="be brief"),
    Message(speaker="user", text="say hello"),
    Message(speaker="assistant", text="good day"),
    Message(speaker="user", text="no, hello"),
)

Opener = Callable[[ChatServer], Model]


def scripted(server: ChatServer) -> Model:
    return ScriptedModel(lambda messages: REPLY)


def command(server: ChatServer) -> Model:
    return open_model(f"exec[parrot]:printf '{REPLY}'")


def provider(server: ChatServer) -> Model:
    server.answers = [completion(REPLY)]
    return open_model(f"openai-compatible:tiny@{server.url}")


@pytest.fixture(params=[scripted, command, provider])
def model(request: pytest.FixtureRequest, chat_server: ChatServer) -> Model:
    opener: Opener = request.param
    return opener(chat_server)


@pytest.mark.parametrize("length", [1, 2, 4])
@pytest.mark.parametrize("temperature", [None, 0.0, 0.8])
async def test_a_conversation_is_answered(
    model: Model, length: int, temperature: float | None
) -> None:
    reply = await model.ask(
        CONVERSATION[-1:] if length == 1 else CONVERSATION[:length], temperature
    )

    assert isinstance(reply, Reply)
    assert REPLY == reply.text
    assert reply.model


async def test_unknown_usage_is_not_zero(model: Model) -> None:
    usage = (await model.ask(CONVERSATION, None)).usage

    assert usage.input_tokens is None or usage.input_tokens > 0
    assert usage.output_tokens is None or usage.output_tokens > 0
    assert usage.seconds >= 0


async def test_questions_may_overlap(model: Model) -> None:
    replies = await asyncio.gather(*(model.ask(CONVERSATION, None) for _ in range(4)))

    assert [REPLY] * 4 == [reply.text for reply in replies]


def test_the_name_is_there_before_any_question(model: Model) -> None:
    assert model.name
