"""What is sent with a prompt: temperature, output limit and cache points."""

from __future__ import annotations

from typing import Any

import pytest
from chat_server import (
    Answer,
    ChatServer,
    anthropic_message,
    anthropic_refusal,
    completion,
    google_content,
    openai_response,
    openrouter_completion,
    refusal,
)
from model_samples import OpenHosted, Waits

from stark.core.call import Message
from stark.models.base import MAX_OUTPUT_TOKENS
from stark.models.provider import ProviderModel

QUESTION = (Message(speaker="system", text="be brief"), Message(speaker="user", text="say hello"))
IN_TWO_PARTS = (
    Message(speaker="system", text="be brief"),
    Message(speaker="user", text="the problem"),
    Message(speaker="user", text="say hello"),
)


async def test_no_temperature_is_sent_without_one(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    await model.ask(QUESTION, None)

    assert "temperature" not in chat_server.requests[0]


async def test_a_request_is_sent_again_without_a_rejected_temperature(
    model: ProviderModel, chat_server: ChatServer, waits: Waits
) -> None:
    rejection = refusal(400, "Unsupported value: 'temperature' does not support 0.8")
    chat_server.answers = [rejection, completion()]

    reply = await model.ask(QUESTION, 0.8)

    assert "hello" == reply.text
    assert [True, False] == ["temperature" in sent for sent in chat_server.requests]
    assert [] == waits.seconds


async def test_a_streaming_provider_is_asked_again_without_a_rejected_temperature(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [
        anthropic_refusal(400, "`temperature` is deprecated for this model"),
        anthropic_message(),
    ]

    reply = await hosted("anthropic", "claude-sonnet-4-6").ask(QUESTION, 0.8)

    assert "hello" == reply.text
    assert [True, False] == ["temperature" in sent for sent in chat_server.requests]


@pytest.mark.parametrize(
    ("provider", "name", "answer", "path"),
    [
        ("anthropic", "claude-opus-4-8", anthropic_message(), ("max_tokens",)),
        ("openai", "gpt-4o", openai_response(), ("max_output_tokens",)),
        (
            "google",
            "gemini-2.5-pro",
            google_content(),
            ("generationConfig", "maxOutputTokens"),
        ),
        ("openrouter", "some/model", openrouter_completion(), ("max_tokens",)),
    ],
)
async def test_every_hosted_model_is_told_its_output_limit(
    provider: str,
    name: str,
    answer: Answer,
    path: tuple[str, ...],
    chat_server: ChatServer,
    hosted: OpenHosted,
) -> None:
    chat_server.answers = [answer]

    reply = await hosted(provider, name).ask(QUESTION, None)

    sent: Any = chat_server.requests[0]
    for key in path:
        sent = sent[key]
    assert (MAX_OUTPUT_TOKENS, "hello", False) == (sent, reply.text, reply.truncated)


async def test_a_call_may_ask_for_more_room(model: ProviderModel, chat_server: ChatServer) -> None:
    await model.ask(QUESTION, None)
    await model.ask(QUESTION, None, max_output_tokens=50_000)

    assert [MAX_OUTPUT_TOKENS, 50_000] == limits(chat_server)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 32768. This model supports at most 16384 completion tokens",
        "Unsupported parameter: 'max_tokens'",
        "max_output_tokens must be at most 8192",
        # vLLM, older and newer
        "This model's maximum context length is 32768 tokens. However, you requested 33000 tokens (232 in the messages, "
        "32768 in the completion). Please reduce the length of the messages or completion.",
        "'max_tokens' or 'max_completion_tokens' is too large: 32768. This model's maximum context length is 32768 "
        "tokens and your request has 232 input tokens",
        # Anthropic
        "input length and `max_tokens` exceed context limit: 188240 + 32768 > 200000",
    ],
)
async def test_a_request_is_sent_again_without_a_rejected_output_limit(
    model: ProviderModel, chat_server: ChatServer, waits: Waits, message: str
) -> None:
    chat_server.answers = [refusal(400, message), completion()]

    reply = await model.ask(QUESTION, 0.8)

    assert "hello" == reply.text
    assert [MAX_OUTPUT_TOKENS, None] == limits(chat_server)
    assert all("temperature" in sent for sent in chat_server.requests)
    assert [] == waits.seconds


async def test_a_rejected_temperature_and_output_limit_are_both_dropped(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    chat_server.answers = [
        refusal(422, "temperature is fixed"),
        refusal(422, "max_tokens is fixed"),
        completion(),
    ]

    assert "hello" == (await model.ask(QUESTION, 0.8)).text
    assert {"model", "messages"} <= set(chat_server.requests[-1])
    assert not {"temperature", "max_tokens"} & set(chat_server.requests[-1])


@pytest.mark.parametrize(
    ("provider", "name", "answer"),
    [
        ("anthropic", "claude-opus-4-8", anthropic_message("def f", stop_reason="max_tokens")),
        ("openai", "gpt-4o", openai_response("def f", cut=True)),
        ("google", "gemini-2.5-pro", google_content("def f", "MAX_TOKENS")),
        ("openrouter", "some/model", openrouter_completion("def f", "length")),
    ],
)
async def test_a_reply_cut_at_the_limit_is_truncated(
    provider: str, name: str, answer: Answer, chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [answer]

    reply = await hosted(provider, name).ask(QUESTION, None)

    assert ("def f", True) == (reply.text, reply.truncated)


async def test_a_reply_that_is_all_thought_is_truncated_and_empty(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    chat_server.answers = [completion("", finish_reason="length")]

    reply = await model.ask(QUESTION, None)

    assert ("", True, 7) == (reply.text, reply.truncated, reply.usage.output_tokens)


async def test_anthropic_caches_the_system_text_and_the_stable_part_of_the_prompt(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [anthropic_message()]

    await hosted("anthropic", "claude-opus-4-8").ask(IN_TWO_PARTS, None)

    sent = chat_server.requests[0]
    point = {"type": "ephemeral", "ttl": "5m"}
    assert [{"type": "text", "text": "be brief", "cache_control": point}] == sent["system"]
    assert [
        {"type": "text", "text": "the problem\n\n", "cache_control": point},
        {"type": "text", "text": "say hello"},
    ] == sent["messages"][0]["content"]
    assert "cache_control" not in sent


async def test_openrouter_caches_where_the_model_behind_it_takes_cache_points(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [openrouter_completion()]

    await hosted("openrouter", "anthropic/claude-sonnet-4.5").ask(IN_TWO_PARTS, None)

    system, user = chat_server.requests[0]["messages"]
    assert "cache_control" in system["content"][0]
    assert [True, False] == ["cache_control" in part for part in user["content"]]


async def test_openai_caches_up_to_the_stable_part_where_it_takes_breakpoints(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [openai_response(model="gpt-5.6")]

    await hosted("openai", "gpt-5.6").ask(IN_TWO_PARTS, None)

    sent = chat_server.requests[0]
    user = sent["input"][-1]
    assert "explicit" == sent["prompt_cache_options"]["mode"]
    assert [True, False] == ["prompt_cache_breakpoint" in part for part in user["content"]]


async def test_a_server_of_ones_own_gets_plain_text_and_one_user_message(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    await model.ask(IN_TWO_PARTS, None)

    assert [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "the problem\n\nsay hello"},
    ] == chat_server.requests[0]["messages"]


def limits(chat_server: ChatServer) -> list[int | None]:
    return [sent.get("max_tokens") for sent in chat_server.requests]
