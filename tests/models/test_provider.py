from __future__ import annotations

import asyncio

import pytest
from chat_server import (
    Answer,
    ChatServer,
    anthropic_message,
    completion,
    openai_response,
    refusal,
)
from model_samples import OpenHosted, Waits

from stark.core.call import Message
from stark.core.errors import ModelRefused, ModelUnreachable
from stark.models.catalog import CATALOG
from stark.models.provider import ProviderModel
from stark.models.retry import Backoff

QUESTION = (Message(speaker="system", text="be brief"), Message(speaker="user", text="say hello"))


async def test_reply_carries_text_model_and_usage(model: ProviderModel) -> None:
    reply = await model.ask(QUESTION, 0.8)

    assert "hello" == reply.text
    assert "tiny-2026" == reply.model
    assert (11, 7) == (reply.usage.input_tokens, reply.usage.output_tokens)
    assert reply.usage.seconds > 0


async def test_tokens_that_the_server_does_not_count_are_unknown(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    chat_server.answers = [completion(usage=False)]

    usage = (await model.ask(QUESTION, None)).usage

    assert (None, None) == (usage.input_tokens, usage.output_tokens)


async def test_conversation_temperature_and_key_reach_the_wire(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    longer = (
        *QUESTION,
        Message(speaker="assistant", text="good day"),
        Message(speaker="user", text="no, hello"),
    )

    await model.ask(longer, 0.8)

    assert [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "say hello"},
        {"role": "assistant", "content": "good day"},
        {"role": "user", "content": "no, hello"},
    ] == chat_server.requests[0]["messages"]
    assert 0.8 == chat_server.requests[0]["temperature"]
    assert ["Bearer secret"] == chat_server.keys


async def test_a_rate_limit_is_waited_out_for_as_long_as_asked(
    model: ProviderModel, chat_server: ChatServer, waits: Waits
) -> None:
    chat_server.answers = [refusal(429, "slow down", ("Retry-After", "17")), completion()]

    reply = await model.ask(QUESTION, None)

    assert "hello" == reply.text
    assert 1 == len(waits.seconds)
    assert 17.0 < waits.seconds[0] <= 18.0


async def test_a_storm_of_rate_limits_is_waited_out_and_spread(
    model: ProviderModel, chat_server: ChatServer, waits: Waits
) -> None:
    chat_server.answers = [refusal(429, "slow down", ("Retry-After", "17"))] * 8 + [completion()]

    replies = await asyncio.gather(*(model.ask(QUESTION, None) for _ in range(8)))

    assert ["hello"] * 8 == [reply.text for reply in replies]
    assert 8 == len(set(waits.seconds))
    assert min(waits.seconds) > 17.0
    assert 16 == len(chat_server.requests)


async def test_a_rate_limit_beyond_patience_is_not_waited_out(
    model: ProviderModel, chat_server: ChatServer, waits: Waits
) -> None:
    chat_server.answers = [refusal(429, "come back tomorrow", ("Retry-After", "40000"))]

    with pytest.raises(ModelUnreachable, match="asks to wait 40000 s"):
        await model.ask(QUESTION, None)

    assert [] == waits.seconds


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(refusal(429, "slow down", ("Retry-After", "2")), id="429"),
        pytest.param(refusal(503, "overloaded"), id="503"),
        pytest.param(refusal(500), id="500"),
        pytest.param(refusal(408), id="408"),
        pytest.param(Answer(200, b'{"choices": ['), id="broken JSON"),
        pytest.param(Answer(200, b'{"detail": "hi"}'), id="not a completion"),
    ],
)
async def test_a_passing_failure_is_retried_until_the_tries_are_used_up(
    model: ProviderModel, chat_server: ChatServer, waits: Waits, answer: Answer
) -> None:
    chat_server.answers = [answer]

    with pytest.raises(ModelUnreachable, match=r"vllm:tiny .* after 3 tries"):
        await model.ask(QUESTION, None)

    assert 3 == len(chat_server.requests)
    assert 2 == len(waits.seconds)


async def test_a_passing_failure_does_not_show_in_the_reply(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    chat_server.answers = [refusal(503), Answer(200, b"<html>"), completion("at last")]

    assert "at last" == (await model.ask(QUESTION, None)).text


async def test_an_address_without_a_server_is_unreachable(
    chat_server: ChatServer, waits: Waits
) -> None:
    address = chat_server.url
    chat_server.close()
    model = ProviderModel(
        CATALOG["llamacpp"], "tiny", address, None, backoff=Backoff(tries=2, sleep=waits)
    )

    with pytest.raises(ModelUnreachable, match=f"llamacpp:tiny could not be reached at {address}"):
        await model.ask(QUESTION, None)


async def test_a_silent_server_is_abandoned_at_the_timeout(chat_server: ChatServer) -> None:
    chat_server.silent = True
    model = ProviderModel(
        CATALOG["ollama"], "tiny", chat_server.url, None, timeout_s=0.1, backoff=Backoff(tries=1)
    )

    with pytest.raises(ModelUnreachable, match="timed out"):
        await model.ask(QUESTION, None)


def test_a_model_works_on_one_event_loop_after_another(model: ProviderModel) -> None:
    for _ in range(2):
        assert "hello" == asyncio.run(model.ask(QUESTION, None)).text


async def test_questions_can_be_asked_at_the_same_time(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    replies = await asyncio.gather(*(model.ask(QUESTION, None) for _ in range(8)))

    assert ["hello"] * 8 == [reply.text for reply in replies]
    assert 8 == len(chat_server.requests)


@pytest.mark.filterwarnings("ignore:Sampling parameters")  # pytest undoes the module's own filter
async def test_anthropic_is_spared_a_temperature_that_it_is_known_to_reject(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [anthropic_message()]

    reply = await hosted("anthropic", "claude-opus-4-8").ask(QUESTION, 0.8)

    assert ("hello", "claude-opus-4-8") == (reply.text, reply.model)
    assert (1000, 200) == (reply.usage.input_tokens, reply.usage.output_tokens)
    assert "temperature" not in chat_server.requests[0]


async def test_anthropic_streams_so_that_no_idle_connection_is_dropped(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [anthropic_message(stop_reason=None), anthropic_message("whole")]

    backoff = Backoff(tries=2, first_s=0.0)
    reply = await hosted("anthropic", "claude-opus-4-8", backoff=backoff).ask(QUESTION, None)

    assert "whole" == reply.text
    assert [True, True] == [request["stream"] for request in chat_server.requests]


async def test_openai_is_asked_through_its_responses_api(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [openai_response()]

    reply = await hosted("openai", "gpt-4o").ask(QUESTION, 0.1)

    assert "hello" == reply.text
    assert (1000, 200) == (reply.usage.input_tokens, reply.usage.output_tokens)
    assert 0.1 == chat_server.requests[0]["temperature"]


@pytest.mark.parametrize("name", CATALOG)
def test_every_provider_of_the_catalog_has_a_connection(name: str) -> None:
    provider = CATALOG[name]
    address = "http://localhost:1/v1" if provider.addressable else None

    assert f"{name}:some/model" == ProviderModel(provider, "some/model", address, "secret").name


def test_a_name_that_the_provider_cannot_have_is_refused_when_it_is_opened() -> None:
    with pytest.raises(ModelRefused, match="openrouter:gpt-4o is not set up correctly"):
        ProviderModel(CATALOG["openrouter"], "gpt-4o", None, "secret", backoff=Backoff(tries=1))
