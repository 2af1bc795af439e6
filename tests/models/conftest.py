from __future__ import annotations

from collections.abc import Iterator

import pytest
from chat_server import ChatServer
from model_samples import OpenHosted, Waits

from stark.models.catalog import CATALOG
from stark.models.provider import ProviderModel
from stark.models.retry import Backoff

BASE_URLS = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "google": "GOOGLE_GEMINI_BASE_URL",
}


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    server = ChatServer()
    yield server
    server.close()


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def model(chat_server: ChatServer, waits: Waits) -> ProviderModel:
    """A model on the user's own server."""
    backoff = Backoff(tries=3, sleep=waits)
    return ProviderModel(CATALOG["vllm"], "tiny", chat_server.url, "secret", backoff=backoff)


@pytest.fixture
def hosted(chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> OpenHosted:
    """Opens a hosted model whose provider is the test's server."""

    def open_hosted(provider: str, model: str, *args: object, **options: object) -> ProviderModel:
        if provider == "openrouter":
            name = "pydantic_ai.providers.openrouter.OpenRouterProvider.base_url"
            monkeypatch.setattr(name, chat_server.url)
        else:
            monkeypatch.setenv(BASE_URLS[provider], chat_server.url)
        options = {"backoff": Backoff(tries=1), **options}
        return ProviderModel(CATALOG[provider], model, None, "secret", *args, **options)  # type: ignore[arg-type]

    return open_hosted


@pytest.fixture(autouse=True)
def no_keys_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in CATALOG.values():
        for variable in provider.key_variables:
            monkeypatch.delenv(variable, raising=False)
