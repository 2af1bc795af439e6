from __future__ import annotations

import pytest
from chat_server import (
    Answer,
    ChatServer,
    anthropic_message,
    completion,
    google_content,
    openai_response,
    openrouter_completion,
)
from model_samples import OpenHosted

from stark.core.call import Message
from stark.core.usage import Price, Usage
from stark.models.base import priced
from stark.models.catalog import CATALOG
from stark.models.provider import ProviderModel

QUESTION = (Message(speaker="user", text="say hello"),)
PRICE = Price(input_per_million=2, output_per_million=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "name", "price"),
    [
        ("anthropic", "claude-opus-4-8", (5, 25)),
        ("openai", "gpt-4o", (2.5, 10)),
        ("google", "gemini-2.5-pro", (1.25, 10)),
        ("openrouter", "anthropic/claude-sonnet-4.5", (3, 15)),
    ],
)
def test_a_hosted_model_has_its_list_price_before_it_is_asked(
    provider: str, name: str, price: tuple[float, float]
) -> None:
    listed = ProviderModel(CATALOG[provider], name, None, "secret").price

    assert listed is not None
    assert pytest.approx(price) == (listed.input_per_million, listed.output_per_million)


async def test_an_unlisted_model_has_no_price(chat_server: ChatServer, hosted: OpenHosted) -> None:
    chat_server.answers = [openai_response(model="not-listed")]
    model = hosted("openai", "not-listed")

    assert model.price is None
    assert (await model.ask(QUESTION, None)).usage.dollars is None


async def test_a_server_of_ones_own_has_no_list_price_even_for_a_listed_name(
    chat_server: ChatServer,
) -> None:
    model = ProviderModel(CATALOG["openai-compatible"], "gpt-4o", chat_server.url, None)

    assert model.price is None
    assert (await model.ask(QUESTION, None)).usage.dollars is None


async def test_a_users_price_computes_the_dollars_of_a_server_of_ones_own(
    chat_server: ChatServer,
) -> None:
    model = ProviderModel(CATALOG["vllm"], "tiny", chat_server.url, None, PRICE)

    assert PRICE == model.price
    assert (11 * 2 + 7 * 8) / 1e6 == (await model.ask(QUESTION, None)).usage.dollars


async def test_a_users_price_needs_tokens(chat_server: ChatServer) -> None:
    chat_server.answers = [completion(usage=False)]
    model = ProviderModel(CATALOG["vllm"], "tiny", chat_server.url, None, PRICE)

    assert (await model.ask(QUESTION, None)).usage.dollars is None


async def test_a_users_price_overrides_the_list_price(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [openai_response()]
    model = hosted("openai", "gpt-4o", PRICE)

    assert PRICE == model.price
    assert (1000 * 2 + 200 * 8) / 1e6 == (await model.ask(QUESTION, None)).usage.dollars


async def test_a_cost_that_the_provider_reports_comes_before_any_price(
    chat_server: ChatServer, hosted: OpenHosted
) -> None:
    chat_server.answers = [openrouter_completion(dollars=0.125)]

    reply = await hosted("openrouter", "qwen/qwen3-coder", PRICE).ask(QUESTION, None)

    assert 0.125 == reply.usage.dollars


@pytest.mark.parametrize(
    ("provider", "name", "answer", "dollars"),
    [
        pytest.param(
            "anthropic",
            "claude-opus-4-8",
            anthropic_message(
                input_tokens=1000, cache_creation_input_tokens=2000, cache_read_input_tokens=7000
            ),
            (1000 * 5 + 2000 * 5 * 1.25 + 7000 * 5 * 0.1 + 200 * 25) / 1e6,
            id="anthropic",
        ),
        pytest.param(
            "openai",
            "gpt-4o",
            openai_response(cached_tokens=400),
            (600 * 2.5 + 400 * 1.25 + 200 * 10) / 1e6,
            id="openai",
        ),
        pytest.param(
            "google",
            "gemini-2.5-pro",
            google_content(),
            (600 * 1.25 + 400 * 0.125 + 200 * 10) / 1e6,
            id="google",
        ),
    ],
)
async def test_cached_tokens_count_as_input_and_have_their_own_price(
    provider: str,
    name: str,
    answer: Answer,
    dollars: float,
    chat_server: ChatServer,
    hosted: OpenHosted,
) -> None:
    chat_server.answers = [answer]

    usage = (await hosted(provider, name).ask(QUESTION, None)).usage

    assert (10_000 if provider == "anthropic" else 1000) == usage.input_tokens
    assert 200 == usage.output_tokens
    assert pytest.approx(dollars) == usage.dollars


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(input_tokens=1_000_000, output_tokens=0, dollars=None), 2.0),
        (Usage(input_tokens=0, output_tokens=1_000_000, dollars=None), 8.0),
        (Usage(input_tokens=5, output_tokens=5, dollars=0.5), 0.5),
        (Usage(input_tokens=None, output_tokens=5, dollars=None), None),
        (Usage(input_tokens=5, output_tokens=None, dollars=None), None),
    ],
)
def test_a_price_fills_in_unknown_dollars_alone(usage: Usage, dollars: float | None) -> None:
    assert dollars == priced(usage, PRICE).dollars
    assert usage == priced(usage, None)
