from __future__ import annotations

import asyncio

import pytest
from chat_server import Answer, ChatServer, as_events, as_json, completion, refusal
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from stark.core.call import Message
from stark.core.errors import ModelRefused, ModelUnreachable, PromptRefused
from stark.models.catalog import CATALOG
from stark.models.provider import ProviderModel, price
from stark.models.retry import Backoff

QUESTION = (Message(speaker="system", text="be brief"), Message(speaker="user", text="say hello"))


class Waits:
    """Stands for sleeping, and remembers for how long."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def model(chat_server: ChatServer, waits: Waits) -> ProviderModel:
    backoff = Backoff(tries=3, sleep=waits)
    return ProviderModel(CATALOG["vllm"], "tiny", chat_server.url, "secret", backoff=backoff)


async def test_reply_carries_text_model_and_usage(model: ProviderModel) -> None:
    reply = await model.ask(QUESTION, 0.8)

    assert "hello" == reply.text
    assert "tiny-2026" == reply.model
    assert (1, 11, 7) == (reply.usage.calls, reply.usage.input_tokens, reply.usage.output_tokens)
    assert reply.usage.seconds > 0


async def test_a_server_of_ones_own_has_no_known_price(model: ProviderModel) -> None:
    assert (await model.ask(QUESTION, None)).usage.dollars is None


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


async def test_no_temperature_is_sent_when_none_is_asked_for(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    await model.ask(QUESTION, None)

    assert "temperature" not in chat_server.requests[0]


async def test_a_refused_temperature_is_left_out_from_then_on(
    model: ProviderModel, chat_server: ChatServer, waits: Waits
) -> None:
    chat_server.answers = [
        refusal(400, "Unsupported value: 'temperature' does not support 0.8"),
        completion(),
    ]

    first = await model.ask(QUESTION, 0.8)
    await model.ask(QUESTION, 0.8)

    assert "hello" == first.text
    assert [True, False, False] == ["temperature" in sent for sent in chat_server.requests]
    assert [] == waits.seconds


async def test_a_rate_limit_is_waited_out_for_as_long_as_asked(
    model: ProviderModel, chat_server: ChatServer, waits: Waits
) -> None:
    chat_server.answers = [refusal(429, "slow down", ("Retry-After", "17")), completion()]

    reply = await model.ask(QUESTION, None)

    assert "hello" == reply.text
    assert [17.0] == waits.seconds


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(refusal(503, "overloaded"), id="503"),
        pytest.param(refusal(500), id="500"),
        pytest.param(refusal(408), id="408"),
        pytest.param(Answer(200, b'{"choices": ['), id="broken JSON"),
        pytest.param(Answer(200, b'{"detail": "hi"}'), id="not a completion"),
    ],
)
async def test_a_passing_failure_is_tried_again_until_the_tries_are_used_up(
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


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        pytest.param(refusal(401, "bad key"), r"check VLLM_API_KEY .*\(bad key\)", id="401"),
        pytest.param(refusal(404, "no tiny"), r"check the model's name .*\(no tiny\)", id="404"),
        pytest.param(refusal(400, "bad field"), r"rejected the request.*: bad field", id="400"),
        pytest.param(refusal(402, "pay first"), r"add credit .*\(pay first\)", id="402"),
        pytest.param(refusal(405, "GET only"), r"405 .*check the address", id="405"),
    ],
)
async def test_a_lasting_failure_is_refused_at_once_with_advice(
    model: ProviderModel, chat_server: ChatServer, answer: Answer, advice: str
) -> None:
    chat_server.answers = [answer]

    with pytest.raises(ModelRefused, match=advice):
        await model.ask(QUESTION, None)

    assert 1 == len(chat_server.requests)


async def test_a_conversation_that_is_too_long_is_told_apart(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    chat_server.answers = [refusal(400, "this model's maximum context length is 4 tokens")]

    with pytest.raises(PromptRefused, match="too long for vllm:tiny: give a smaller"):
        await model.ask(QUESTION, None)

    assert 1 == len(chat_server.requests)


async def test_nobody_at_the_address_is_unreachable(chat_server: ChatServer, waits: Waits) -> None:
    address = chat_server.url
    chat_server.close()
    model = ProviderModel(
        CATALOG["llamacpp"], "tiny", address, None, backoff=Backoff(tries=2, sleep=waits)
    )

    with pytest.raises(ModelUnreachable, match=f"llamacpp:tiny could not be reached at {address}"):
        await model.ask(QUESTION, None)


async def test_a_silent_server_is_given_up_at_the_timeout(chat_server: ChatServer) -> None:
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
async def test_anthropic_is_priced_and_spared_a_temperature_that_it_is_known_to_refuse(
    chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", chat_server.url)
    started = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-8",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1000, "output_tokens": 1},
    }
    chat_server.answers = [
        as_events(
            {"type": "message_start", "message": started},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "hello"},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 200},
            },
            {"type": "message_stop"},
        )
    ]
    model = ProviderModel(
        CATALOG["anthropic"], "claude-opus-4-8", None, "secret", backoff=Backoff(tries=1)
    )

    reply = await model.ask(QUESTION, 0.8)

    assert ("hello", "claude-opus-4-8") == (reply.text, reply.model)
    assert (1000, 200) == (reply.usage.input_tokens, reply.usage.output_tokens)
    assert reply.usage.dollars is not None
    assert reply.usage.dollars > 0
    assert "temperature" not in chat_server.requests[0]


async def test_openai_is_asked_through_its_responses(
    chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    text = {"type": "output_text", "text": "hello", "annotations": []}
    said = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
    }
    chat_server.answers = [
        as_json(
            {
                "id": "r",
                "object": "response",
                "created_at": 1,
                "model": "gpt-4o",
                "status": "completed",
                "output": [said],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "usage": usage,
            }
        )
    ]
    model = ProviderModel(CATALOG["openai"], "gpt-4o", None, "secret", backoff=Backoff(tries=1))

    reply = await model.ask(QUESTION, 0.1)

    assert ("hello", 5, 3) == (reply.text, reply.usage.input_tokens, reply.usage.output_tokens)
    assert 0.1 == chat_server.requests[0]["temperature"]


@pytest.mark.parametrize("name", CATALOG)
def test_every_provider_of_the_catalog_has_a_connection(name: str) -> None:
    provider = CATALOG[name]
    address = "http://localhost:1/v1" if provider.addressable else None

    assert f"{name}:some/model" == ProviderModel(provider, "some/model", address, "secret").name


def test_a_name_that_the_provider_cannot_have_is_refused_when_it_is_opened() -> None:
    with pytest.raises(ModelRefused, match="openrouter:gpt-4o cannot be asked as it is set up"):
        ProviderModel(CATALOG["openrouter"], "gpt-4o", None, "secret", backoff=Backoff(tries=1))


def test_price_is_known_for_a_listed_model_reported_by_some_and_else_unknown() -> None:
    def reply(model: str, provider: str, reported: float | None = None) -> ModelResponse:
        return ModelResponse(
            parts=[TextPart("hello")],
            usage=RequestUsage(input_tokens=1_000_000, output_tokens=0),
            model_name=model,
            provider_name=provider,
            provider_details=None if reported is None else {"cost": reported},
        )

    assert 2.5 == price(reply("gpt-4o", "openai"))
    assert 0.125 == price(reply("some/model", "openrouter", reported=0.125))
    assert price(reply("a-model-that-nobody-lists", "openai")) is None
