from __future__ import annotations

import pytest
from chat_server import (
    Answer,
    ChatServer,
    anthropic_message,
    anthropic_refusal,
    google_content,
    refusal,
)
from model_samples import OpenHosted

from stark.core.call import Message
from stark.core.errors import ModelError, ModelRefused, ModelUnreachable, PromptRefused
from stark.models.provider import ProviderModel

QUESTION = (Message(speaker="user", text="say hello"),)


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        pytest.param(refusal(401, "bad key"), r"check VLLM_API_KEY .*\(bad key\)", id="401"),
        pytest.param(refusal(403, "not yours"), r"its permissions \(not yours\)", id="403"),
        pytest.param(refusal(404, "no tiny"), r"check the model's name .*\(no tiny\)", id="404"),
        pytest.param(refusal(402, "pay first"), r"add credit .*\(pay first\)", id="402"),
        pytest.param(refusal(405, "GET only"), r"405 .*check the address", id="405"),
    ],
)
async def test_what_no_prompt_would_pass_refuses_the_model_at_once(
    model: ProviderModel, chat_server: ChatServer, answer: Answer, advice: str
) -> None:
    chat_server.answers = [answer]

    with pytest.raises(ModelRefused, match=advice):
        await model.ask(QUESTION, None)

    assert 1 == len(chat_server.requests)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(
            refusal(400, "flagged by our content policy"),
            r"rejected this prompt.*\(flagged by our content policy\)",
            id="content policy",
        ),
        pytest.param(refusal(400, "Invalid prompt"), r"\(Invalid prompt\)", id="invalid prompt"),
        pytest.param(refusal(422, "bad field"), r"\(bad field\)", id="422"),
        pytest.param(refusal(413, "too much"), "too long for vllm:tiny", id="413"),
    ],
)
async def test_a_rejected_prompt_is_refused_alone_and_at_once(
    model: ProviderModel, chat_server: ChatServer, answer: Answer, reason: str
) -> None:
    chat_server.answers = [answer]

    with pytest.raises(PromptRefused, match=reason):
        await model.ask(QUESTION, 0.8)

    assert 1 == len(chat_server.requests)


async def test_a_prompt_that_is_too_long_is_refused_once_it_fails_without_an_output_limit(
    model: ProviderModel, chat_server: ChatServer
) -> None:
    chat_server.answers = [refusal(400, "this model's maximum context length is 4 tokens")]

    with pytest.raises(PromptRefused, match="too long for vllm:tiny: lower the prompt limit"):
        await model.ask(QUESTION, None)

    assert [True, False] == ["max_tokens" in sent for sent in chat_server.requests]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "name", "answer"),
    [
        ("anthropic", "claude-opus-4-8", anthropic_message("", stop_reason="refusal")),
        ("google", "gemini-2.5-pro", google_content("", "SAFETY")),
    ],
)
async def test_a_reply_filtered_away_refuses_the_prompt(
    provider: str, name: str, answer: Answer, chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [answer]

    with pytest.raises(PromptRefused, match=f"{provider}:{name} filtered its reply"):
        await hosted(provider, name).ask(QUESTION, None)


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (anthropic_refusal(400, "messages: bad role"), PromptRefused, r"\(messages: bad role\)"),
        (anthropic_refusal(400, "prompt is too long: 9 > 4"), PromptRefused, "is too long for"),
        (anthropic_refusal(400, "Your credit balance is too low"), ModelRefused, "add credit"),
        (anthropic_refusal(401, "invalid x-api-key"), ModelRefused, "check ANTHROPIC_API_KEY"),
        (anthropic_refusal(529, "busy", "overloaded_error"), ModelUnreachable, "answered 529"),
    ],
)
async def test_a_streaming_provider_fails_with_the_same_errors(
    answer: Answer,
    kind: type[ModelError],
    reason: str,
    chat_server: ChatServer,
    hosted: OpenHosted,
) -> None:
    chat_server.answers = [answer]

    with pytest.raises(kind, match=reason):
        await hosted("anthropic", "claude-sonnet-4-6").ask(QUESTION, 0.8)
